"""Why a trial's process failed, and whether the trial is tried again.

Crashes and lost machines have budgets of their own.
"""

from __future__ import annotations

import os
import re
import stat
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import assert_never

from ray.tune.experiment import Trial

from trainable.tune.causes import Cause, last_error


@dataclass
class Retries:
    """The failures of each trial since this driver began.

    `crashes` is how often a trial may fail by itself and be tried again, `losses` how often it may lose its
    processes or machine, or have the machine taken back.
    """

    crashes: int
    losses: int
    _counted: Counter[tuple[int, str]] = field(default_factory=Counter, init=False)

    def again(self, trial: int, cause: Cause) -> bool:
        """Count a failure, and return whether the trial is tried again."""
        match cause:
            case "crash" | "disk":  # a full disk interrupts the search; what else it does is the trial's
                return self._count(trial, "crash") <= self.crashes
            case "infrastructure" | "preempted":
                return self._count(trial, "loss") <= self.losses
            case _:
                assert_never(cause)

    def _count(self, trial: int, kind: str) -> int:
        self._counted[trial, kind] += 1
        return self._counted[trial, kind]


LONGEST_REASON = 500  # the most characters of a reason in tables and tags
# what Ray writes before each of a trial's errors
FAILURE = re.compile(r"^Failure # \d+ \(occurred at .*\)\n", re.MULTILINE)


def failure(trial: Trial) -> tuple[str, str]:
    """Return a crashed trial's error, in one line and in full: the exception, or how its process died.

    Ray also pickles the error into a file beside this text. That is never read: on a shared machine another
    person may have written it.
    """
    whole = _own_text(Path(trial.error_file)) if trial.error_file else ""
    newest = FAILURE.split(whole)[-1]
    return last_error(newest)[:LONGEST_REASON] or "the trial's process could not be started", newest


def _own_text(path: Path) -> str:
    """Return the text of a regular file of this user; nothing where there is none."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)  # a FIFO would never be opened
    except OSError:
        return ""
    with os.fdopen(file, encoding="utf-8", errors="replace") as text:
        found = os.fstat(file)
        return text.read() if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() else ""
