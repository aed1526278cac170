"""Tests what is said of each machine of a search: its trials, its rate beside the others, its failures."""

from __future__ import annotations

import pytest

from search.record.journal import (
    EndEvent,
    EpochEvent,
    Event,
    PlaceEvent,
    PromotionEvent,
    RetryEvent,
    StartEvent,
)
from search.record.machines import Machine, MachineAccount
from search.reporting.timeline import DriverClock
from tests.epoch_results import epoch_result
from tests.search.small_events import place, session
from trainable.tune.place import Place

At = tuple[float, Event]
BEGINS, ENDS = session("started"), session("finished")


def attempt(at: float, trial: int, *ranks: Place, number: int = 1) -> list[At]:
    return [
        (at, StartEvent(trial=trial, attempt=number, epoch=0)),
        (at, PlaceEvent(trial=trial, ranks=ranks)),
    ]


def epochs(at: float, trial: int, rate: float, count: int = 3) -> list[At]:
    """Epochs of a second, from a time on."""
    measured = {"images_per_second": rate, "checkpoint_seconds": 0.1}
    results = [epoch_result(number, **measured) for number in range(1, count + 1)]
    return [(at + each.epoch, EpochEvent(trial=trial, result=each)) for each in results]


def end(at: float, trial: int, state: str = "finished") -> At:
    return at, EndEvent.model_validate({"trial": trial, "state": state})


def machines(*events: At, work: str = "resnet", until: float | None = None) -> dict[str, Machine]:
    account, clock = MachineAccount(), DriverClock()
    for time, event in sorted(events, key=lambda each: each[0]):
        timed = event.model_copy(update={"time": time})
        account.apply(timed, clock.read(timed), work)
    last = max(time for time, _ in events)
    found = account.rows(clock.at(last if until is None else until))
    return {each.name.split()[0]: each for each in found}


def test_each_machine_has_its_trials_attempts_and_failures() -> None:
    found = machines(
        (0.0, BEGINS),
        *attempt(1.0, 0, place("h1")),
        (2.0, RetryEvent(trial=0, reason="lost")),
        *attempt(3.0, 0, place("h2"), number=2),
        *attempt(3.0, 1, place("h1")),
        end(9.0, 0),
        end(9.0, 1, "failed"),
        (10.0, ENDS),
    )
    told = {name: (each.trials, each.attempts, each.failed) for name, each in found.items()}
    assert told == {"h1": (2, 2, 2), "h2": (1, 1, 0)}
    assert [each.images_per_second for each in found.values()] == [None, None]


def test_the_rate_is_compared_with_the_same_work_on_other_machines_with_the_same_device() -> None:
    events: list[At] = [(0.0, BEGINS)]
    for trial, (host, gpu, rate) in enumerate(
        [("h1", "0", 1000.0), ("h2", "0", 400.0), ("h3", "0", 1000.0), ("h4", "", 10.0)]
    ):
        events += [*attempt(1.0, trial, place(host, gpu)), *epochs(1.0, trial, rate), end(5.0, trial)]
    found = machines(*events)
    assert {name: each.speed for name, each in found.items()} == {
        "h1": pytest.approx(1000.0 / 700.0),
        "h2": pytest.approx(0.4),
        "h3": pytest.approx(1000.0 / 700.0),
        "h4": None,
    }
    assert not found["h2"].is_slow, "one trial may be slow by itself"
    assert found["h2"].why_slow == (
        "h2 (10.0.0.2) trains at 0.40 of the rate of other machines with NVIDIA H200"
    )
    assert found["h4"].images_per_second == 10.0


def test_a_rate_of_other_work_says_nothing_and_two_epochs_are_too_few() -> None:
    account = MachineAccount()
    for trial, (host, rate) in enumerate([("h1", 1000.0), ("h2", 100.0)]):
        for _, event in [*attempt(1.0, trial, place(host)), *epochs(1.0, trial, rate), end(9.0, trial)]:
            account.apply(event, 0.0, work=host)
    assert [each.speed for each in account.rows(9.0)] == [None, None]
    few: list[At] = [(0.0, BEGINS)]
    for trial, (host, rate) in enumerate([("h1", 1000.0), ("h2", 100.0)]):
        few += [*attempt(1.0, trial, place(host)), *epochs(1.0, trial, rate, count=2), end(9.0, trial)]
    assert machines(*few)["h2"].speed == pytest.approx(0.1)
    assert not machines(*few)["h2"].is_slow


