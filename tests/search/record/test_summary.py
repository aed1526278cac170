"""Tests the summary of a search: states, the best trial, what pruning saved, and plain finite JSON."""

import json
import math
import re
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from search.record.chain import JournalError
from search.record.cursor import Cursor
from search.record.journal import (
    CostEvent,
    EndEvent,
    Event,
    PlaceEvent,
    RetryEvent,
    SearchState,
    SettledEvent,
    StartEvent,
    TrialEnd,
    TrialEvent,
)
from search.record.record import Record
from search.record.summary import Summary, summarise
from search.record.trials import HOURS_SPENT
from search.study.objective import Constraints
from tests.epoch_results import epoch_result
from tests.search.small_events import epoch, place, session, settled
from trainable.recipe import Recipe
from trainable.recipe.network_cost import NetworkCost

EPOCHS = 10
EVERY = tuple(range(1, EPOCHS))  # rungs at each epoch but the last


def whole_trial(trial: int, state: TrialEnd, epochs: int, accuracy: float) -> list[Event]:
    """Return a trial that gets a little better with each epoch and reach `accuracy` in its last one."""
    values = [accuracy - 0.01 * (epochs - number) for number in range(1, epochs + 1)]
    trained = [scored(trial, number, value) for number, value in enumerate(values, start=1)]
    return [
        TrialEvent(trial=trial, values={"optimizer.lr": 0.1 * (trial + 1)}, own=trial == 0),
        StartEvent(trial=trial, attempt=1, epoch=0),
        *trained,
        EndEvent(trial=trial, state=state, reason=None if state == "finished" else f"why {state}"),
    ]


def scored(trial: int, number: int, accuracy: float) -> Event:
    """Return an epoch of a search whose rungs are EVERY epoch but the last."""
    rung = number if number in EVERY else None
    return epoch(trial, number, accuracy, rung, val_loss=1.0 - accuracy)


def begun(objective: str = "val_accuracy", rungs: tuple[int, ...] = EVERY) -> list[Event]:
    return [session("started"), settled(EPOCHS, rungs, objective)]


def stamped(events: list[Event], times: list[float] | None = None) -> list[Event]:
    """Return events as a journal would; without `times` they are a second apart."""
    return [
        event.model_copy(
            update={"sequence": number, "time": float(number) if times is None else times[number]}
        )
        for number, event in enumerate(events)
    ]


def summary_of(
    events: list[Event],
    *,
    times: list[float] | None = None,
    now: float = 1000.0,
    locked: bool = False,
    objective: str = "val_accuracy",
) -> Summary:
    record = Record(stamped(events, times))
    return summarise(record, now, objective=objective, epochs=EPOCHS, locked=locked)


EVENTS = [
    *begun(),
    *whole_trial(0, "finished", 10, 0.90),
    *whole_trial(1, "stopped", 2, 0.99),
    *whole_trial(2, "diverged", 1, 0.0),
    *whole_trial(3, "failed", 4, 0.95),
    *whole_trial(4, "finished", 10, 0.92),
    session("finished"),
]


def test_a_finished_search_in_json_has_every_field_that_is_promised() -> None:
    events: list[Event] = [
        *begun(),
        TrialEvent(trial=0, values={"optimizer.kind": "sgd", "optimizer.lr": 0.1}, own=True),
        StartEvent(trial=0, attempt=1, epoch=0),
        PlaceEvent(trial=0, ranks=(place(gpu="0"),)),
        epoch(0, 1, 0.25, 1),
        EndEvent(trial=0, state="stopped", reason="ranks 2 of 2"),
        session("finished", "the budget of hours is spent"),
    ]
    found = summarise(
        Record(stamped(events)),
        99.0,
        objective="val_accuracy",
        epochs=EPOCHS,
        locked=False,
        sent=Cursor(uri="", experiment="", run_ids={0: "abc"}, seconds=3.0),
    )
    metrics = epoch_result(1, 0.25).metrics()
    trial: dict[str, Any] = {
        "id": 0,
        "repeat": None,
        "state": "stopped",
        "own": True,
        "first": None,
        "epochs": 1,
        "metrics": metrics,
        "cost": {},
        "sentence": "",
        "values": {"optimizer.kind": "sgd", "optimizer.lr": 0.1},
        "attempts": 1,
        "places": [
            [
                {
                    "machine": "h1",
                    "address": "10.0.0.1",
                    "node": "node of h1",
                    "process": 7,
                    "gpus": [{"number": "0", "name": "NVIDIA H200"}],
                }
            ]
        ],
        "outcome_reason": "ranks 2 of 2",
        "mlflow_run_id": "abc",
        "history": [{"epoch": 1, "metrics": metrics, "diverged": False, "rung": 1}],
    }
    assert found.json() == {
        "schema": 1,
        "search": "digits",
        "search_id": "0a1b",
        "state": "finished",
        "outcome_reason": "the budget of hours is spent",
        "objective": {"metric": "val_accuracy", "mode": "max"},
        "trials": [trial],
        "repeats": [],
        "finalists": None,
        "best": None,
        "constraints": {},
        "frontier": [],
        "cautions": [],
        "diagnosis": None,
        "verdicts": None,
        "epochs_trained": 1,
        "epochs_again": 0,
        "epochs_if_unpruned": 10,
        "saved": 0.9,
        "wall_seconds": 7.0,
        "turnaround": None,
        "machines": [found.machines[0].model_dump(mode="json")],
        "left_out": [],
        "mlflow_lacks_seconds": 4.0,
    }
    assert found.machines[0].name == "h1 (10.0.0.1)"


