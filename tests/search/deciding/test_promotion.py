"""Tests the scheduler that promotes: as tables, in a ledger, and against a brute-force model of all of it."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from optuna.trial import TrialState

from search.deciding.ledger import Decision, Ledger
from search.deciding.sampler import RandomSampler
from search.deciding.scheduler import PromotionAsha
from search.deciding.tpe import TpeSampler
from search.record.chain import JournalError
from search.record.home import EVENTS_FILE
from search.record.journal import EndEvent, EpochEvent, Event, Journal, PromotionEvent, StartEvent, read
from search.study.objective import NO_CONSTRAINTS, Constraints
from spaces.space import Space
from tests.search.deciding.small_ledgers import SMALL, Open, drive, ends, result
from tests.search.small_spaces import conditional_space
from trainable.recipe.network_cost import NetworkCost

RUNGS, EPOCHS = (1, 2), 3
SPACE = conditional_space()


def promotion(rungs: tuple[int, ...] = (1, 2), factor: int = 3) -> PromotionAsha:
    return PromotionAsha(rungs, factor, "max")


def paused_at(scheduler: PromotionAsha, rung: int, *values: float) -> dict[int, int]:
    """Report these values of trials 0, 1, ... and returns them as paused."""
    for trial, value in enumerate(values):
        assert not scheduler.report(trial, rung, value)
    return dict.fromkeys(range(len(values)), rung)


# --- the scheduler alone ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "factor", "expected"),
    [
        ((0.5, 0.9), 3, None),  # one in three of two is none
        ((0.5, 0.9, 0.1), 3, 1),
        ((0.5, 0.5, 0.5), 3, 0),  # of equals the earliest, and no other one
        ((0.1, 0.2), 2, 1),
    ],
)
def test_the_best_of_a_rung_goes_on_once_it_is_among_one_in_factor(
    values: tuple[float, ...], factor: int, expected: int | None
) -> None:
    scheduler = promotion(factor=factor)
    assert scheduler.promoted(paused_at(scheduler, 1, *values)) == expected


def test_those_that_went_on_keep_their_places() -> None:
    scheduler = promotion()
    paused = paused_at(scheduler, 1, 0.5, 0.5, 0.5, 0.4, 0.3)
    del paused[0]
    assert scheduler.promoted(paused) is None, "one in three of five is one, and it has gone on"
    scheduler.report(5, 1, 0.9)
    assert scheduler.promoted({**paused, 5: 1}) == 5
    assert scheduler.promoted(paused) is None, "now trial 1 is the third of six"


def test_the_highest_rung_comes_first() -> None:
    scheduler = promotion()
    paused = paused_at(scheduler, 1, 0.9, 0.1, 0.2, 0.3, 0.4, 0.8)
    for trial, value in ((3, 0.1), (4, 0.2), (1, 0.3)):
        scheduler.report(trial, 2, value)
    assert scheduler.promoted({**paused, 1: 2, 3: 2, 4: 2}) == 1
    assert scheduler.promoted(paused) == 0


def test_at_the_end_at_least_one_goes_on_from_each_rung() -> None:
    scheduler = promotion()
    paused = paused_at(scheduler, 1, 0.1, 0.9)
    assert scheduler.promoted(paused) is None
    assert scheduler.promoted(paused, least=1) == 1
    del paused[1]
    assert scheduler.promoted(paused, least=1) is None


def test_a_trial_is_without_hope_when_too_many_are_better() -> None:
    scheduler = promotion()
    paused = paused_at(scheduler, 1, 0.1, 0.9, 0.8)
    assert scheduler.hopeless(paused, trials=9) == []
    assert scheduler.hopeless(paused, trials=6) == [0]
    assert scheduler.hopeless(paused, trials=2) == [2, 0]
    assert scheduler.rank_at(0, 1) == (3, 3, 1)
    assert str(scheduler.rank_at(0, 1)) == "ranks 3 of 3; the best goes on"


# --- in a ledger --------------------------------------------------------------------------------------------


def proposed(ledger: Ledger, count: int) -> list[int]:
    proposals = [ledger.propose() for _ in range(count)]
    return [each.trial for each in proposals if each is not None]


def test_a_paused_trial_goes_on_before_a_new_one_begins(open_ledger: Open, tmp_path: Path) -> None:
    ledger = open_ledger(scheduler="promotion")
    assert proposed(ledger, 4) == [0, 1, 2, 3]
    assert ledger.epoch(0, result(1, 0.1)) is Decision.CONTINUE, "the documented recipe never pauses"
    assert ledger.epoch(1, result(1, 0.9)) is Decision.PAUSE
    assert proposed(ledger, 1) == [4], "one in three of two is none"
    assert ledger.epoch(2, result(1, 0.5)) is Decision.PAUSE
    ledger.retry(1, "it does not train")
    assert set(ledger.paused_trials) == {1, 2}
    assert (ledger.ended(1), ledger.epochs_done(1)) == (None, 1)
    assert proposed(ledger, 2) == [1, 5]
    ledger.start(1, 1)
    assert ledger.epoch(1, result(1, 0.3)) is Decision.CONTINUE, "it is known already"
    assert ledger.epoch(1, result(2, 0.9)) is Decision.PAUSE
    assert ledger.epoch(3, result(1, 0.6)) is Decision.PAUSE
    events = read(tmp_path / EVENTS_FILE)
    assert [(each.trial, each.rung) for each in events if isinstance(each, PromotionEvent)] == [(1, 1)]
    assert [each.attempt for each in events if isinstance(each, StartEvent)] == [1]


def test_a_trial_that_is_itself_the_next_goes_on_at_once(open_ledger: Open) -> None:
    ledger = open_ledger(scheduler="promotion")
    proposed(ledger, 3)
    ledger.epoch(0, result(1, 0.1))
    ledger.epoch(1, result(1, 0.5))
    assert ledger.epoch(2, result(1, 0.9)) is Decision.CONTINUE
    assert ledger.epoch(2, result(2, 0.9)) is Decision.PAUSE


def test_what_stays_paused_ends_with_its_rank_when_the_budget_is_spent(
    open_ledger: Open, tmp_path: Path
) -> None:
    drive(open_ledger(scheduler="promotion"))
    reasons = {
        each.trial: each.reason
        for each in read(tmp_path / EVENTS_FILE)
        if isinstance(each, EndEvent) and each.state == "stopped"
    }
    assert reasons
    assert all("val_accuracy" in str(each) and " ranks " in str(each) for each in reasons.values())
    ledger = open_ledger(scheduler="promotion")
    assert (ledger.is_complete, list(ledger.paused_trials), ledger.propose()) == (True, [], None)


def test_where_the_hours_end_a_trial_that_might_have_gone_on_says_so(
    open_ledger: Open, tmp_path: Path
) -> None:
    ledger = open_ledger(scheduler="promotion")
    proposed(ledger, 4)
    for trial, accuracy in ((1, 0.9), (2, 0.5), (0, 0.1), (3, 0.3)):
        ledger.epoch(trial, result(1, accuracy))
    ledger.cut_short()
    reasons = {each.trial: each.reason for each in read(tmp_path / EVENTS_FILE) if isinstance(each, EndEvent)}
    assert reasons == {
        0: "the budget of hours is spent",
        1: "the budget of hours is spent",
        2: "val_accuracy 0.5 at epoch 1 ranks 2 of 4; the best goes on",
        3: "val_accuracy 0.3 at epoch 1 ranks 3 of 4; the best goes on",
    }


def test_the_sampler_learns_from_a_trial_while_it_is_paused(tmp_path: Path, small_space: Space) -> None:
    sampler = TpeSampler(small_space, 7, "max")
    with Journal(tmp_path) as journal:
        ledger = Ledger(journal, small_space, sampler, promotion(), trials=4, epochs=3, metric="val_accuracy")
        ledger.begin("test")
        proposed(ledger, 2)
        ledger.epoch(1, result(1, 0.9))
        told = sampler.trials[1]
        assert (told.state, told.intermediate_values) == (TrialState.PRUNED, {1: 0.9})
        ledger.epoch(0, result(1, 0.5))
        proposed(ledger, 1)
        ledger.epoch(2, result(1, 0.1))
        assert proposed(ledger, 1) == [1]
        ledger.epoch(1, result(2, 0.95))
        assert sampler.trials[1].intermediate_values == {1: 0.9, 2: 0.95}
        ledger.fail(2, "it is paused, and cannot fail")
        assert sampler.trials[2].state == TrialState.PRUNED


@pytest.mark.parametrize("left_out", [b'{"event":"promotion"', b'"pauses":true'])
def test_an_epoch_after_a_pause_needs_a_promotion(open_ledger: Open, tmp_path: Path, left_out: bytes) -> None:
    from search.record.record import Record

    ledger = open_ledger(scheduler="promotion")
    proposed(ledger, 3)
    for trial, accuracy in ((0, 0.1), (1, 0.2), (2, 0.9)):
        ledger.epoch(trial, result(1, accuracy))
    ledger.epoch(2, result(2, 0.9))
    events = read(tmp_path / EVENTS_FILE)
    Record(events)
    changed: list[Event]
    if left_out.startswith(b"{"):
        changed = [each for each in events if not isinstance(each, PromotionEvent)]
    else:
        changed = [
            each.model_copy(update={"pauses": False}) if isinstance(each, EpochEvent) else each
            for each in events
        ]
    with pytest.raises(JournalError, match=r"expected (its promotion from rung 1, got epoch|a pause)"):
        Record(changed)


# --- against a brute-force model ----------------------------------------------------------------------------


@dataclass
class Model:
    """The search as the paper's Algorithm 2 has it, in lists: it ends no trial before all else is done."""

    budget: int
    factor: int
    arrived: dict[int, list[tuple[int, float]]] = field(default_factory=lambda: {each: [] for each in RUNGS})
    running: list[int] = field(default_factory=list)
    paused: dict[int, int] = field(default_factory=dict)
    # Those of the running trials that no worker has, since the driver was killed
    unfinished: list[int] = field(default_factory=list)
    drawn: int = 0
    infeasible: int = 0
    reached: set[int] = field(default_factory=set)
    over: bool = False

    def ask(self) -> int | None:
        """Return the trial that a free worker gets."""
        if self.unfinished:
            return self.unfinished.pop(0)
        if (promotable := self.promotable()) is not None:
            del self.paused[promotable]
            self.running.append(promotable)
            return promotable
        if not self.spent:
            self.running.append(self.drawn)
            self.drawn += 1
            return self.drawn - 1
        self.over = not self.running
        return None

    def promotable(self) -> int | None:
        least = 1 if self.spent and not self.running else 0
        for rung in reversed(RUNGS):
            ranked = sorted(self.arrived[rung], key=lambda each: -each[1])
            top = ranked[: max(least, len(ranked) // self.factor)]
            candidates = [trial for trial, _ in top if self.paused.get(trial) == rung]
            if candidates:
                return candidates[0]
        return None

    @property
    def spent(self) -> bool:
        return self.drawn - self.infeasible >= self.budget

    def report(self, trial: int, epoch: int, score: float) -> bool:
        """Return whether the trial goes on with its worker."""
        if epoch in RUNGS:
            self.arrived[epoch].append((trial, score))
            if trial > 0:
                self.running.remove(trial)
                self.paused[trial] = epoch
                if self.promotable() != trial:
                    return False
                self.paused.pop(trial)
                self.running.append(trial)
        if epoch == EPOCHS:
            self.running.remove(trial)
            self.reached.add(trial)
        return epoch < EPOCHS


SCORES = st.integers(0, 3).map(lambda step: step / 4)  # few, so that many are equal
HAPPENS = st.sampled_from(["trains"] * 12 + ["diverges", "fails", "driver is killed"])


@pytest.mark.slow("runs many searches")
@given(
    budget=st.integers(1, 9),
    factor=st.integers(2, 4),
    workers=st.integers(1, 3),
    constrained=st.booleans(),
    data=st.data(),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_search_goes_as_algorithm_2_has_it(
    budget: int, factor: int, workers: int, constrained: bool, data: st.DataObject
) -> None:
    """Whatever the order of results, with ties, divergence, crashes, infeasible trials and killed drivers."""
    model, constraints = Model(budget, factor), SMALL if constrained else NO_CONSTRAINTS
    with tempfile.TemporaryDirectory() as folder, ExitStack() as opened:
        ledger = reopened(opened, Path(folder), budget, factor, constraints)
        busy: list[int] = []
        while not model.over:
            while len(busy) < workers and (expected := model.ask()) is not None:
                proposal = ledger.propose()
                assert proposal is not None
                assert proposal.trial == expected
                busy.append(expected)
                ledger.start(expected, ledger.epochs_done(expected))
                if ledger.lacks_cost(expected) and breaks(ledger, expected, data):
                    busy.remove(expected)
                    model.running.remove(expected)
                    model.infeasible += 1
            if not busy:
                continue
            trial, happens = data.draw(st.sampled_from(sorted(busy))), data.draw(HAPPENS)
            epoch = ledger.epochs_done(trial) + 1
            match happens:
                case "trains":
                    score = data.draw(SCORES)
                    goes_on = model.report(trial, epoch, score)
                    decision = ledger.epoch(trial, result(epoch, score))
                    assert (decision is Decision.CONTINUE) == goes_on
                    assert decision is not Decision.PAUSE or trial in model.paused
                    busy.remove(trial) if not goes_on else None
                case "diverges" | "fails":
                    if happens == "fails":
                        ledger.fail(trial, "it crashed")
                    else:
                        ledger.epoch(trial, result(epoch, 0.0, diverged=True))
                    busy.remove(trial)
                    model.running.remove(trial)
                case "driver is killed":
                    model.unfinished, busy = sorted(model.running), []
                    ledger = reopened(opened, Path(folder), budget, factor, constraints)
        assert ledger.propose() is None
        assert ledger.is_complete
        outcomes = ends(Path(folder))
        assert {trial for trial, state in outcomes.items() if state == "finished"} == model.reached
        assert {trial for trial, state in outcomes.items() if state == "stopped"} == set(model.paused)
        assert reopened(opened, Path(folder), budget, factor, constraints).is_complete


def reopened(opened: ExitStack, folder: Path, budget: int, factor: int, constraints: Constraints) -> Ledger:
    opened.close()
    ledger = Ledger(
        opened.enter_context(Journal(folder)),
        SPACE,
        RandomSampler(SPACE, 7),
        PromotionAsha(RUNGS, factor, "max"),
        trials=budget,
        epochs=EPOCHS,
        metric="val_accuracy",
        constraints=constraints,
    )
    ledger.begin("test")
    return ledger


def breaks(ledger: Ledger, trial: int, data: st.DataObject) -> bool:
    """Measure a trial's network, and say whether it breaks a constraint: one in six does."""
    latency = data.draw(st.sampled_from([1.0] * 5 + [20.0]))
    cost = NetworkCost(parameters=100, latency_ms=latency, memory_gib=1.0)
    return ledger.cost(trial, cost) is Decision.STOP
