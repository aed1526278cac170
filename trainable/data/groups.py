"""Finds what stays in one part, such as a patient or a series, and what is in two."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from itertools import chain, combinations
from typing import get_args

import numpy as np

from trainable.array_types import Integers
from trainable.data.parts import Members
from trainable.data.source import Collection, FileSource, Source
from trainable.errors import DataError, listed, quoted
from trainable.recipe.data import Data, Split

PART_FOLDERS = frozenset({"train", "val", "valid", "validation", "test"})
SHOWN = 3  # so many groups or images are named

FOLDER_ABOVE = r"([^/]+)/[^/]+/[^/]+$"  # a patient of patient/visit/image
FOLDER = r"([^/]+)/[^/]+$"  # the folder of an image, below that of its class
BEFORE_NUMBER = r"(?:^|/)([^/]+)[ _.-][A-Za-z]*[0-9]+[.][A-Za-z0-9]+$"  # IMG_01 of IMG_01_003.png
BEHIND_NUMBER = r"(?:^|/)[0-9]+[ _.-]([^/]+)[.][A-Za-z0-9]+$"  # clip7 of 003_clip7.png
# A number that a date begins with counts no images: 2024-01-10_003.png, 20240110_003.png, 10.01.2024_003.png
DATED = re.compile(
    r"(?:^|/)(?:(?:19|20)[0-9]{2}(?:[0-9]{4})?|[0-9]{1,2}([._-])[0-9]{1,2}\1(?:19|20)[0-9]{2})(?![0-9])[^/]*$"
)
# These are tried to find series, larger ones before smaller; `data.group` takes them as they are
EXPRESSIONS = (FOLDER_ABOVE, FOLDER, BEFORE_NUMBER, BEHIND_NUMBER)
# What a capture of this name finds is of its class alone: s1 of cats is another group than s1 of dogs
IN_CLASS = "in_class"

# Whether equal names in two classes are one series, where nobody has said: only if each class counts its own
# series from 0 or 1 on (s1, s2, s3 in cats and in dogs) are they several. Other names (a place, a date,
# numbers with gaps, as where a class has some of the patients) say what it is, and it is the same in all
# classes; so do numbers of people. To join two series makes a split coarser, to part a patient would leak:
# in doubt, join.
NUMBERED = re.compile(r"(.*?)([0-9]+)")
PEOPLE = re.compile(r"(p|pat|patient|sub|subj|subject|case|person|id)[ _.-]*[0-9]+", re.IGNORECASE)
LEAST_PEOPLE = 3  # one for each part: few may be in all of many classes, as where each makes all gestures
FIRST_NUMBERS = (0, 1)
WITHOUT_GAPS = 0.9  # a class that lost some of its series still counts them

# Series have so many images on average, or more: one that makes each image a group of its own keeps nothing
# together
IMAGES_A_SERIES = 2

# Series that are no classes are more than so many a class: in ImageNet each class is one such series
SERIES_A_CLASS = 2


@dataclass(frozen=True)
class SharedGroups:
    """Which groups are in two parts."""

    first: Split
    second: Split
    groups: int
    examples: tuple[str, ...]
    images: int  # so many images of the second part are in these groups

    def __str__(self) -> str:
        return self.called("group", "groups")

    def called(self, one: str, many: str) -> str:
        """Return in words which groups these are, under another name."""
        count = f"1 {one} is" if self.groups == 1 else f"{self.groups:,} {many} are"
        more = self.groups - len(self.examples)
        named = ", ".join(self.examples) + (f" and {more:,} more" if more else "")
        return (
            f"{count} in {self.first} and {self.second} ({named}), with {self.images:,} {self.second} images"
        )


def with_groups(collection: Collection, spec: Data) -> Collection:
    """Return the collection with the groups that `data.group` finds in its images' paths, unless its format
    has found them already. Raises DataError."""
    if spec.group is None or collection.groups is not None:
        return collection
    if not all(isinstance(source, FileSource) for source in collection.parts.values()):
        raise no_files(collection.path, collection.format)
    pattern = capture_in(spec.group)
    paths = {
        part: _paths_in_part(source, nested=collection.format == "folder" and _has_part_folders(collection))
        for part, source in collection.parts.items()
    }
    classes = collection.classes
    found = {
        part: captured(
            pattern,
            each,
            classes,
            collection.path,
            [classes[label] for label in collection.parts[part].labels],
        )
        for part, each in paths.items()
    }
    return replace(collection, groups=found)


def no_files(path: str, format: str) -> DataError:
    """Return the error of a data set whose images have no paths, in which groups could be found."""
    return DataError(
        f"data.group: {path} (format {format}) names no files; groups need a folder of images, a manifest, "
        "or a folder saved by Hugging Face datasets; in Python, give parts that are split already, "
        "from_arrays(train, validation, test)"
    )


def _has_part_folders(collection: Collection) -> bool:
    """Return whether class folders lie in folders of parts: a path has its class first, or second."""
    source, classes = collection.parts["train"], set(collection.classes)
    assert isinstance(source, FileSource)
    return not collection.whole or source.paths[0].split("/")[0] not in classes


def _paths_in_part(source: Source, nested: bool) -> list[str]:
    """Return the images' paths from their class folder on: a part's folder does not belong to a group's
    name."""
    assert isinstance(source, FileSource)
    return [path.partition("/")[2] if nested else path for path in source.paths]


def capture_in(text: str) -> re.Pattern[str]:
    """Return a regular expression with one capture. Raises DataError."""
    try:
        pattern = re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise DataError(f"data.group: {quoted(text)} is no regular expression: {error}") from None
    if pattern.groups != 1:
        raise DataError(
            f"data.group: expected a regular expression with one capture, such as (.+)_[0-9]+[.]jpg, got "
            f"{quoted(text)}, which has {pattern.groups}"
        )
    return pattern


def captured(
    pattern: re.Pattern[str],
    paths: Sequence[str],
    classes: Iterable[str],
    where: str,
    labels: Sequence[str] | None = None,
) -> tuple[str, ...]:
    """Return what the capture has in each path, without folders of parts and classes before it: a patient
    may have images of several classes. A capture called IN_CLASS is of the image's class, `labels`, alone.

    Raises DataError for paths in which nothing is captured, and for IN_CLASS where images have no labels.
    """
    if IN_CLASS in pattern.groupindex and labels is None:
        raise DataError(
            f"data.group {quoted(pattern.pattern)}: a capture called {IN_CLASS} is of the image's class, and "
            "images with masks have none; write it without the name"
        )
    found = [pattern.search(path) for path in paths]
    odd = [path for path, match in zip(paths, found, strict=True) if match is None or not match[1]]
    if odd:
        raise DataError(
            f"{where}: data.group {quoted(pattern.pattern)} finds no group in {len(odd):,} of {len(paths):,} "
            f"paths: {listed(odd, SHOWN)}"
        )
    folders = PART_FOLDERS | set(classes)
    names = tuple(_without_folders(match, folders) for match in found if match is not None)
    return _in_class(names, labels) if IN_CLASS in pattern.groupindex and labels is not None else names


def _without_folders(match: re.Match[str], folders: AbstractSet[str]) -> str:
    """Return the captured text, without these folders where the capture begins with the path."""
    text = match[1]
    while match.start(1) == 0 and "/" in text and text.partition("/")[0] in folders:
        text = text.partition("/")[2]
    return text


def groups_by_part(members: Members, groups: Mapping[Split, Sequence[str]]) -> dict[Split, tuple[str, ...]]:
    """Return the group of each image of each part."""
    # A part that was split off is taken from the training images, and so are its groups.
    return {
        part: tuple((groups[part] if part in groups else groups["train"])[each] for each in indices.tolist())
        for part, (_, indices) in members.items()
    }


def numbered(groups: Mapping[Split, Sequence[str]]) -> dict[Split, Integers]:
    """Return the groups of each part's images as numbers [n], the same for a group in all parts."""
    numbers = {
        name: number for number, name in enumerate(dict.fromkeys(chain.from_iterable(groups.values())))
    }
    return {part: np.array([numbers[name] for name in names], np.int64) for part, names in groups.items()}


