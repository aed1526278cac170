"""Compares the palettes of masks: where colours show that an index is not the number of one class."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trainable.data.source import Split
from trainable.errors import DataError
from trainable.recipe.tasks import IGNORED
from trainable.tasks.segmentation.data.code import MaskCode
from trainable.tasks.segmentation.data.pairs import Pairs
from trainable.tasks.segmentation.data.stores import Palette, colours_of
from trainable.tasks.segmentation.data.survey import RawSurvey


@dataclass(frozen=True)
class PaletteEntry:
    """An index that means a class, with its colour in a palette of masks that use it."""

    index: int
    colour: tuple[int, ...]
    mask: str  # the first of those masks
    all_grey: bool  # the palette has greys alone


def check_palettes(pairs: Pairs, found: Mapping[Split, RawSurvey], code: MaskCode, *, is_binary: bool) -> str:
    """Return in words what palettes leave open: whether a class may have two colours.

    Raise DataError where they contradict each other, since programs that make files smaller number the
    colours of each file anew: for a colour that has the indices of two classes, and for greys that are the
    numbers of the classes, though their indices are others. All else is sound: colours are for people to see,
    and each program has its own.
    """
    entries = _entries_in_use(pairs, found, code)
    numbers = "0 is background" if is_binary else "an index is the number of a class"
    foreground = ", or 255 for foreground," if is_binary else ""
    write = f"write the number of each pixel's class{foreground} as a grey PNG, of mode L"
    if (several := _colour_of_several_classes(entries, code)) is not None:
        first, other = several
        fault = (
            f"{first.colour} is index {first.index} in the palette of {first.mask}, and index {other.index} "
            f"in that of {other.mask}; {numbers}, so expected every colour to mean one class"
        )
    elif not is_binary and (entry := _grey_that_is_a_number(entries, found, code)) is not None:
        fault = (
            f"index {entry.index} is the grey {entry.colour[0]} in the palette of {entry.mask}, and "
            f"{entry.colour[0]} is a class, too; {numbers}, so expected that number as its grey, or greys "
            "that are no classes, for people to see"
        )
    else:
        return _said_of_two_colours([each for each in entries if not (is_binary and each.index)], write)
    raise DataError(
        f"{pairs.path}: {fault}. Programs that make files smaller number colours anew in each: {write}; "
        "where the indices are right, these are the numbers"
    )


def _entries_in_use(pairs: Pairs, found: Mapping[Split, RawSurvey], code: MaskCode) -> list[PaletteEntry]:
    """The entries of indices that masks use and that mean classes.

    A palette whose used colours are the greys of their own indices says no more than a mask without one. Nor
    does a colour that is in its palette before, as the zeros are that fill palettes up: programs that number
    colours give each of them one number.
    """
    entries = list[PaletteEntry]()
    for part, each in found.items():
        rows_of = defaultdict[Palette, list[int]](list)
        for row, palette in enumerate(each.palettes):
            if palette is not None:
                rows_of[palette].append(row)
        shown = (each.values > 0) & (code.table != IGNORED)
        for palette, rows in rows_of.items():
            shows, colours = shown[rows], colours_of(palette)
            used = np.flatnonzero(shows.any(axis=0))
            if (colours[used] == used[:, None]).all():
                continue
            own = colours[: len(palette) // 3]
            all_grey = bool((own == own[:, :1]).all())
            first_of_colour = np.unique(own, axis=0, return_index=True)[1]
            for index in np.intersect1d(used, first_of_colour).tolist():
                mask = pairs.parts[part].masks.name(rows[int(shows[:, index].argmax())])
                entries.append(PaletteEntry(index, tuple(own[index].tolist()), mask, all_grey))
    return entries


def _grey_that_is_a_number(
    entries: Sequence[PaletteEntry], found: Mapping[Split, RawSurvey], code: MaskCode
) -> PaletteEntry | None:
    """The first entry whose grey is the number of another class, if all colours of all palettes are greys
    that masks use as numbers. Greys for people to see go beyond these."""
    numbers = sum(each.values.sum(axis=0) for each in found.values())
    if not all(entry.all_grey and numbers[entry.colour[0]] for entry in entries):
        return None
    moved = (entry for entry in entries if entry.colour[0] != entry.index)
    return next((entry for entry in moved if code.table[entry.colour[0]] != IGNORED), None)


def _colour_of_several_classes(
    entries: Sequence[PaletteEntry], code: MaskCode
) -> tuple[PaletteEntry, PaletteEntry] | None:
    """The first two entries of one colour and two classes."""
    firsts = dict[tuple[int, ...], PaletteEntry]()
    for entry in entries:
        first = firsts.setdefault(entry.colour, entry)
        if code.table[first.index] != code.table[entry.index]:
            return first, entry
    return None


def _said_of_two_colours(entries: Sequence[PaletteEntry], write: str) -> str:
    """Name the first index that has two colours. It may be one class in the colours of two programs, or two
    classes that never meet in one mask."""
    firsts = dict[int, PaletteEntry]()
    for entry in entries:
        first = firsts.setdefault(entry.index, entry)
        if first.colour != entry.colour:
            return (
                f"index {entry.index} is {first.colour} in the palette of {first.mask}, and {entry.colour} "
                f"in that of {entry.mask}, and is read as one class; if these are two, {write}"
            )
    return ""