def test_the_best_trial_is_the_best_last_epoch_of_finished_trials_only() -> None:
    summary = summary_of(EVENTS)
    assert summary.best == summary.trials[4]
    assert summary.json()["best"] == summary.json()["trials"][4]
    assert summary.json()["best"]["metrics"]["val_accuracy"] == 0.92


def test_the_last_epoch_counts_and_not_the_best_one() -> None:
    events = [*begun(), *whole_trial(0, "finished", 2, 0.5), TrialEvent(trial=1, values={})]
    events += [scored(1, 1, 0.9), scored(1, 2, 0.4), EndEvent(trial=1, state="finished")]
    best = summary_of(events).best
    assert best is not None
    assert best.id == 0


def test_of_equals_the_earliest_is_best() -> None:
    equals = [*whole_trial(0, "finished", 2, 0.5), *whole_trial(1, "finished", 2, 0.5)]
    best = summary_of([*begun(), *equals]).best
    assert best is not None
    assert best.id == 0


def test_a_loss_is_better_when_it_is_lower() -> None:
    best = summary_of([*begun("val_loss"), *EVENTS[2:]], objective="val_loss").best
    assert best is not None
    assert best.metrics["val_loss"] == pytest.approx(1.0 - 0.92)


def test_the_journal_says_in_which_direction_a_function_of_ones_own_is_better() -> None:
    events: list[Event] = [
        session("started"),
        settled(EPOCHS).model_copy(update={"objective": "val_error", "mode": "min"}),
        *(
            each
            for trial, error in enumerate((0.4, 0.2, 0.3))
            for each in (
                TrialEvent(trial=trial, values={}),
                StartEvent(trial=trial, attempt=1, epoch=0),
                epoch(trial, 1, extra_metrics={"val_error": error}),
                EndEvent(trial=trial, state="finished"),
            )
        ),
    ]
    found = summary_of(events, objective="val_error")
    assert found.best is not None
    assert (found.best.id, found.best.metrics["val_error"]) == (1, 0.2)
    assert found.json()["objective"] == {"metric": "val_error", "mode": "min"}


@pytest.mark.parametrize(("objective", "mode"), [("val_error", None), ("val_auroc", "min")])
def test_a_settled_objective_is_known_or_has_its_direction(objective: str, mode: str | None) -> None:
    tree = {**settled(EPOCHS).model_dump(), "objective": objective, "mode": mode}
    with pytest.raises(ValidationError, match=r"expected one of val_accuracy, .*without a mode"):
        SettledEvent.model_validate(tree)


def test_an_epoch_without_the_objective_is_refused() -> None:
    events: list[Event] = [
        session("started"),
        settled(EPOCHS, (), "val_auroc"),
        TrialEvent(trial=0, values={}),
    ]
    with pytest.raises(JournalError, match=r"no metric 'val_auroc' to compare trials by; known: .*val_loss"):
        summary_of([*events, StartEvent(trial=0, attempt=1, epoch=0), epoch(0, 1)], objective="val_auroc")


