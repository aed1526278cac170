"""Tells the time of events: seconds since 1970 by a clock that never jumps; and times in words."""

from __future__ import annotations

import time
from collections.abc import Callable


def steady_clock(latest: float) -> Callable[[], float]:
    """Return a clock of seconds since 1970 that begins at `latest` or later, and never jumps.

    The machine's clock may be set while a search runs. By this one no run ends before it starts, and no jump
    is counted as time that was worked. It counts on while the machine sleeps.
    """
    began, running = max(time.time(), latest), awake_or_asleep()
    return lambda: began + awake_or_asleep() - running


def awake_or_asleep() -> float:
    """Return seconds that count also while the machine sleeps, where the system can count them."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def duration(seconds: float) -> str:
    """Return a time in words, such as `1 h 5 min`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def time_limit(hours: float) -> str:
    """Return a limit of time in words, such as `2 hours`, `90 min` or `30 s`."""
    if hours == 1.0:
        return "1 hour"
    if hours == round(hours, 1) and hours > 1.0:
        return f"{hours:g} hours"
    minutes = hours * 60.0
    return f"{minutes:.3g} min" if minutes >= 1.0 else f"{minutes * 60.0:.3g} s"
