"""Tests the workers' time: attempts in lanes, what cuts them, and seconds under a driver."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from search.record.journal import (
    EndEvent,
    Event,
    ExtendEvent,
    PromotionEvent,
    Repeat,
    RetryEvent,
    StartEvent,
    TrialEvent,
)
from search.reporting.timeline import STALL_SECONDS, Timeline, timeline
from tests.search.small_events import NO_FIELDS, begun, epoch, session


def at(time: float, event: Event) -> Event:
    return event.model_copy(update={"time": time})


def begin(trial: int, time: float, attempt: int = 1, done: int = 0) -> Event:
    return at(time, StartEvent(trial=trial, attempt=attempt, epoch=done))


def end(trial: int, time: float) -> Event:
    return at(time, EndEvent(trial=trial, state="finished"))


def of(*events: Event, now: float | None = None) -> Timeline:
    return timeline([at(100.0, each) for each in begun()] + list(events), now)


def began(found: Timeline) -> list[tuple[float, str]]:
    return [(each.at, each.what) for each in found.later_drivers]


def test_a_driver_that_trains_stopped_trials_again_is_an_audit() -> None:
    repeat = TrialEvent(trial=1, values={}, repeat=Repeat(of=0, purpose="pruning"), **NO_FIELDS)
    found = of(
        begin(0, 110.0),
        end(0, 120.0),
        at(120.0, session("interrupted")),
        at(500.0, session("resumed")),
        begin(0, 501.0),
        at(510.0, session("finished")),
        at(900.0, session("resumed")),
        at(901.0, repeat),
        begin(1, 902.0),
    )
    assert began(found) == [(20.0, "resumed"), (30.0, "audit")]


def test_a_driver_that_has_more_trials_extends_the_search() -> None:
    resumed = at(500.0, session("resumed"))
    found = of(begin(0, 110.0), end(0, 120.0), at(120.0, session("finished")), resumed)
    assert began(found) == [(20.0, "resumed")]
    more = at(500.0, ExtendEvent(trials=9))
    found = of(begin(0, 110.0), end(0, 120.0), at(120.0, session("finished")), resumed, more, begin(1, 501.0))
    assert began(found) == [(20.0, "extended")]


def test_time_without_a_driver_is_not_counted() -> None:
    found = of(
        begin(0, 110.0),
        at(120.0, session("interrupted", "stopped by a signal")),
        at(5000.0, session("resumed")),
        begin(0, 5010.0, attempt=2, done=1),
        end(0, 5030.0),
        at(5031.0, session("finished")),
    )
    assert [(each.start, each.end, each.outcome) for each in found.attempts] == [
        (10.0, 20.0, "cut"),
        (30.0, 50.0, "finished"),
    ]
    assert found.attempts[0].reason == "stopped by a signal"
    assert (began(found), found.seconds) == ([(20.0, "resumed")], 51.0)


def test_a_killed_driver_worked_until_its_last_event() -> None:
    found = of(begin(0, 110.0), at(115.0, epoch(0, 1)), at(900.0, session("resumed")))
    (cut,) = found.attempts
    assert (cut.end, cut.outcome, began(found)) == (15.0, "cut", [(15.0, "resumed")])


def test_an_attempt_that_trains_now_ends_now() -> None:
    (found,) = of(begin(3, 110.0), now=160.0).attempts
    assert (found.trial, found.end, found.outcome) == (3, 60.0, "running")


def test_retries_and_preemptions_are_told_apart() -> None:
    found = of(
        begin(0, 110.0),
        at(120.0, RetryEvent(trial=0, reason="the worker died")),
        begin(0, 121.0, attempt=2),
        at(130.0, RetryEvent(trial=0, reason="its machine was preempted")),
    )
    assert [(each.number, each.outcome) for each in found.attempts] == [(1, "retried"), (2, "preempted")]


def test_a_trial_that_pauses_frees_its_worker_and_one_that_goes_on_at_once_keeps_it() -> None:
    def paused(trial: int, number: int) -> Event:
        return epoch(trial, number, rung=number).model_copy(update={"pauses": True})

    found = of(
        begin(0, 110.0),
        begin(1, 110.0),
        at(120.0, paused(0, 1)),
        at(130.0, paused(1, 1)),
        at(130.0, EndEvent(trial=3, state="stopped")),
        at(130.0, PromotionEvent(trial=1, rung=1)),
        begin(2, 140.0),
        at(150.0, paused(2, 1)),
        at(150.0, PromotionEvent(trial=0, rung=1)),
        begin(0, 151.0, attempt=2, done=1),
        end(1, 160.0),
        end(2, 160.0),
        end(0, 170.0),
    )
    assert [(each.trial, each.lane, each.start, each.end, each.outcome) for each in found.attempts] == [
        (0, 0, 10.0, 20.0, "paused"),
        (1, 1, 10.0, 60.0, "finished"),
        (2, 0, 40.0, 50.0, "paused"),
        (0, 0, 51.0, 70.0, "finished"),
    ]


def test_a_wait_that_no_epoch_explains_is_a_stall() -> None:
    long = STALL_SECONDS + 50.0
    found = of(
        begin(0, 100.0),
        at(110.0, epoch(0, 1, epoch_seconds=10.0)),
        at(120.0 + long, epoch(0, 2, epoch_seconds=10.0)),
        at(220.0 + long, epoch(0, 3, epoch_seconds=100.0)),
        end(0, 221.0 + long),
    )
    assert found.attempts[0].stalls == ((10.0, 10.0 + long),)


@given(st.lists(st.tuples(st.floats(0.0, 50.0), st.floats(0.1, 50.0)), min_size=1, max_size=20))
def test_attempts_at_the_same_time_have_different_lanes(spans: list[tuple[float, float]]) -> None:
    marks = [(100.0 + start, 1, begin(trial, 100.0 + start)) for trial, (start, _) in enumerate(spans)]
    marks += [
        (100.0 + start + length, 0, end(trial, 100.0 + start + length))
        for trial, (start, length) in enumerate(spans)
    ]
    found = of(*(event for _, _, event in sorted(marks, key=lambda each: each[:2]))).attempts
    assert len(found) == len(spans)
    for one, other in combinations(found, 2):
        if one.lane == other.lane:
            assert one.end <= other.start or other.end <= one.start
    most = max(sum(each.start <= one.start < each.end for each in found) for one in found)
    assert max(each.lane for each in found) < most
