"""Checks that what belongs together is in one part: the images of a patient, or of a series."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from trainable.checks.duplicates import by_fingerprint
from trainable.checks.finding import Finding, passed
from trainable.data import DataSet
from trainable.errors import quoted


def check_groups(data: DataSet) -> Iterator[Finding]:
    """Yields findings about groups in two parts; without groups, about files that are named like series."""
    what = "; ".join(map(str, data.shared))
    if data.grouped:
        yield _leak(what) if data.shared else passed("groups", "no group is in two parts")
    elif not data.shared:
        yield passed("groups", "no groups are named, and files are not named like series")
    else:
        yield Finding(
            "groups",
            "note",
            f"files are named like series, and {what.replace('group', 'series', 1)}",
            "if the images of a series are alike, scores reward memory of the training images",
            f"name what belongs together by data.group: {_tried(data)}",
        )


def _tried(data: DataSet) -> str:
    """Return the expression that finds the series, with what came of trying it."""
    if data.in_series is None:
        return "a column, or an expression whose one capture names the series"
    numbers, images = data.in_series, sum(map(len, data.parts.values()))
    count = len(set(chain.from_iterable(each.tolist() for each in numbers.values())))
    copies = [
        each for each in by_fingerprint(data, full=False)[0].values() if len({one.part for one in each}) > 1
    ]
    remain = sum(len({int(numbers[one.part][one.position]) for one in each}) > 1 for each in copies)
    left = f"; of {len(copies):,} images that are in two parts, it parts {remain:,}" if copies else ""
    return f"{quoted(data.series or '')} makes {count:,} groups of {images:,} images{left}"


def _leak(what: str) -> Finding:
    return Finding(
        "groups",
        "error",
        what,
        "scores reward memory of a group, and a new patient or series will be classified less well",
        "put each group into one part, or let data.group split the images; "
        "data.leaks: allow trains all the same",
    )
