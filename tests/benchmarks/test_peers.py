"""A peer searches in the simulation of our own arms, through its process, and pays for what it trains."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offline.arms import ROOT, Settings, arm_of, digest, run
from offline.beliefs import believing
from offline.peer_arms import PEERS, PeerArm, PeerSearch, missing_environments
from offline.peers.serving import Asked, Piece, Promoting
from offline.replay import Search
from offline.search_task import SearchTask
from offline.translation import asked_of, values_of
from search.record.journal import TrialEnd
from tests.benchmarks.small_tasks import EPOCHS, SPACE, adamw, bowl, sgd, straight, task_of

NUMBERS = st.fixed_dictionaries(
    {
        "x0": st.integers(0, 1),
        "x1": st.floats(1e-4, 1.0),
        "x2": st.floats(1e-6, 1e-2),
        "x3": st.floats(0.0, 0.9),
    }
)
PEER = """
import sys
print("noise at the start")
from offline.peers.serving import Peer, serve

class Scripted(Peer):
    def __init__(self, asked):
        self.number, self.heard = -1, []

    def ask(self):
        print("noise at a question")
        self.number += 1
        return self.number, {"x0": self.number % 2, "x1": 0.1, "x2": 1e-3, "x3": 0.5}

    def report(self, number, epoch, score):
        self.heard.append((number, epoch, score))
        return number != 1 or epoch < 2

    def diverged(self, number):
        if not self.heard:
            raise ValueError("the first one diverged")