def test_what_pruning_saved_counts_neither_diverged_nor_failed_trials() -> None:
    summary = summary_of(EVENTS)
    assert summary.epochs_trained == 10 + 2 + 1 + 4 + 10
    assert summary.epochs_if_unpruned == 3 * EPOCHS
    assert summary.saved == 8 / 30


@pytest.mark.parametrize(
    ("rung", "reason", "saved"),
    [(2, HOURS_SPENT, 0.0), (1, HOURS_SPENT, 0.0), (2, "why", 0.8), (1, "why", 0.8)],
    ids=["hours, at a rung", "hours, between rungs", "at a rung", "by a forecast, between rungs"],
)
def test_what_stops_a_trial_decides_whether_it_saved_anything(rung: int, reason: str, saved: float) -> None:
    trained = [epoch(0, number, rung=number if number == rung else None) for number in (1, 2)]
    events = [*begun(rungs=(rung,)), TrialEvent(trial=0, values={}), *trained]
    end = EndEvent(trial=0, state="stopped", reason=reason)
    assert summary_of([*events, end]).saved == pytest.approx(saved)


def test_a_trial_that_still_trains_saved_nothing() -> None:
    trials = [*whole_trial(0, "finished", 10, 0.9), *whole_trial(1, "stopped", 3, 0.5)[:-1]]
    summary = summary_of([*begun(), *trials])
    assert (summary.epochs_if_unpruned, summary.saved) == (20, 0.0)


@pytest.mark.parametrize(
    ("events", "locked", "expected"),
    [
        ([], True, "running"),
        ([], False, "interrupted"),
        ([session("started")], True, "running"),
        ([session("started")], False, "interrupted"),
        ([session("started"), session("interrupted")], False, "interrupted"),
        ([session("started"), session("interrupted")], True, "interrupted"),
        ([session("started"), session("finished")], True, "finished"),
        ([session("started"), session("failed", "all crashed")], False, "failed"),
        ([session("started"), session("interrupted"), session("resumed")], True, "running"),
        ([session("started"), session("interrupted"), session("resumed")], False, "interrupted"),
    ],
)
def test_a_search_runs_only_while_a_driver_holds_its_lock(
    events: list[Event], locked: bool, expected: str
) -> None:
    assert summary_of(events, locked=locked).state == expected


def test_a_trial_is_queued_running_or_paused_until_it_ends() -> None:
    steps: list[tuple[Event, str]] = [
        (TrialEvent(trial=0, values={}), "queued"),
        (StartEvent(trial=0, attempt=1, epoch=0), "running"),
        (scored(0, 1, 0.5), "running"),
        (RetryEvent(trial=0, reason="the worker died"), "paused"),
        (StartEvent(trial=0, attempt=2, epoch=1), "running"),
        (session("interrupted"), "paused"),
        (session("resumed"), "paused"),
        (StartEvent(trial=0, attempt=3, epoch=1), "running"),
        (EndEvent(trial=0, state="failed", reason="out of memory"), "failed"),
    ]
    record = Record(begun())
    for event, expected in steps:
        record.apply(event)
        found = summarise(record, 0.0, objective="val_accuracy", epochs=EPOCHS, locked=True)
        (trial,) = found.trials
        assert (trial.state, trial.ended) == (expected, expected == "failed"), event
    assert (trial.attempts, trial.outcome_reason) == (3, "out of memory")


def test_a_trial_of_a_dead_driver_is_paused() -> None:
    events = [*begun(), *whole_trial(0, "finished", 3, 0.5)[:-1]]
    assert summary_of(events, locked=True).trials[0].state == "running"
    assert summary_of(events, locked=False).trials[0].state == "paused"


@pytest.mark.parametrize(
    ("states", "times", "locked", "now", "expected"),
    [
        (["started", "finished"], [10.0, 25.0], False, 99.0, 15.0),
        (["started"], [10.0], True, 22.0, 12.0),
        (["started", "interrupted", "resumed", "finished"], [10.0, 20.0, 100.0, 103.0], False, 999.0, 13.0),
        (["started", "interrupted", "resumed"], [10.0, 20.0, 100.0], True, 107.0, 17.0),
        (["started", "resumed", "finished"], [10.0, 100.0, 103.0], False, 999.0, 3.0),
    ],
)
def test_wall_seconds_add_up_the_sessions_of_all_drivers(
    states: list[SearchState], times: list[float], locked: bool, now: float, expected: float
) -> None:
    events: list[Event] = [session(state) for state in states]
    assert summary_of(events, times=times, locked=locked, now=now).wall_seconds == expected


