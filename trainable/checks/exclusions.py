"""Lists the images that are also, or nearly, in another part, so that they can be left out."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from trainable.array_types import Integers
from trainable.checks.duplicates import by_fingerprint
from trainable.checks.near_duplicates import BLOCK, SAME, descriptors, most_compared
from trainable.checks.sampling import NamedImage, chosen_positions, extent_of
from trainable.data import DataSet, Split
from trainable.data.excluded import IMAGE, PART, names_in_list
from trainable.data.parts import Members
from trainable.recipe.data import SEPARATORS
from trainable.recipe.yamlfile import write_whole

# Of two copies that of the part named first stays: scores stay those of the same images, and the training
# part has the most images to lose
KEPT_FIRST: tuple[Split, ...] = ("test", "validation", "train")
At = tuple[Split, int]  # a part, and a position in it
Why = Literal["equal", "nearly the same"]
ListedNames = Mapping[Split, Sequence[str]]  # what the list calls each image of the data's own parts


class Exclusion(NamedTuple):
    """One image that is to be left out, and the copy of it that stays."""

    part: Split
    image: str
    why: Why
    stays_part: Split
    stays: str


class Exclusions(NamedTuple):
    """The images to leave out, and in words how many of the set's images were compared to find them."""

    rows: list[Exclusion]
    compared: dict[Why, str]

    @property
    def equal(self) -> int:
        return sum(each.why == "equal" for each in self.rows)


def exclusions(data: DataSet, members: Members, *, full: bool = False) -> Exclusions:
    """Find the images to leave out, so that no image is in two parts, or nearly; `members` are the images as
    they are stored. Of a large set a sample is compared, unless `full`.

    Of two copies in parts that the data define, that of test stays before that of validation, and this before
    that of training; copies within such a part stay. Parts that are split here are drawn anew from what is
    left, so of copies within what is split only one stays, too.
    """
    sources = {_stored_part(members, part): each.source for part, each in members.items()}
    names = {part: names_in_list(source) for part, source in sources.items()}
    images, among = by_fingerprint(data, full)
    equal = list(_equal(members, images.values()))
    chosen = chosen_positions(data, None if full else most_compared(data))
    near = list(_near(data, members, {one for one, _ in equal}, chosen))
    rows = [
        *(_exclusion(members, names, one, stays, "equal") for one, stays in equal),
        *(_exclusion(members, names, one, stays, "nearly the same") for one, stays in near),
    ]
    return Exclusions(rows, {"equal": among, "nearly the same": extent_of(data, chosen)})


def write_exclusions(found: Iterable[Exclusion], path: Path) -> None:
    """Write the file that `data.exclude` names, whole or not at all. Raises OSError."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=SEPARATORS[path.suffix.lower()])
    writer.writerow([PART, IMAGE, "why", "stays_part", "stays"])
    writer.writerows(found)
    write_whole(path, text.getvalue().encode("utf-8", "surrogateescape"))  # names of files need not be UTF-8


def _exclusion(members: Members, names: ListedNames, one: At, stays: At, why: Why) -> Exclusion:
    return Exclusion(*_stored(members, names, one), why, *_stored(members, names, stays))


def _stored(members: Members, names: ListedNames, at: At) -> tuple[Split, str]:
    """Return the part in which the data have an image, and its name there."""
    part = _stored_part(members, at[0])
    return part, names[part][int(members[at[0]].indices[at[1]])]


def _stored_part(members: Members, part: Split) -> Split:
    """Return the part that the data have, of which this one may be split off."""
    return "train" if members[part].source is members["train"].source else part


def _are_apart(members: Members, first: Split, second: Split) -> bool:
    """Return whether copies in these parts are copies in two parts, now or after another split."""
    return first != second or _is_split(members, first)


def _is_split(members: Members, part: Split) -> bool:
    source = members[part].source
    return sum(each.source is source for each in members.values()) > 1


def _equal(members: Members, groups: Iterable[list[NamedImage]]) -> Iterator[tuple[At, At]]:
    for group in groups:
        kept = dict[Split, At]()  # the first of each part: in a part of the data all others stay, too
        for image in sorted(group, key=lambda each: (KEPT_FIRST.index(each.part), each.position)):
            at = (image.part, image.position)
            stays = next((kept[part] for part in kept if _are_apart(members, part, image.part)), None)
            if stays is None:
                kept.setdefault(image.part, at)
            else:
                yield at, stays


def _near(
    data: DataSet, members: Members, gone: set[At], chosen: Mapping[Split, Integers]
) -> Iterator[tuple[At, At]]:
    """Yield each image that is nearly the same as one that stays: of the parts before, and of its own part if
    that is split here."""
    vectors = descriptors(data, chosen)
    at, reach = list[At](), list[int]()  # a row is compared with the `reach` rows before it that are apart
    for part in [each for each in KEPT_FIRST if each in vectors]:
        first, count = len(at), len(chosen[part])
        at += [(part, position) for position in chosen[part].tolist()]
        reach += range(first, first + count) if _is_split(members, part) else [first] * count
    vector = torch.cat([vectors[part] for part in KEPT_FIRST if part in vectors])
    stays = torch.tensor([each not in gone for each in at], dtype=torch.bool)
    for row in torch.nonzero(_have_neighbours(vector, torch.tensor(reach))).flatten().tolist():
        if not stays[row]:
            continue
        similar = (vector[: reach[row]] @ vector[row]) * stays[: reach[row]]
        nearest = int(similar.argmax())
        if similar[nearest] >= SAME:
            stays[row] = False
            yield at[row], at[nearest]


def _have_neighbours(vector: Tensor, reach: Tensor) -> Tensor:
    """Return for each vector [N, d] whether one of the first `reach` [N] is nearly the same."""
    found = torch.zeros(len(vector), dtype=torch.bool)
    for start in range(0, len(vector), BLOCK):
        rows, end = vector[start : start + BLOCK], reach[start : start + BLOCK, None]
        for before in range(0, int(end.max()), BLOCK):
            others = vector[before : before + BLOCK]
            near = (rows @ others.T >= SAME) & (torch.arange(before, before + len(others)) < end)
            found[start : start + len(rows)] |= near.any(1)
    return found
