"""Tests that the account of a search's slots adds up, and says what their time was used for."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from search.record.journal import (
    DriverStart,
    EndEvent,
    EpochEvent,
    Event,
    ExtendEvent,
    PromotionEvent,
    Repeat,
    RetryEvent,
    SearchEvent,
    StartEvent,
    TrialEvent,
)
from search.record.record import Record
from search.record.turnaround import IN_WORDS, SlotTime, Turnaround
from tests.epoch_results import epoch_result
from tests.search.small_events import session

At = tuple[float, Event]


def driver(at: float, state: str = "started", slots: int = 1, seconds: float = 0.0, gpus: float = 0.0) -> At:
    start = DriverStart(seconds=seconds, slots=slots, gpus=gpus)
    begun = {"state": state, "start": start}
    return at, session("started").model_copy(update=begun)


def ends(at: float, state: str = "finished") -> At:
    return at, session("started").model_copy(update={"state": state})


def trial(at: float, number: int = 0, **values: Any) -> At:
    return at, TrialEvent(trial=number, values={}, **values)


def starts(at: float, number: int = 0, attempt: int = 1, epoch: int = 0) -> At:
    return at, StartEvent(trial=number, attempt=attempt, epoch=epoch)


def epoch(at: float, number: int = 0, count: int = 1, pauses: bool = False, **measured: float) -> At:
    """An epoch of 8 s, of which 1 s for data and 2 s for scoring, and a checkpoint of 0.5 s."""
    usual = {
        "epoch_seconds": 8.0,
        "data_seconds": 1.0,
        "evaluation_seconds": 2.0,
        "checkpoint_seconds": 0.5,
    }
    result = epoch_result(count, **{**usual, **measured})
    return at, EpochEvent(trial=number, result=result, pauses=pauses, rung=count if pauses else None)


def end(at: float, number: int = 0) -> At:
    return at, EndEvent(trial=number, state="finished")


def account(*events: At, until: float | None = None) -> Turnaround | None:
    """Return the account of these events, and that of the time `until` if a driver is at work then."""
    slots = SlotTime()
    for time, event in events:
        slots.apply(event.model_copy(update={"time": time}))
    found = slots.turnaround(events[-1][0] if until is None else until)
    if found is not None:
        assert sum(each.seconds for each in found.parts) == pytest.approx(found.total_seconds)
    return found


def parts(*events: At, until: float | None = None) -> dict[str, Any]:
    """Return the seconds of the parts that took any time."""
    found = account(*events, until=until)
    assert found is not None
    return {each.name: pytest.approx(each.seconds) for each in found.parts if each.seconds}


def test_a_trials_time_is_told_apart_to_the_second() -> None:
    first = epoch(123.0, starting_seconds=2.5, first_step_extra_seconds=1.0)
    events = [driver(100.0, seconds=7.0), trial(101.0), starts(110.0), first, epoch(133.0, count=2)]
    assert parts(*events, end(133.0), ends(140.0)) == {
        "starting": 7.0 + 10.0 + 2.5 + 1.0,
        "steps": (5.0 - 1.0) + 5.0,
        "data": 1.0 + 1.0,
        "scoring": 2.0 + 2.0,
        "checkpoint": 0.5 + 0.5,
        "idle": 2.0 + 1.5 + 7.0,  # the driver answered late, twice; then no trial was left
    }


def test_slots_without_a_trial_are_idle_once_the_first_trial_has_begun() -> None:
    events = [driver(0.0, slots=3, seconds=1.0), trial(2.0), starts(5.0), epoch(13.5), end(13.5), ends(13.5)]
    assert parts(*events) == {
        "starting": 3 * 6.0, "steps": 5.0, "data": 1.0, "scoring": 2.0, "checkpoint": 0.5, "idle": 2 * 8.5
    }  # fmt: skip


def test_a_process_that_starts_for_a_later_trial_is_counted_as_starting() -> None:
    begun = [driver(0.0, slots=2), trial(1.0), trial(1.0, 1), starts(5.0), starts(7.0, 1)]
    assert parts(*begun)["starting"] == 2 * 5.0 + 2.0


def test_an_epoch_under_way_is_unfinished_while_the_search_runs() -> None:
    begun = [driver(0.0), trial(1.0), starts(5.0)]
    assert parts(*begun, until=30.0) == {"starting": 5.0, "unfinished": 25.0}
    assert parts(driver(0.0, slots=2), until=30.0) == {"starting": 60.0}


def test_time_between_drivers_is_not_counted() -> None:
    killed = [driver(0.0), trial(1.0), starts(2.0), epoch(10.5), epoch(19.0, count=2)]
    again = [driver(1000.0, "resumed", seconds=3.0), starts(1004.0, 0, 2, 2), epoch(1015.5, count=3)]
    found = account(*killed, *again, end(1015.5), ends(1020.0))
    assert found is not None
    assert found.total_seconds == 19.0 + 3.0 + 20.0
    assert found.starting_seconds == 2.0 + 3.0 + 4.0


def test_an_epoch_that_broke_off_is_unfinished_and_its_rest_is_trained_by_the_next_attempt() -> None:
    broken = [driver(0.0), trial(0.0), starts(0.0), ends(6.0, "interrupted")]
    again = [driver(50.0, "resumed"), starts(50.0, 0, 2), epoch(56.5, starting_seconds=1.0), ends(56.5)]
    assert parts(*broken, *again) == {
        "unfinished": 6.0,
        "starting": 1.0,
        "checkpoint": 0.5,
        "scoring": 2.0,
        "data": 3.0 / 6.0 * 1.0,  # 3 s of the epoch's 6 s of training were done by this attempt
        "steps": 3.0 / 6.0 * 5.0,
    }


def test_an_attempt_that_crashed_is_unfinished_and_the_next_one_starts() -> None:
    crashed = [driver(0.0), trial(0.0), starts(0.0), (4.0, RetryEvent(trial=0, reason="lost"))]
    assert parts(*crashed, starts(7.0, 0, 2)) == {"unfinished": 4.0, "starting": 3.0}


def test_an_epoch_that_was_read_from_a_checkpoint_is_part_of_the_start() -> None:
    """Its driver died before its result: what it took is unfinished time of the attempt before."""
    read = epoch_result(1, epoch_seconds=8.0)
    events = [driver(0.0), trial(0.0), starts(0.0), ends(9.0, "interrupted"), driver(20.0, "resumed")]
    again = [starts(20.0, 0, 2, epoch=1), (22.0, EpochEvent(trial=0, result=read))]
    assert parts(*events, *again) == {"unfinished": 9.0, "starting": 2.0}
    trained = epoch(30.5, count=2, starting_seconds=1.9)  # the same start, said with the first that it trains
    assert parts(*events, *again, trained) == {
        "unfinished": 9.0, "starting": 2.0, "steps": 5.0, "data": 1.0, "scoring": 2.0, "checkpoint": 0.5
    }  # fmt: skip


def test_an_epoch_that_the_driver_read_as_it_ended_was_trained_in_that_time() -> None:
    read = epoch_result(1, epoch_seconds=8.0, data_seconds=1.0, evaluation_seconds=2.0)
    events = [driver(0.0), trial(0.0), starts(0.0), (10.0, EpochEvent(trial=0, result=read))]
    assert parts(*events, ends(10.0)) == {"steps": 5.0, "data": 1.0, "scoring": 2.0, "idle": 2.0}


@pytest.mark.parametrize("at_once", [True, False])
def test_a_trial_that_pauses_leaves_its_slot_unless_it_is_promoted_at_once(at_once: bool) -> None:
    paused = [driver(0.0), trial(0.0), starts(0.0), epoch(8.5, pauses=True)]
    between = [] if at_once else [(9.0, ExtendEvent(trials=9))]
    promoted = (8.5 if at_once else 20.0), PromotionEvent(trial=0, rung=1)
    again = [] if at_once else [starts(23.0, attempt=2)]
    found = parts(*paused, *between, promoted, *again, epoch(40.0, count=2))
    assert found["idle"] == (23.0 if at_once else 11.5 + 8.5)
    assert found.get("starting", 0.0) == (0.0 if at_once else 3.0)


def test_the_trials_of_an_audit_wait_for_a_slot_and_take_none() -> None:
    again = Repeat(of=0, purpose="pruning")
    events = [driver(0.0), *(trial(0.0, number, repeat=again) for number in (1, 2, 3)), starts(4.0, 1)]
    found = account(*events, epoch(12.5, 1), end(12.5, 1), starts(13.0, 2))
    assert found is not None
    assert (found.slots, found.starting_seconds) == (1, 4.0 + 0.5)


def test_a_trial_that_waits_for_a_slot_has_none_and_starts_when_one_is_free() -> None:
    """On a cluster one trial always waits, so that an autoscaler sees that more is wanted."""
    first = [driver(0.0, slots=1), trial(0.0), starts(0.0), trial(1.0, 1), epoch(8.5), end(8.5)]
    found = account(*first, starts(10.0, 1), epoch(18.5, 1), end(18.5, 1), ends(18.5))
    assert found is not None
    assert (found.slots, found.total_seconds) == (1, 18.5)
    assert found.starting_seconds == pytest.approx(1.5), "from the end of the first one, not from 1 s"


def test_more_trials_at_once_than_the_driver_knew_of_count_with_their_slots() -> None:
    """Machines may join a cluster."""
    events = [driver(0.0, slots=1), trial(0.0), trial(1.0, 1), starts(1.0), starts(1.0, 1)]
    found = account(*events, until=10.0)
    assert found is not None
    assert (found.slots, found.total_seconds) == (2, 20.0)


def test_a_search_that_an_earlier_version_has_driven_has_no_account() -> None:
    old = session("started")
    assert account((0.0, old)) is None
    assert account((0.0, old), ends(5.0, "interrupted"), driver(9.0, "resumed"), until=20.0) is None
    assert SlotTime().turnaround(1.0) is None


def test_a_damaged_journals_times_make_no_part_negative() -> None:
    events = [driver(100.0), trial(90.0), starts(80.0), epoch(70.0), epoch(60.0, count=2), ends(50.0)]
    slots = SlotTime()
    for time, event in events:
        slots.apply(event.model_copy(update={"time": time}))
    found = slots.turnaround(0.0)
    assert found is not None
    assert all(found.seconds(name) >= 0.0 for name in IN_WORDS)
    assert account(driver(0.0, slots=3), until=1.7e308) is None


def simulated(random: np.random.Generator, slots: int) -> tuple[list[At], dict[str, float], float]:
    """Return the events of a search of one driver, what each part took in truth, and when it ended."""
    truth: dict[str, float] = defaultdict(float)
    proposed: list[tuple[float, list[At]]] = []
    begins = random.uniform(1.0, 3.0, slots)
    truth["starting"] += slots * begins.min() + (begins - begins.min()).sum()
    for begun in begins:
        now, given = begun, 0.0
        for _ in range(3):
            events = [starts(now)]
            for count in (1, 2):
                took = dict(zip(PARTS, random.uniform(0.1, 1.0, len(PARTS)), strict=True))
                took["starting"] *= count == 1
                for name, seconds in took.items():
                    truth[name] += seconds
                now += sum(took.values())
                events.append(_epoch_of(now, count, took))
            events.append(end(now))
            proposed.append((given, events))
            given = now + random.uniform(0.0, 0.5)  # the driver answers
            truth["idle"] += given - now
            now = given + random.uniform(0.0, 0.5)
            truth["starting"] += now - given
        truth["starting"] -= now - given  # of a trial that is none
        truth["idle"] -= given - proposed[-1][1][-1][0]
    last = max(events[-1][0] for _, events in proposed)
    truth["idle"] += sum(last - each for each in _last_of_slots(proposed))
    return list(_numbered(proposed)), truth, last


PARTS = ("starting", "steps", "data", "scoring", "checkpoint")


def _epoch_of(now: float, count: int, took: dict[str, float]) -> At:
    half = took["starting"] / 2.0
    return epoch(
        now,
        count=count,
        epoch_seconds=took["steps"] + took["data"] + took["scoring"] + half,
        data_seconds=took["data"],
        evaluation_seconds=took["scoring"],
        checkpoint_seconds=took["checkpoint"],
        starting_seconds=half,
        first_step_extra_seconds=half,
    )


def _last_of_slots(proposed: Sequence[tuple[float, list[At]]]) -> list[float]:
    return [events[-1][0] for _, events in itertools.islice(proposed, 2, None, 3)]


def _numbered(proposed: Sequence[tuple[float, list[At]]]) -> Iterator[At]:
    """Yield the events by time, with the numbers of trials in the order in which they are proposed."""
    found = []
    for number, (given, events) in enumerate(sorted(proposed, key=lambda each: each[0])):
        found.append(trial(given, number))
        found += [(at, event.model_copy(update={"trial": number})) for at, event in events]
    yield from sorted(found, key=lambda each: each[0])


@pytest.mark.parametrize("seed", range(5))
def test_the_account_is_that_of_a_search_whose_every_second_is_known(seed: int) -> None:
    slots = 1 + seed
    events, truth, last = simulated(np.random.default_rng(seed), slots)
    found = account(driver(0.0, slots=slots), *events, ends(last))
    assert found is not None
    for name in (*PARTS, "idle"):
        assert getattr(found, f"{name}_seconds") == pytest.approx(truth[name]), name


def test_a_record_has_the_account_of_its_events() -> None:
    begun = driver(0.0)[1].model_copy(update={"sequence": 0})
    assert isinstance(begun, SearchEvent)
    assert Record([begun]).turnaround(12.0) == account((0.0, begun), until=12.0)


@pytest.mark.parametrize(
    ("slots", "gpus", "whose", "note"),
    [
        (2, 0.0, "2 trials at once", ""),
        (1, 1.0, "one trial at a time, 1 GPU for it", ""),
        (4, 2.0, "4 trials at once, 2 GPUs each", ""),
        (4, 0.25, "4 trials at once, 0.25 GPU each", "not a second of the GPU"),
    ],
)
def test_the_account_in_words_says_whose_time_it_is(slots: int, gpus: float, whose: str, note: str) -> None:
    events = [driver(0.0, slots=slots, gpus=gpus), trial(1.0), starts(2.0), epoch(10.5), end(10.5)]
    found = account(*events, ends(20.0))
    assert found is not None
    total = {1: "20 s in all", 2: "40 s together", 4: "1 min 20 s together"}
    assert found.whole == f"{whose}, {total[slots]}"
    assert note in found.figures
    assert f"scoring {2.0 / (20.0 * slots):.0%} (2 s), " in found.figures
    assert "broken off" not in found.figures