def test_a_killed_driver_s_time_counts_up_to_its_last_event() -> None:
    events = [
        *begun(),
        *whole_trial(0, "finished", 1, 0.5),
        session("resumed"),
        session("finished"),
    ]
    times = [10.0, 10.0, 11.0, 12.0, 30.0, 34.0, 100.0, 101.0]
    assert summary_of(events[:6], times=times[:6], now=999.0).wall_seconds == 24.0
    assert summary_of(events, times=times, now=999.0).wall_seconds == 25.0


def test_events_taken_one_by_one_come_to_the_same_as_all_at_once() -> None:
    record = Record()
    for count, event in enumerate(stamped(EVENTS), start=1):
        record.apply(event)
        found = summarise(record, 50.0, objective="val_accuracy", epochs=EPOCHS, locked=True)
        assert found == summary_of(EVENTS[:count], now=50.0, locked=True)


def test_the_json_of_every_stage_of_a_search_holds_only_finite_numbers() -> None:
    def refuse(text: str) -> float:
        raise AssertionError(f"{text} is not finite")

    for count in range(len(EVENTS) + 1):
        text = json.dumps(summary_of(EVENTS[:count], locked=True).json())
        tree = json.loads(text, parse_constant=refuse)
        assert math.isfinite(tree["wall_seconds"])


QUICK = Constraints.model_validate({"latency_ms": {"max": 20.0}})


def constrained(*trials: tuple[TrialEnd, float, float]) -> Summary:
    """Return the summary of trials with an outcome, a latency and an accuracy."""
    events: list[Event] = [
        session("started"),
        settled(EPOCHS, EVERY).model_copy(update={"constraints": QUICK}),
    ]
    for number, (state, latency, accuracy) in enumerate(trials):
        queued, started, *rest = whole_trial(number, state, 0 if state == "infeasible" else 10, accuracy)
        cost = NetworkCost(parameters=100, latency_ms=latency, memory_gib=1.0)
        events += [queued, started, CostEvent(trial=number, cost=cost), *rest]
    return summary_of([*events, session("finished")])


def test_the_frontier_has_the_trials_that_no_other_beats_in_latency_and_objective() -> None:
    summary = constrained(
        ("finished", 8.0, 0.90),
        ("finished", 4.0, 0.80),
        ("finished", 6.0, 0.79),  # slower and worse than trial 1
        ("infeasible", 30.0, 0.0),
        ("finished", 15.0, 0.90),  # slower than trial 0, and as good
        ("stopped", 1.0, 0.99),
        ("finished", 20.0, 0.95),
    )
    assert [trial.id for trial in summary.frontier] == [1, 0, 6]
    assert summary.best is not None
    assert summary.best.id == 6
    assert summary.json()["frontier"] == [1, 0, 6]
    assert summary.json()["constraints"] == {"latency_ms": 20.0}
    assert summary.json()["trials"][3]["cost"] == {"parameters": 100, "latency_ms": 30.0, "memory_gib": 1.0}
    assert summary.epochs_if_unpruned == 6 * EPOCHS
    assert not summary_of(EVENTS).frontier


def test_of_one_network_the_frontier_has_the_best_trial_alone() -> None:
    summary = constrained(("finished", 4.0, 0.80), ("finished", 6.0, 0.90), ("finished", 8.0, 0.95))
    wide = Recipe().with_values({"model.width": 64})
    recipes = [each.tree() for each in (Recipe(), wide, Recipe().with_values({"optimizer.lr": 0.2}))]
    trials = [replace(trial, recipe=tree) for trial, tree in zip(summary.trials, recipes, strict=True)]
    found = replace(summary, trials=tuple(trials))
    assert [trial.id for trial in found.frontier] == [2], "its network took 4 ms in trial 0"


def test_where_nothing_is_feasible_the_nearest_trial_is_named() -> None:
    summary = constrained(("infeasible", 30.0, 0.0), ("infeasible", 25.0, 0.0), ("failed", 1.0, 0.5))
    assert summary.best is None
    assert re.findall(r"\d+", summary.why_none_finished) == ["2", "3", "1", "1"]
    assert summary.why_none_finished.endswith("trial 1: why infeasible")
    assert "constraint" not in summary_of(EVENTS).why_none_finished