def shared_groups(groups: Mapping[Split, Sequence[str]]) -> tuple[SharedGroups, ...]:
    """Return the groups that two parts have, for each pair of parts that has any."""
    found = {part: Counter(names) for part, names in groups.items()}
    return tuple(
        SharedGroups(
            first, second, len(both), tuple(sorted(both)[:SHOWN]), sum(found[second][each] for each in both)
        )
        for first, second in combinations([part for part in get_args(Split) if part in found], 2)
        if (both := found[first].keys() & found[second].keys())
    )


@dataclass(frozen=True)
class Series:
    """What seem to be series of images, by an expression for `data.group` that fits all paths."""

    expression: str
    groups: Mapping[Split, Integers]  # the series of each part's images, as numbers [n]
    shared: tuple[SharedGroups, ...]
    drawn: tuple[Split, ...]  # training, and the parts that are split off from it: none of the data's own
    # The series if equal names in several classes are one series, where they are several here
    joined: Series | None = None
    # The series by what stands behind a name's first number, which may count images and not series
    behind_number: Series | None = None

    @property
    def count(self) -> int:
        return len(set(chain.from_iterable(each.tolist() for each in self.groups.values())))


def series_of(members: Members, classes: Sequence[str], *, labelled: bool = True) -> Series | None:
    """Return by the first of EXPRESSIONS that images are in series of several, which are no classes; unless
    images are `labelled`, as those with masks are not, equal names are one series."""
    paths = {
        part: [selection.source.name(index) for index in selection.indices.tolist()]
        for part, selection in members.items()
    }
    drawn = tuple(part for part, each in members.items() if each.source is members["train"].source)
    labels = {part: [classes[each] for each in selection.labels] for part, selection in members.items()}
    images = sum(map(len, paths.values()))

    def found_by(expression: str) -> Series | None:
        pattern = re.compile(expression)
        found = {part: tuple(_captures(pattern, each)) for part, each in paths.items()}
        if sum(map(len, found.values())) < images or (labelled and _are_of_classes(found, labels)):
            return None
        series = _series(expression, found, drawn)
        if labelled and expression in (FOLDER_ABOVE, FOLDER) and _are_counted_anew(found, labels):
            own = {part: _in_class(names, labels[part]) for part, names in found.items()}
            in_class = expression.replace("(", f"(?P<{IN_CLASS}>", 1)
            series = replace(_series(in_class, own, drawn), joined=series)
        people = all(map(PEOPLE.fullmatch, set(chain.from_iterable(found.values()))))
        few = LEAST_PEOPLE if people else SERIES_A_CLASS * len(classes) + 1
        return series if few <= series.count <= images // IMAGES_A_SERIES else None

    for expression in EXPRESSIONS:
        if (series := found_by(expression)) is not None:
            dated = all(map(DATED.search, chain.from_iterable(paths.values())))
            if expression == BEFORE_NUMBER and not dated:
                series = replace(series, behind_number=found_by(BEHIND_NUMBER))
            return series
    return None


