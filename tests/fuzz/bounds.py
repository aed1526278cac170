"""How many inputs a target gets, and what holds for each: one clear message or none, and soon."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from typing import TypeVar

from trainable.errors import LONGEST_LINE, UserError

# `make test-all` tries 2,000; CONTRIBUTING says how 50,000 are tried
INPUTS = int(os.environ.get("TUNEBOOK_FUZZ", "100"))
SEED = os.environ.get("TUNEBOOK_FUZZ_SEED", "")  # one input alone, which a failure has named
# So much processor time an input may take, in all threads; the clock of a busy machine says nothing
LONGEST_SECONDS = 2.0
LONGEST_MESSAGE = 100 * LONGEST_LINE

Result = TypeVar("Result")


def seeds() -> range:
    """Return the seeds of the inputs, one for each.

    Every machine tries the same 2,000; of many more each run tries others.
    """
    if SEED:
        return range(int(SEED), int(SEED) + 1)
    first = 0 if INPUTS <= 2000 else random.SystemRandom().randrange(2000, 10**9)
    return range(first, first + INPUTS)


class Tally:
    """What became of the inputs that it tries, counted: a target that refuses nearly all tests little."""

    def __init__(self) -> None:
        self.accepted = self.refused = 0
        self.slowest = 0.0
        self.shown: object = None  # the newest input: a failure prints it

    def try_all(self, check_one: Callable[[random.Random], object]) -> None:
        """Check every input. A failure says what the input was, and how to try it alone."""
        for seed in seeds():
            try:
                check_one(random.Random(seed))
            except BaseException as error:
                error.add_note(f"the input was {shown(self.shown)}")
                error.add_note(f"TUNEBOOK_FUZZ_SEED={seed} tries this input alone")
                raise

    def outcome(self, act: Callable[[], Result]) -> Result | None:
        """Return what came of an input, or None where it was refused as a person's mistake is.

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
        """Fail unless both happened, and at least this share of the inputs was accepted."""
        print(f"{self.accepted:,} accepted, {self.refused:,} refused, slowest {self.slowest:.2f} s")
        if not SEED:
            assert self.refused > 0
            assert self.accepted >= least_share * (self.accepted + self.refused)

    def _check_time(self, seconds: float) -> None:
        self.slowest = max(self.slowest, seconds)
        assert seconds < LONGEST_SECONDS, f"{seconds:.1f} s of processor time"


def shown(value: object) -> str:
    """Return what a failing input was, as far as Python can write it."""
    try:
        return ascii(value)
    except RecursionError:
        return "a tree that is nested too deeply to be written"


def check_message(message: str) -> None:
    """Fail unless a message is text that a terminal can show, and no essay."""
    assert message.strip()
    assert len(message) < LONGEST_MESSAGE
    assert all(len(line) < LONGEST_LINE + 100 for line in message.splitlines())
    assert all(line.isprintable() for line in message.split("\n"))
    message.encode()
