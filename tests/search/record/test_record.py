"""Tests how events become trials: what the fold makes of them, and which it refuses."""

from __future__ import annotations

import pytest

from search.record.chain import JournalError
from search.record.journal import (
    CostEvent,
    DriverStart,
    EndEvent,
    Event,
    ExtendEvent,
    LeftOutEvent,
    RetryEvent,
    StartEvent,
    TrialEvent,
)
from search.record.record import Record
from search.study.objective import Constraints
from tests.search.small_events import begun, epoch, session, settled
from trainable.recipe import Recipe, digest_of
from trainable.recipe.network_cost import NetworkCost

RECIPE = Recipe().with_values({"optimizer.lr": 1e-5})
FIRST = TrialEvent(trial=0, values={"optimizer.lr": 1e-5}, digest=RECIPE.digest(), recipe=RECIPE.tree())
BEGUN = begun(epochs=3, rungs=(1,))
QUEUED = (*BEGUN, FIRST)
STARTED = (*QUEUED, StartEvent(trial=0, attempt=1, epoch=0))
TRAINED = (*STARTED, epoch(0, 1, 0.25, rung=1), epoch(0, 2, 0.5))
ENDED: tuple[Event, ...] = (*TRAINED, EndEvent(trial=0, state="stopped"))

SMALL = Constraints.model_validate({"parameters": {"max": 10.0}})
LIMITED = tuple(
    event.model_copy(update={"constraints": SMALL}) if event is BEGUN[1] else event for event in STARTED
)
COSTS = {
    parameters: CostEvent(trial=0, cost=NetworkCost(parameters=parameters, latency_ms=1.0, memory_gib=1.0))
    for parameters in (10, 11)
}
INFEASIBLE = EndEvent(trial=0, state="infeasible")


def test_a_trial_is_what_its_events_say() -> None:
    events: list[Event] = []
    for number, event in enumerate(ENDED):
        events.append(event.model_copy(update={"time": 10.0 + number}))
    (trial,) = Record(events).trials
    assert (trial.queued, trial.started, trial.attempts) == (12.0, 13.0, 1)
    assert [result.val_accuracy for result in trial.results] == [0.25, 0.5]
    assert trial.scores("val_accuracy") == {1: 0.25, 2: 0.5}
    assert (trial.state, trial.ended, trial.epochs) == ("stopped", True, 2)
    assert trial.whole_recipe == RECIPE
    assert (trial.digest, digest_of(trial.recipe or {})) == (RECIPE.digest(), RECIPE.digest())


def test_an_epoch_that_diverged_has_no_score_and_one_not_measured_neither() -> None:
    (trial,) = Record([*STARTED, epoch(0, 1, 0.25, rung=1), epoch(0, 2, 0.0, diverged=True)]).trials
    assert trial.scores("val_accuracy") == {1: 0.25}
    assert trial.scores("val_top5_accuracy") == {}


