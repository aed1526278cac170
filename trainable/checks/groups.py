"""Checks that what belongs together is in one part: the images of a patient, or of a series."""

from __future__ import annotations

from collections.abc import Iterator

from trainable.checks.finding import Finding, passed
from trainable.data import DataSet


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
            "name what belongs together by data.group, such as (.+)_[0-9]+[.]jpg, or by a column group",
        )


def _leak(what: str) -> Finding:
    return Finding(
        "groups",
        "error",
        what,
        "scores reward memory of a group, and a new patient or series will be classified less well",
        "put each group into one part, or let data.group split the images; "
        "data.leaks: allow trains all the same",
    )
