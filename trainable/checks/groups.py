"""Checks that what belongs together is in one part: the images of a patient, or of a series."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trainable.array_types import Integers
from trainable.checks.duplicates import Fingerprints
from trainable.checks.finding import Finding, passed
from trainable.checks.near_duplicates import SAME, descriptors
from trainable.checks.subject import TaskChecks
from trainable.data import DataSet
from trainable.data.groups import Series
from trainable.data.measure import some
from trainable.errors import DataError, quoted
from trainable.recipe.data import Data

# So much is compared to find whether series of equal names in several classes are one
SERIES_LOOKED_AT, IMAGES_OF_EACH = 30, 20


def check_groups(compared: Fingerprints, checks: TaskChecks, spec: Data | None = None) -> Iterator[Finding]:
    """Yield findings about groups in two parts; without groups, about files that are named like series.

    `spec` is how the images were split.
    """
    data = compared.data
    if data.grouped:
        what = "; ".join(map(str, data.shared))
        yield _leak(what) if data.shared else passed("groups", "no group is in two parts")
        return
    series = data.in_series
    if series is not None and series.joined is not None and _are_one(data, series.joined):
        series = series.joined
    if series is None or not series.shared:
        yield passed("groups", "no groups are named, and files are not named like series")
        return
    what = "; ".join(each.called("series", "series") for each in series.shared)
    yield Finding(
        "groups",
        "note",
        f"files are named like series, and {what}",
        "if the images of a series are alike, scores reward memory of the training images",
        "name what belongs together by data.group: " + _tried(series, compared, checks, spec or Data()),
    )


def _are_one(data: DataSet, joined: Series) -> bool:
    """Return whether series that are counted in each class, and have equal names in several, are one: most
    classes have most of the names, and what has one name in two classes is nearly the same there, as where
    frames of one film were put into classes."""
    numbers, labels = joined.groups["train"], data.train.labels
    pairs = np.unique(np.stack([numbers, labels]), axis=1)
    names, counts = np.unique(pairs[0], return_counts=True)
    if 2 * len(pairs[0]) <= len(names) * len(np.unique(labels)):
        return False
    several = names[counts > 1]
    chosen = [
        _some_of_each_class(numbers, labels, name) for name in several[some(len(several), SERIES_LOOKED_AT)]
    ]
    positions = {part: np.zeros(0, np.int64) for part in data.parts} | {"train": np.concatenate(chosen)}
    vectors, start, alike = descriptors(data, positions)["train"].numpy(), 0, 0
    for each in chosen:
        own = vectors[start : start + len(each)]
        start += len(each)
        across = labels[each][:, None] != labels[each][None]
        alike += bool((own @ own.T)[across].max() >= SAME)
    return 2 * alike > len(chosen)


def _some_of_each_class(numbers: Integers, labels: Integers, name: int) -> Integers:
    """Return positions of images of a series, of each class that has some."""
    members = np.flatnonzero(numbers == name)
    of_class = [members[labels[members] == label] for label in np.unique(labels[members])]
    each = max(1, IMAGES_OF_EACH // len(of_class))
    return np.concatenate([found[some(len(found), each)] for found in of_class])


def _tried(series: Series, compared: Fingerprints, checks: TaskChecks, spec: Data) -> str:
    """Return the expression that finds the series, and each other reading, with what came of trying it."""
    tried = _outcome(series, compared, checks, spec)
    for reading, other in (
        ("Equal names in two classes are two series there; if they are one", series.joined),
        ("If the number that names begin with counts the images of a series", series.behind_number),
    ):
        if other is not None:
            tried += f". {reading}, {_outcome(other, compared, checks, spec)}"
    return tried


def _outcome(series: Series, compared: Fingerprints, checks: TaskChecks, spec: Data) -> str:
    """Return what comes of these series as groups: their number, the copies that remain, and a refusal."""
    data = compared.data
    images, copies, remain = sum(map(len, data.parts.values())), 0, 0
    for group in compared.equal[0].values():  # of equal images, in the order of the parts
        others = sum(one.part != group[0].part for one in group)
        several = len({int(series.groups[one.part][one.position]) for one in group}) > 1
        copies, remain = copies + others, remain + others * several
    left = f"; {remain:,} of the {copies:,} copies between parts could remain" if copies else ""
    made = f"{quoted(series.expression)} makes {series.count:,} groups of {images:,} images"
    return f"{made}{left}{_refusal(data, series, checks, spec)}"


def _refusal(data: DataSet, series: Series, checks: TaskChecks, spec: Data) -> str:
    """Return why these series would be refused as groups, in words; an empty text if they would not."""
    given = [each for each in series.shared if not {each.first, each.second} <= {*series.drawn}]
    if given:
        what = "; ".join(each.called("series", "series") for each in given)
        return f". As the parts are, that is refused: {what}; put each series into one part first"
    if spec.train_limit is not None:  # the images that are split are not at hand
        return ""
    try:
        checks.check_split(data, {part: series.groups[part] for part in series.drawn}, spec)
    except DataError as error:
        return f". As the images are, that is refused: {error}"
    return ""


def _leak(what: str) -> Finding:
    return Finding(
        "groups",
        "error",
        what,
        "scores reward memory of a group, and a new patient or series will be classified less well",
        "put each group into one part, or let data.group split the images; "
        "data.leaks: allow trains all the same",
    )
