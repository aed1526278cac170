"""An attempt begins where its process, or its ranks, train; what is lost before has lost no attempt."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import ray
from ray.tune.experiment import Trial

from search.facts.hardware import Hardware, Node
from search.record.home import Home
from search.record.journal import Journal
from search.running.driver import make_ledger
from search.running.machines import Machines
from search.running.parking import Parking
from search.running.prepare import decide, load
from search.running.raytune import LedgerCallback, LedgerSearcher
from search.running.slots import FixedSlots
from search.running.switch import StopSwitch
from tests.integration.small_searches import digits_study, events_in
from trainable.tune.place import Place
from trainable.tune.worker import TrialAssignment

LOST = "The actor died unexpectedly before finishing this task: its node has died. The actor never ran."
BROKEN = 'Traceback (most recent call last):\n  File "a.py", line 1\nRuntimeError: no such layer'
HERE = Place(machine="h1", address="10.0.0.1", node="n", process=1)


class Places:
    """A process that says where it is."""

    def remote(self) -> Place:
        return HERE


@dataclass
class Search:
    """One trial that is about to begin, in `ranks` processes, on a machine that may train or not."""

    folder: Path
    ranks: int = 1
    in_doubt: bool = False
    may_train: bool | None = True

    @contextmanager
    def begun(self) -> Iterator[tuple[LedgerSearcher, LedgerCallback, Parking, Trial]]:
        study = digits_study(self.folder, name="mine", limits__retries=1)
        prepared = decide(load(study, Home(self.folder / "mine"), Hardware((Node(2, 0),))))
        prepared.home.folder.mkdir()
        machines = SimpleNamespace(in_doubt=self.in_doubt, may_train=lambda node: self.may_train)
        with Journal(prepared.home.folder) as journal:
            ledger, switch = make_ledger(prepared, journal), StopSwitch()
            parking = Parking(lambda _: None, lambda _: None, cast(Machines, machines), self.ranks)
            searcher = LedgerSearcher(ledger, prepared, switch, FixedSlots(1, 1), parking)
            callback = LedgerCallback(ledger, prepared, switch, lambda: None, searcher, parking)
            ledger.begin("mine")
            proposal = ledger.propose()
            assert proposal is not None
            store = prepared.home.checkpoints(0)
            assigned = TrialAssignment(proposal.recipe, store, str(ledger.search_id), False)
            told = SimpleNamespace(remote=lambda: None)
            process = SimpleNamespace(_actor_id="a", place=Places(), hold=told, release=told)
            trial = SimpleNamespace(
                trial_id="a",
                config={"trial": 0, **assigned.config()},
                error_file=str(self.folder / "error.txt"),
                run_metadata=SimpleNamespace(),
                temporary_state=SimpleNamespace(ray_actor=process),
            )
            yield searcher, callback, parking, cast(Trial, trial)

    @property
    def entered(self) -> list[str]:
        """What the journal says of attempts."""
        seen = [each.event for each in events_in(self.folder / "mine")]
        return [each for each in seen if each in ("start", "place", "retry")]

    def fails(self, callback: LedgerCallback, trial: Trial, said: str) -> None:
        (self.folder / "error.txt").write_text(said, encoding="utf-8")
        callback.on_trial_error(1, [], trial)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "get", lambda answer, timeout: answer)


@pytest.mark.slow("it prepares a search")
@pytest.mark.parametrize(
    ("came", "ranks", "said", "in_doubt", "entered"),
    [
        (False, 1, LOST, False, []),
        (True, 1, LOST, False, ["start", "place", "retry"]),
        (False, 1, BROKEN, False, ["retry"]),
        (False, 1, BROKEN, True, []),
        (True, 2, LOST, False, ["start", "retry"]),
        (True, 2, BROKEN, True, ["start", "retry"]),
    ],
)
def test_only_an_attempt_that_began_or_a_crash_is_one_that_failed(
    tmp_path: Path, *, came: bool, ranks: int, said: str, in_doubt: bool, entered: list[str]
) -> None:
    """Unless it may have been placed on a machine that is not known to be able to train."""
    search = Search(tmp_path, ranks, in_doubt)
    with search.begun() as (searcher, callback, _, trial):
        if came:
            callback.on_trial_start(1, [], trial)
        search.fails(callback, trial, said)
        assert searcher._again == [0], "it is tried again in each case"
        if in_doubt:
            assert callback._retries.again(0, "crash"), "its own retry is left"
    assert search.entered == entered


@pytest.mark.slow("it prepares a search")
@pytest.mark.parametrize("may_train", [True, False, None])
def test_an_attempt_of_several_ranks_begins_when_they_have_started_where_they_may_train(
    tmp_path: Path, may_train: bool | None
) -> None:
    search = Search(tmp_path, ranks=2, may_train=may_train)
    with search.begun() as (searcher, callback, parking, trial):
        callback.on_trial_start(1, [], trial)
        assert search.entered == []
        there = {"epochs": [], "places": [HERE.model_dump()] * 2}
        callback.on_trial_result(1, [], trial, there)
        assert parking.has("a") is (may_train is False)
        assert searcher._again == ([0] if may_train is False else []), "parked, it is proposed again"
        if may_train is None:
            assert search.entered == []
            search.fails(callback, trial, LOST)
            assert searcher._again == [0], "it was no attempt"
    assert search.entered == (["start", "place"] if may_train else [])