def test_epochs_that_were_read_from_a_checkpoint_say_nothing_of_a_machine() -> None:
    read = epoch_result(1, images_per_second=5.0)
    assert read.checkpoint_seconds is None
    found = machines((0.0, BEGINS), *attempt(1.0, 0, place()), (2.0, EpochEvent(trial=0, result=read)))
    assert found["h1"].images_per_second is None


def test_idle_is_the_share_of_a_machines_places_without_a_trial_and_time_between_drivers_does_not_count() -> (
    None
):
    two = [*attempt(0.0, 0, place()), *attempt(0.0, 1, place())]
    found = machines((0.0, BEGINS), *two, end(10.0, 0), end(5.0, 1), (10.0, ENDS))
    assert found["h1"].idle == pytest.approx(0.25), "5 of 2 x 10 s"
    again = [(1000.0, session("resumed")), *attempt(1000.0, 1, place(), number=2), end(1010.0, 1)]
    later = machines((0.0, BEGINS), *two, end(10.0, 0), (10.0, session("interrupted")), *again)
    assert later["h1"].idle == pytest.approx(0.25), "10 of 2 x 20 s"


def test_a_trial_that_is_promoted_at_once_goes_on_where_it_is_and_one_that_waits_does_not() -> None:
    (pause,) = epochs(0.0, 0, 100.0, 1)
    pauses = pause[0], pause[1].model_copy(update={"pauses": True})
    promoted = 1.0, PromotionEvent(trial=0, rung=1)
    failed = 10.0, RetryEvent(trial=0, reason="the disk is gone")
    began = [(0.0, BEGINS), *attempt(0.0, 0, place()), pauses]
    found = machines(*began, promoted, *epochs(1.0, 0, 200.0, 4), failed)["h1"]
    assert (found.attempts, found.failed, found.idle) == (1, 1, 0.0)
    assert found.images_per_second == 200.0
    other = 1.0, EndEvent(trial=7, state="stopped")  # the ledger ends others in between
    assert machines(*began, other, promoted, failed)["h1"].failed == 1
    later = machines(*began, *attempt(1.0, 1, place()), promoted, failed)["h1"]
    assert later.failed == 0, "another one took its process meanwhile"


def test_a_driver_that_was_killed_ends_its_attempts_and_one_at_work_counts_until_now() -> None:
    night: list[At] = [(8.0, EndEvent(trial=1, state="finished")), (1008.0, session("resumed"))]
    found = machines((0.0, BEGINS), *attempt(0.0, 0, place()), *attempt(4.0, 1, place("h2")), *night)
    assert (found["h1"].attempts, found["h1"].failed) == (1, 0)
    assert (found["h1"].idle, found["h2"].idle) == (0.0, 0.0), "nobody worked in the night"
    assert machines((0.0, BEGINS), *attempt(0.0, 0, place()), until=30.0)["h1"].idle == 0.0


def test_each_machine_of_a_trials_ranks_has_the_trial_once() -> None:
    ranks = place("h1", "0"), place("h1", "1"), place("h2", "0")
    found = machines((0.0, BEGINS), *attempt(1.0, 0, *ranks), *epochs(1.0, 0, 300.0), end(9.0, 0))
    assert {name: (each.trials, each.attempts) for name, each in found.items()} == {
        "h1": (1, 1),
        "h2": (1, 1),
    }
    assert found["h2"].images_per_second == 300.0


def test_a_machine_is_said_in_one_line() -> None:
    slow = {"trials": 3, "attempts": 5, "failed": 2, "images_per_second": 1234.5, "speed": 0.41, "idle": 0.25}
    made = Machine.model_validate({"name": "h2 (10.0.0.2)", "devices": ("no GPU",), **slow, "is_slow": True})
    assert str(made) == (
        "h2 (10.0.0.2): 3 trials, 1,234 images/s, 0.41 of the others' rate, 2 attempts failed, idle 25%"
    )
    assert made.why_slow.endswith("of the rate of other machines with processors alone")