def _are_of_classes(found: Mapping[Split, Sequence[str]], labels: Mapping[Split, Sequence[str]]) -> bool:
    """Return whether what is found are the classes themselves, as where each class is a person, or in places
    the folder of the class, as where some classes have folders of kinds."""
    pairs = {pair for part, names in found.items() for pair in zip(names, labels[part], strict=True)}
    are_classes = len(pairs) == len({name for name, _ in pairs}) == len({label for _, label in pairs})
    return are_classes or any(name == label for name, label in pairs)


def _series(expression: str, names: Mapping[Split, Sequence[str]], drawn: tuple[Split, ...]) -> Series:
    return Series(expression, numbered(names), shared_groups(names), drawn)


def _in_class(names: Sequence[str], labels: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{label}/{name}" for name, label in zip(names, labels, strict=True))


def _are_counted_anew(found: Mapping[Split, Sequence[str]], labels: Mapping[Split, Sequence[str]]) -> bool:
    """Return whether equal names in several classes are several series, by what the names are."""
    of_class = dict[str, set[str]]()
    for part, names in found.items():
        for name, label in zip(names, labels[part], strict=True):
            of_class.setdefault(label, set()).add(name)
    classes_of = Counter(chain.from_iterable(of_class.values()))
    if max(classes_of.values(), default=0) < 2 or any(map(PEOPLE.fullmatch, classes_of)):
        return False
    return 2 * sum(map(_are_counted, of_class.values())) > len(of_class)


def _are_counted(names: Iterable[str]) -> bool:
    """Return whether names differ in a number alone, which counts from 0 or 1 on."""
    matches = [NUMBERED.fullmatch(name) for name in names]
    numbers = sorted(int(match[2]) for match in matches if match is not None)
    if len(numbers) < len(matches) or len({match[1] for match in matches if match is not None}) > 1:
        return False
    return numbers[0] in FIRST_NUMBERS and len(numbers) >= WITHOUT_GAPS * (numbers[-1] - numbers[0] + 1)


def _captures(pattern: re.Pattern[str], paths: Iterable[str]) -> Iterator[str]:
    """Yield what is captured in each path, up to the first path in which nothing is."""
    for path in paths:
        if (match := pattern.search(path)) is None:
            return
        yield match[1]
