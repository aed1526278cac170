"""A switch turns what the system refuses into the end of a search, and leaves other errors alone."""

from __future__ import annotations

import errno
import os

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