serve(Scripted)
"""


class Halving(Promoting):
    """A search that trains two trials for three epochs, and the better one to its end."""

    def __init__(self) -> None:
        super().__init__()
        self.told: dict[Any, float | None] = {}

    def next_piece(self) -> Piece:
        if len(self.told) < 2:
            return Piece(len(self.told), {"at": float(len(self.told))}, 3, ("first", len(self.told)))
        best = max(self.told, key=lambda handle: self.told[handle] or 0.0)
        return Piece(best[1], {}, EPOCHS, ("second", best[1]))

    def tell(self, handle: Any, score: float | None) -> None:
        self.told[handle] = score


class InProcess(Search):
    """A search by a peer of this process, which gives no values."""

    def __init__(self, task: SearchTask, peer: Promoting) -> None:
        super().__init__(task.begin(), task.epochs)
        self.peer = peer

    def ask(self) -> tuple[int, dict[str, Any]]:
        number, _ = self.peer.ask()
        return number, sgd(1e-3)

    def begin(self, number: int, values: Mapping[str, Any]) -> None:
        pass

    def report(self, number: int, epoch: int, score: float) -> bool:
        return self.peer.report(number, epoch, score)

    def end(self, number: int, outcome: TrialEnd, scores: Mapping[int, float]) -> None:
        if outcome == "diverged":
            self.peer.diverged(number)


def two_rows(first: float, second: float) -> SearchTask:
    return task_of([straight(sgd(1e-3), first), straight(sgd(2e-3), second)])


def asked(task: SearchTask) -> Asked:
    return asked_of(task, task.space, 3, 10, "medium", 0)


@pytest.fixture
def scripted(tmp_path: Path) -> list[str]:
    program = tmp_path / "scripted.py"
    program.write_text(PEER)
    return [sys.executable, str(program)]


def test_a_promoted_trial_goes_on_where_it_was_and_pays_for_the_epochs_that_it_lacks() -> None:
    peer = Halving()
    found = InProcess(two_rows(0.4, 0.9), peer).run(3 + 3 + 6, workers=1)
    assert found.best == [(3 + 3 + 6, pytest.approx(0.9))]
    assert found.ends == {"stopped": 1, "finished": 1}
    assert peer.told == {
        ("first", 0): pytest.approx(0.4 / 3),
        ("first", 1): pytest.approx(0.9 / 3),
        ("second", 1): pytest.approx(0.9),
    }
    assert InProcess(two_rows(0.4, 0.9), Halving()).run(3 + 3 + 5, workers=1).best == []


def test_a_piece_that_diverges_is_told_without_a_score() -> None:
    peer = Halving()
    rows = [straight(sgd(1e-3), 0.4, epochs=2), straight(sgd(2e-3), 0.9)]
    found = InProcess(task_of([*rows, straight(sgd(1.0), 0.9)]), peer).run(3 + 3, workers=1)
    assert found.ends == {"diverged": 1, "stopped": 1}
    assert peer.told[("first", 0)] is None


@pytest.mark.parametrize(("epochs", "state"), [(1, "running"), (3 + 3 + EPOCHS, "finished")])
def test_a_trial_that_does_not_wait_cannot_be_asked_for(epochs: int, state: str) -> None:
    class Stubborn(Halving):
        def next_piece(self) -> Piece:
            return Piece(0, {}, EPOCHS, "again")

    with pytest.raises(ValueError, match=f"trial 0 is asked for again, but it is {state}"):
        InProcess(two_rows(0.4, 0.9), Stubborn()).run(epochs + 1, workers=2 if state == "running" else 1)


@given(NUMBERS)
def test_values_come_back_as_the_space_defines_them(numbers: dict[str, float]) -> None:
    values = values_of(SPACE, numbers)
    if numbers["x0"] == 0:
        assert values == sgd(numbers["x1"], numbers["x3"])
    else:
        assert values == adamw(numbers["x2"])


def test_a_value_outside_its_domain_is_refused_and_a_last_digit_is_not() -> None:
    numbers = {"x0": 0, "x1": 1.0000000000000002, "x3": 0.5}
    assert values_of(SPACE, numbers)["optimizer.lr"] == 1.0
    with pytest.raises(ValueError, match=r"expected 0\.0001 to 1, log, got 1\.1"):
        values_of(SPACE, {**numbers, "x1": 1.1})
    with pytest.raises(KeyError):
        values_of(SPACE, {"x0": 0, "x1": 0.1})


def test_a_peer_is_told_the_space_its_conditions_and_the_priors_that_ours_get() -> None:
    task = bowl()
    kind, sgd_rate, adamw_rate, momentum = asked(task).dimensions
    assert (kind.kind, kind.options, kind.only_if) == ("choice", [0, 1], None)
    assert (sgd_rate.low, sgd_rate.high, sgd_rate.log) == (1e-4, 1.0, True)
    assert (adamw_rate.only_if, adamw_rate.only_with) == ("x0", (1,))
    assert not momentum.exists({"x0": 1})
    assert {each.prior for each in asked(task).dimensions} == {None}
    space = believing(task, "right", seed=3)
    priors = {each.name: each.prior for each in asked_of(task, space, 3, 10, "medium", 0).dimensions}
    assert all(each is not None for each in priors.values())
    assert values_of(space, {name: each or 0.0 for name, each in priors.items()}) == pytest.approx(space.own)


def test_a_process_is_asked_trains_and_hears_of_divergence(scripted: list[str]) -> None:
    task = task_of([straight(sgd(0.1, 0.5), 0.5), straight(adamw(1e-3), 0.9), straight(sgd(0.2), 0.1, 4)])
    with PeerSearch(task, SPACE, scripted, asked(task)) as search:
        found = search.run(EPOCHS + 2 + 5, workers=1)
    assert found.best == [(EPOCHS, 0.5)]
    assert found.ends == {"finished": 1, "stopped": 1, "diverged": 1}


def test_a_process_that_ends_is_an_error_with_its_last_words(scripted: list[str]) -> None:
    task = task_of([straight(sgd(0.1, 0.5), 0.5, epochs=0), straight(adamw(1e-3), 0.9)])
    with (
        pytest.raises(RuntimeError, match=r"scripted\.py ended:(.|\n)*ValueError: the first one diverged"),
        PeerSearch(task, SPACE, scripted, asked(task)) as search,
    ):
        search.run(EPOCHS, workers=1)


def test_a_process_that_cannot_start_is_an_error_with_its_last_words(tmp_path: Path) -> None:
    program = tmp_path / "broken.py"
    program.write_text("import no_such_package")
    with (
        pytest.raises(RuntimeError, match="No module named 'no_such_package'"),
        PeerSearch(bowl(), SPACE, [sys.executable, str(program)], asked(bowl())),
    ):
        pass


def test_optuna_searches_in_this_environment_and_repeats_itself() -> None:
    arm, settings = PEERS["optuna-gp+hyperband"], Settings(trainings=4)
    first, second = (run(arm, "fashion-mnist", 1, settings) for _ in range(2))
    assert first == second
    assert first.ends["finished"] > 0


def test_a_missing_environment_is_named_with_the_command_that_makes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert missing_environments([PEERS["optuna-gp+hyperband"]]) == ""
    told = missing_environments(PEERS.values())
    assert "python benchmarks/peer_environments.py mobster neps smac syne_tune" in told
    assert str(tmp_path) in told


def test_a_digest_follows_the_peer_and_its_priors() -> None:
    settings = Settings(trainings=3)
    digests = {name: digest(arm_of(name), "fashion-mnist", settings) for name in PEERS}
    assert len(set(digests.values())) == len(PEERS)


@pytest.mark.parametrize("arm", PEERS.values(), ids=PEERS.keys())
def test_the_files_of_each_peer_are_there(arm: PeerArm) -> None:
    assert all((ROOT / each).exists() for each in arm.sources())
