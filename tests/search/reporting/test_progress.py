"""Tests how the best score rose with the work done."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from search.record.journal import EndEvent, Event, ExtendEvent, Repeat, TrialEnd, TrialEvent
from search.reporting.timeline import progress_of
from tests.search.small_events import NO_FIELDS, OBJECTIVE, begun, epoch, session

TRIALS: Sequence[tuple[float, TrialEnd]] = [
    (0.5, "finished"), (0.9, "stopped"), (0.4, "finished"), (0.7, "finished"), (0.7, "finished"),
]  # fmt: skip


def events() -> list[Event]:
    """Return trials of two epochs each, one event every 36 seconds, the first at 0."""
    found: list[Event] = list(begun())
    for trial, (score, state) in enumerate(TRIALS):
        found += [epoch(trial, 1, 0.99), epoch(trial, 2, score), EndEvent(trial=trial, state=state)]
    found.append(session("finished"))
    return [each.model_copy(update={"time": 36.0 * at}) for at, each in enumerate(found)]


def test_only_finished_trials_that_are_better_than_all_before_count() -> None:
    found = progress_of(events(), OBJECTIVE, 1.0)
    assert [(each.trial, each.score, each.epochs, each.trials) for each in found.steps] == [
        (0, 0.5, 2, 1),
        (3, 0.7, 8, 4),
    ]
    assert (found.epochs, found.trials) == (10, 5)


def test_hours_are_those_under_the_driver() -> None:
    found = progress_of(events(), OBJECTIVE, 1.0)
    assert [each.hours for each in found.steps] == pytest.approx([0.04, 0.13])
    assert found.hours == pytest.approx(0.17)


def test_runs_that_train_a_trial_again_are_not_part_of_it() -> None:
    alone = progress_of(events()[:-1], OBJECTIVE, 1.0)
    audit: list[Event] = [
        TrialEvent(trial=5, values={}, repeat=Repeat(of=1, purpose="pruning"), **NO_FIELDS),
        epoch(5, 1, 0.99),
        EndEvent(trial=5, state="finished"),
        session("finished"),
    ]
    later: list[Event] = [each.model_copy(update={"time": 36000.0 + at}) for at, each in enumerate(audit)]
    assert progress_of([*events()[:-1], *later], OBJECTIVE, 1.0) == alone


def test_hours_go_on_where_a_search_is_extended_without_those_of_its_repeats() -> None:
    first = events()[:-1]
    last = first[-1].time
    then: Sequence[tuple[float, Event]] = [
        (0.0, TrialEvent(trial=5, values={}, repeat=Repeat(of=3, purpose="finalist", seed=1), **NO_FIELDS)),
        (3600.0, epoch(5, 1, 0.99)),
        (3600.0, EndEvent(trial=5, state="finished")),
        (3600.0, ExtendEvent(trials=7)),
        (3600.0 + 180.0, epoch(6, 1, 0.95)),
        (3600.0 + 360.0, EndEvent(trial=6, state="finished")),
    ]
    later = [each.model_copy(update={"time": last + after}) for after, each in then]
    found, before = progress_of([*first, *later], OBJECTIVE, 1.0), progress_of(first, OBJECTIVE, 1.0)
    assert found.hours == pytest.approx(before.hours + 0.1)
    assert found.steps[-1].model_dump() == pytest.approx(
        {"trial": 6, "score": 0.95, "epochs": 11, "hours": before.hours + 0.1, "trials": 6}
    )


def test_where_lower_is_better_the_best_falls() -> None:
    assert [each.trial for each in progress_of(events(), OBJECTIVE, -1.0).steps] == [0, 2]
