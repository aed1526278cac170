"""Which parts of a data set are compared with each other, and what it means if they differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from trainable.checks.finding import CheckName, Finding, passed, unchecked
from trainable.data import Split

T = TypeVar("T")

SURE = 0.001  # classes differ in their shares if a test has a smaller p than this, and by MOVED
# At least so large a share of one part would have to be of other classes to have the shares of the other (the
# total variation distance). It bounds what shares alone do to accuracy: they change it by no more than this,
# times the difference between the best and the worst recall of a class.
MOVED = 0.1
NAMED = 3  # of the classes that differ most


@dataclass(frozen=True)
class PartDifference:
    """Whether two parts differ by more than chance and custom allow, and by what."""

    differ: bool
    what: str


@dataclass(frozen=True)
class PartWords:
    """What it means, and what to do, if a part differs."""

    test: tuple[str, str]
    validation: tuple[str, str]
    both: tuple[str, str]  # validation differs from training as the test part does


def compare_parts(
    check: CheckName,
    parts: Mapping[Split, T],
    join: Callable[[T, T], T],
    compare: Callable[[T, T], PartDifference | None],
    words: PartWords,
) -> Iterator[Finding]:
    """Yield how validation differs from training, and how the test part differs from both; from validation
    alone if that differs from training.

    A difference is a warning, but a validation part of the test's kind is as it should be: that it differs
    from training is a note. `compare` returns None for parts that are too small.
    """
    train, validation = parts["train"], parts["validation"]
    learnt = compare(train, validation)
    apart = learnt is not None and learnt.differ
    if "test" not in parts:
        yield _finding(check, "validation against training", learnt, words.validation)
        return
    seen = validation if apart else join(train, validation)
    tested = compare(seen, parts["test"])
    if learnt is not None and learnt.differ and tested is not None and not tested.differ:
        yield Finding(check, "note", f"validation against training: {learnt.what}", *words.both)
    else:
        yield _finding(check, "validation against training", learnt, words.validation)
    against = "validation" if apart else "training and validation"
    yield _finding(check, f"test against {against}", tested, words.test)


def _finding(check: CheckName, pair: str, found: PartDifference | None, words: tuple[str, str]) -> Finding:
    if found is None:
        return unchecked(check, f"{pair}: too few images, or groups of images, in classes that both have")
    what = f"{pair}: {found.what}"
    return Finding(check, "warning", what, *words) if found.differ else passed(check, what)
