"""Says how many inputs a target gets, and what holds for each: one clear message or none, and soon."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TypeVar

from hypothesis import HealthCheck, Phase, settings

from trainable.errors import LONGEST_LINE, UserError

INPUTS = int(os.environ.get("TUNEBOOK_FUZZ", "2000"))
"""CONTRIBUTING says how 50,000 are tried."""
LONGEST_SECONDS = 2.0
"""So much processor time an input may take, in all threads; the clock of a busy machine says nothing."""
LONGEST_MESSAGE = 100 * LONGEST_LINE

Result = TypeVar("Result")

fuzz = settings(
    max_examples=INPUTS,
    deadline=None,
    database=None,
    derandomize=INPUTS <= 2000,  # every machine tries the same ones; of many more each run tries others
    phases=(Phase.generate, Phase.shrink),
    suppress_health_check=list(HealthCheck),
)


class Tally:
    """Counts what became of the inputs: a target that refuses nearly all of them tests nothing more."""

    def __init__(self) -> None:
        self.accepted = self.refused = 0
        self.slowest = 0.0

    def outcome(self, act: Callable[[], Result]) -> Result | None:
        """Returns what came of an input, or None where it was refused as a person's mistake is.

        Any other error passes, and so does an input that takes too long.
        """
        began = time.process_time()
        try:
            result = act()
        except UserError as error:
            check_message(str(error))
            self.refused += 1
            return None
        finally:
            self._check_time(time.process_time() - began)
        self.accepted += 1
        return result

    def check(self, least_share: float) -> None:
        """Fails unless both happened, and at least this share of the inputs was accepted."""
        print(f"{self.accepted:,} accepted, {self.refused:,} refused, slowest {self.slowest:.2f} s")
        assert self.refused > 0
        assert self.accepted >= least_share * (self.accepted + self.refused)

    def _check_time(self, seconds: float) -> None:
        self.slowest = max(self.slowest, seconds)
        assert seconds < LONGEST_SECONDS, f"{seconds:.1f} s of processor time"


def check_message(message: str) -> None:
    """Fails unless a message is text that a terminal can show, and no essay."""
    assert message.strip()
    assert len(message) < LONGEST_MESSAGE
    assert all(len(line) < LONGEST_LINE + 100 for line in message.splitlines())
    assert all(line.isprintable() for line in message.split("\n"))
    message.encode()
