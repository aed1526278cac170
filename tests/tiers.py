"""Which tests `make test` runs: the quick ones, and a smoke test of each thing that needs its own process.

`make test-all` runs the others, too: those marked `slow`, with a reason, or `integration`.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Collection
from typing import Any

THREADS = int(os.environ.get("OMP_NUM_THREADS", "1"))
LONGEST_SECONDS = 2.0 * THREADS  # of processor time; waiting threads of torch count, too
# A test fails above so many times that: a core's pace changes, and `slowdown` times it after the test. In two
# runs of all tests one of test_replay.py took at most 1.3 s by this measure, and 2.1 s.
MARGIN = 1.5
NEW_MODULES = 100  # torch's compiler, timm, MLflow, Ray ... : the time is that of their first import
UNTIMED = {"slow", "integration", "gpu", "fuzz"}  # a fuzzed input has a limit of its own
SECONDS_OF_SQUARES = 0.015  # what `slowdown` times, on the quiet machine that LONGEST_SECONDS is meant for


def slowdown() -> float:
    """How many times slower a core is now than that of a quiet machine; at least 1.

    A second of processor time is worth less where two hyper-threads share a core, or on an older machine.
    """
    taken = []
    for _ in range(5):
        began = time.process_time()
        sum(n * n for n in range(200_000))
        taken.append(time.process_time() - began)
    return max(1.0, statistics.median(taken) / SECONDS_OF_SQUARES)


def overtime(seconds: float, new_modules: int, marks: Collection[str]) -> str | None:
    """What is wrong with a test that took so much processor time, its fixtures aside; None if nothing is.

    A test that imports a large package is not judged: in another order, another one imports it.
    """
    if seconds <= LONGEST_SECONDS or UNTIMED.intersection(marks) or new_modules >= NEW_MODULES:
        return None
    quiet_seconds = seconds / slowdown()
    if quiet_seconds <= MARGIN * LONGEST_SECONDS:
        return None
    return (
        f"it took {quiet_seconds:.1f} s of processor time on a quiet machine, and a test may take "
        f"{LONGEST_SECONDS:g}: "
        'make it cheaper, or mark it @pytest.mark.slow("why")'
    )


def fault_of_marks(marks: Collection[tuple[str, tuple[Any, ...]]]) -> str | None:
    """What is wrong with a test's marks, given with their arguments; None if nothing is."""
    names = {name for name, _ in marks}
    for name, arguments in marks:
        match arguments:
            case (str(words),) if words.strip():
                continue
            case _ if name in ("slow", "smoke"):
                return f'expected a mark such as @pytest.mark.{name}("trains a network"), got {arguments}'
    if "smoke" in names and "integration" not in names:
        return "a smoke test is an integration test: mark it so, too"
    return None
