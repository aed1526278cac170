"""A switch turns what the system refuses into the end of a search, and leaves other errors alone."""

from __future__ import annotations

import errno
import os
import signal
import time

import pytest

from search.running.switch import StopSwitch


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (
            OSError(errno.EDQUOT, os.strerror(errno.EDQUOT), "/s/events.jsonl"),
            "the search cannot be written to the disk: Disk quota exceeded: /s/events.jsonl",
        ),
        (ConnectionError("the head has gone"), "ConnectionError: the head has gone"),
    ],
)
def test_what_the_system_refuses_stops_the_search_and_the_first_fault_counts(
    error: OSError, fault: str
) -> None:
    switch = StopSwitch()
    assert not switch.stops
    with switch.stopped_by_disk():
        raise error
    switch.break_off("what follows from it")
    assert (switch.stops, switch.interrupted, switch.fault) == (True, False, fault)


def test_an_error_of_the_program_passes() -> None:
    switch = StopSwitch()
    with pytest.raises(ValueError, match="wrong"), switch.stopped_by_disk():
        raise ValueError("wrong")
    assert not switch.stops


def test_a_terminal_that_closes_ends_a_search_cleanly_though_it_says_so_twice() -> None:
    switch = StopSwitch()
    with switch.listening():
        signal.raise_signal(signal.SIGHUP)
        signal.raise_signal(signal.SIGHUP)
    assert (switch.stops, switch.signals[0]) == (True, signal.SIGHUP)


def test_the_sigterm_that_follows_a_closed_terminal_lets_trials_be_saved() -> None:
    with StopSwitch().listening():
        signal.raise_signal(signal.SIGHUP)
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (signal.SIGINT, signal.SIGINT),
        (signal.SIGINT, signal.SIGTERM),
        (signal.SIGTERM, signal.SIGINT),
        (signal.SIGTERM, signal.SIGTERM),
        (signal.SIGHUP, signal.SIGINT),
    ],
)
def test_a_second_ctrl_c_or_sigterm_interrupts_at_once(first: int, second: int) -> None:
    with StopSwitch().listening():
        signal.raise_signal(first)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(second)


def test_a_search_that_was_started_with_nohup_outlives_its_terminal() -> None:
    switch, before = StopSwitch(), signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with switch.listening():
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert not switch.stops


def test_a_switch_is_out_of_time_past_its_deadline_only() -> None:
    assert StopSwitch(deadline=time.monotonic() - 1).out_of_time
    assert not StopSwitch(deadline=time.monotonic() + 60).out_of_time
    assert not StopSwitch(deadline=None).out_of_time