@pytest.mark.parametrize(
    ("before", "event", "message"),
    [
        ((), session("resumed"), "expected the start of a search, got search"),
        ((), FIRST, "expected the start of a search, got trial"),
        (BEGUN, session("started"), "expected one start of a search, got another"),
        (BEGUN, settled(), "expected one settled space, got another"),
        (BEGUN, session("finished", name="other"), r"expected search digits \(0a1b\), got other"),
        (BEGUN[:1], FIRST, "expected the settled space, got trial 0"),
        (BEGUN[:1], ExtendEvent(trials=9), "expected the settled space, got an extension"),
        (BEGUN, FIRST.model_copy(update={"trial": 1}), "expected trial 0, got trial 1"),
        (QUEUED, FIRST, "expected trial 1, got trial 0"),
        (
            BEGUN,
            FIRST.model_copy(update={"digest": "0a"}),
            "expected a recipe of digest 0a, got one of",
        ),
        (QUEUED, StartEvent(trial=1, attempt=1, epoch=0), "expected a trial below 1, got 1"),
        (QUEUED, StartEvent(trial=0, attempt=2, epoch=0), "trial 0: expected attempt 1, got 2"),
        (STARTED, StartEvent(trial=0, attempt=1, epoch=0), "trial 0: expected attempt 2, got 1"),
        (STARTED, epoch(0, 2), "trial 0, epoch 2: expected epoch 1"),
        (TRAINED, epoch(0, 2), "trial 0, epoch 2: expected epoch 3"),
        (STARTED, epoch(0, 1), "trial 0, epoch 1: expected rung 1, got None"),
        (TRAINED, epoch(0, 3, rung=3), "trial 0, epoch 3: expected rung None, got 3"),
        ((*TRAINED, epoch(0, 3)), epoch(0, 4), "trial 0, epoch 4: expected 3 epochs at most"),
        (
            (*STARTED, epoch(0, 1, rung=1, diverged=True)),
            epoch(0, 2),
            "expected none after the epoch that diverged",
        ),
        (STARTED, EndEvent(trial=0, state="finished"), "trial 0: finished, and has no score"),
        (STARTED, COSTS[10], "trial 0: expected no cost, got one"),
        ((*LIMITED, COSTS[10]), COSTS[10], "trial 0: expected no cost, got one"),
        ((*LIMITED, COSTS[10]), INFEASIBLE, "trial 0: infeasible, and breaks no constraint"),
        (LIMITED, INFEASIBLE, "trial 0: infeasible, and breaks no constraint"),
        (
            (*LIMITED, COSTS[11]),
            epoch(0, 1, rung=1),
            "trial 0: expected its end, since parameters 11 is 10% above 10; got an epoch",
        ),
        (ENDED, RetryEvent(trial=0, reason=""), "trial 0: expected nothing after its end, got retry"),
        (ENDED, epoch(0, 3), "trial 0: expected nothing after its end, got epoch"),
        (ENDED, EndEvent(trial=0, state="failed"), "trial 0: expected nothing after its end, got end"),
    ],
)
def test_an_event_that_no_search_writes_next_is_refused_with_its_line(
    before: tuple[Event, ...], event: Event, message: str
) -> None:
    record = Record(before, "a/events.jsonl")
    with pytest.raises(JournalError, match=f"^a/events.jsonl: line 8: .*{message}"):
        record.apply(event.model_copy(update={"sequence": 7}))


def test_an_extension_says_the_budget_and_counts_the_hours_anew() -> None:
    at = (0.0, 1.0, 5.0, 100.0, 102.0, 110.0)  # between two drivers nothing is counted
    more: list[Event] = [session("finished"), session("resumed"), ExtendEvent(trials=9)]
    events = [*BEGUN, *more, session("interrupted")]
    timed = [event.model_copy(update={"time": time}) for time, event in zip(at, events, strict=True)]
    before, after = Record(timed[:4]), Record(timed)
    assert (before.extended_to, before.was_finished, before.seconds_of_budget) == (None, True, 5.0)
    assert (after.extended_to, after.was_finished, after.seconds_of_budget) == (9, False, 8.0)
    assert after.seconds(110.0) == 15.0


def test_gpu_hours_are_those_that_trials_hold_and_begin_anew_with_an_extension() -> None:
    started = session("started").model_copy(update={"start": DriverStart(seconds=5.0, slots=2, gpus=0.5)})
    resumed = started.model_copy(update={"state": "resumed"})
    told: list[tuple[float, Event]] = [
        (0.0, started),
        (0.0, settled()),
        (1.0, TrialEvent(trial=0, values={})),
        (10.0, StartEvent(trial=0, attempt=1, epoch=0)),
        (20.0, RetryEvent(trial=0, reason="it crashed")),
        (30.0, StartEvent(trial=0, attempt=2, epoch=0)),
        (40.0, LeftOutEvent(where="a", why="b")),  # the driver is killed after this
        (1000.0, resumed),
        (1010.0, StartEvent(trial=0, attempt=3, epoch=0)),
    ]
    record = Record()
    for at, event in told:
        record.apply(event.model_copy(update={"time": at}))
    assert record.gpu_seconds_of_budget(1030.0) == 0.5 * (10 + 10 + 20)
    record.apply(EndEvent(trial=0, state="stopped", time=1040.0))
    assert record.gpu_seconds_of_budget(2000.0) == 0.5 * (10 + 10 + 30)
    record.apply(ExtendEvent(trials=3, time=1050.0))
    assert record.gpu_seconds_of_budget(2000.0) == 0.0
