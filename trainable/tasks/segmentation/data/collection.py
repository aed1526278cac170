"""The collection of images and masks: surveys the masks, names the classes, checks palettes, finds strata."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trainable.array_types import Integers
from trainable.data.decode import raise_broken
from trainable.data.excluded import check_no_class_lost, excluded
from trainable.data.groups import capture_in, captured, no_files
from trainable.data.part_names import none_leaves_out
from trainable.data.source import LEFT_OUT, Collection, Source, Survey
from trainable.errors import DataError, listed
from trainable.recipe.data import Data, Split
from trainable.recipe.tasks import IGNORED, Masks
from trainable.tasks.segmentation.data.mask_values import (
    MaskCode,
    Naming,
    binary,
    code_of,
    consecutive,
    names_in,
)
from trainable.tasks.segmentation.data.pairs import PairedSources
from trainable.tasks.segmentation.data.parts import MaskedSource
from trainable.tasks.segmentation.data.stores import Palette, colours_of, numbers_objects
from trainable.tasks.segmentation.data.survey import (
    VALUES_NAMED,
    RawSurvey,
    faults_outside,
    strata_of,
    survey,
)

FULL = 255  # programs that draw write foreground as the brightest grey

STRAY_NAMED = 3
UNUSABLE = "masks cannot be used"
REPAIR_MASKS = (
    "repair or remove them, or leave their images out by data.exclude: a CSV file that lists these in a "
    "column image"
)


def surveyed(pairs: PairedSources, spec: Data, masks: Masks) -> Collection:
    """Return the collection, after every mask has been read once.

    Its labels are strata. Raises DataError naming the masks that cannot be read, do not fit their images, or
    have values of no class; for names that do not fit; and for a part whose masks show nothing. What is wrong
    with a mask that `data.exclude` leaves out does not matter.
    """
    foreground = (masks.threshold or 1) if masks.values == "binary" else None
    found = {part: survey(pair, foreground=foreground) for part, pair in pairs.parts.items()}
    out = excluded({part: pair.images for part, pair in pairs.parts.items()}, spec)
    staying = {part: each.without(out[part]) for part, each in found.items()}
    code = _checked_code(pairs, masks, staying)
    of_palettes = check_palettes(pairs, staying, code, is_binary=masks.values == "binary")
    surveys = {
        part: Survey(each.sizes, *code.class_counts(each.values), each.digests)
        for part, each in found.items()
    }
    shown_in = _shown(pairs, {part: each.pixels[~out[part]] for part, each in surveys.items()})
    surveys = {part: surveys[part] for part in shown_in}
    groups = _groups(pairs, spec, code.classes)
    stay, units = ~out["train"], _units(groups)
    every = code if spec.exclude is None else _code_of_all(pairs, masks, found, code)
    before = every.class_counts(found["train"].values)[0] > 0
    check_no_class_lost(spec, every.classes, before.sum(axis=0), before[stay].sum(axis=0))
    shown = surveys["train"].pixels > 0
    strata = strata_of(shown[stay], None if units is None else units[stay])
    sources: dict[Split, Source] = {
        part: MaskedSource(
            pairs.parts[part].images,
            pairs.parts[part].masks,
            code,
            np.where(out[part], LEFT_OUT, strata.labels(each.pixels > 0)),
        )
        for part, each in surveys.items()
    }
    return Collection(
        pairs.path,
        pairs.format,
        code.classes,
        sources,
        pairs.flips,
        None if groups is None else {part: groups[part] for part in sources},
        pairs.objects,
        pairs.copy,
        tuple(code.classes[label] for label in strata.named_by),
        surveys,
        found="; ".join(filter(None, (pairs.found, _said_below(pairs, masks, staying), of_palettes))),
    )


def _code_of_all(
    pairs: PairedSources, masks: Masks, found: Mapping[Split, RawSurvey], code: MaskCode
) -> MaskCode:
    """Return the code with the classes that only left-out masks show, where classes are numbers."""
    try:
        return _code(pairs, masks, found)
    except DataError:  # a mask that is left out may have what no code allows
        return code


def _checked_code(pairs: PairedSources, masks: Masks, found: Mapping[Split, RawSurvey]) -> MaskCode:
    """Return what values mean, after no mask has a fault."""
    faults = [fault for each in found.values() for fault in each.faults.values()]
    looked_at = sum(len(each.sizes) for each in found.values())
    try:
        code = _code(pairs, masks, found)
    except DataError:  # a class may be missing since its masks cannot be read
        raise_broken(faults, looked_at, pairs.path, UNUSABLE, REPAIR_MASKS)
        raise
    faults += [
        fault for part, pair in pairs.parts.items() for fault in faults_outside(pair, found[part], code)
    ]
    raise_broken(faults, looked_at, pairs.path, UNUSABLE, REPAIR_MASKS)
    return code


def _code(pairs: PairedSources, masks: Masks, found: Mapping[Split, RawSurvey]) -> MaskCode:
    values = np.flatnonzero(sum(each.values.sum(axis=0) for each in found.values()))
    if masks.values == "binary":
        if masks.threshold is None:
            _check_two_values(pairs, found, values)
        return code_of(_binary(masks), None, masks.void, pairs.path)
    if values.tolist() == [FULL] == [masks.ignore_index]:
        raise DataError(
            f"{pairs.path}: every pixel of the masks is {FULL}, which task.masks.ignore_index ignores; "
            "expected the numbers of two classes or more: see that task.masks.folder (of a manifest "
            "task.masks.column) names the masks"
        )
    if values.size and set(values.tolist()) <= {0, FULL} and values[-1] == FULL:
        raise DataError(
            f"{pairs.path}: the masks have no other values than 0 and {FULL}: if {FULL} is a class, set "
            "task.masks.values: binary; where it means that pixels are ignored, there is one class only, 0"
        )
    naming = _naming(pairs, masks, found, values)
    return code_of(naming, masks.ignore_index, masks.void, pairs.path)


def _check_two_values(pairs: PairedSources, found: Mapping[Split, RawSurvey], values: Integers) -> None:
    """Raise DataError for binary masks with more than two values, which are no numbers of objects either:
    their share, masks that have them, and what may be said of them."""
    foreground = values[values > 0]
    if values.tolist() == [0, 1, FULL]:
        raise DataError(
            f"{pairs.path}: the masks have the values 0, 1 and {FULL}; with task.masks.values: binary, "
            f"{FULL} is foreground, too. Expected two values; leave that out where {FULL} marks pixels "
            "that count nowhere, or set task.masks.threshold: 1 where both are foreground"
        )
    counts = np.concatenate([each.values for each in found.values()])
    several = np.flatnonzero((counts[:, 1:] > 0).sum(axis=1) > 1)
    if len(foreground) < 2 or (
        foreground[-1] == len(foreground) and all(numbers_objects(counts[row]) for row in several)
    ):
        return
    stores = [pairs.parts[part].masks for part in found]
    names = [store.name(row) for store in stores for row in range(len(store))]
    largest = int(foreground[-1])
    between = counts[:, 1:largest].sum(axis=1)
    most = np.argsort(-between / counts.sum(axis=1).clip(min=1), kind="stable")[:STRAY_NAMED]
    shown = [f"{names[row]} ({between[row] / counts[row].sum():.1%})" for row in most if between[row]]
    raise DataError(
        f"{pairs.path}: {between.sum() / counts.sum():.1%} of the masks' pixels, in "
        f"{np.count_nonzero(between)} of {len(names)} masks, lie between 0 and {largest}: "
        f"{listed([str(each) for each in foreground[:-1]], VALUES_NAMED)}; most in {', '.join(shown)}. With "
        "task.masks.values: binary expected two values, or objects numbered 1, 2, 3 and so on. JPEG, "
        f"resizing and soft brushes leave such greys: set task.masks.threshold: {(largest + 1) // 2} if "
        "foreground begins at half, or task.masks.threshold: 1 if all but 0 is foreground; or save masks "
        "of two values"
    )


def _said_below(pairs: PairedSources, masks: Masks, found: Mapping[Split, RawSurvey]) -> str:
    """Return in words which masks are all background only since none of their values reaches the threshold:
    they may number their classes, where others have levels of 255."""
    if masks.threshold is None:
        return ""
    below = list[str]()
    for part, each in found.items():
        has_some, reaches = (each.values[:, least:].any(axis=1) for least in (1, masks.threshold))
        for row in np.flatnonzero(has_some & ~reaches).tolist():
            own = np.flatnonzero(each.values[row])[-1]
            below.append(f"{pairs.parts[part].masks.name(row)} (at most {own})")
    if not below:
        return ""
    largest = int(np.flatnonzero(sum(each.values.sum(axis=0) for each in found.values()))[-1])
    half = f"task.masks.threshold: {(largest + 1) // 2} if foreground begins at half of {largest}, or "
    return (
        f"masks with values above 0 and none from task.masks.threshold: {masks.threshold} on are all "
        f"background, {len(below)} of {sum(len(each.values) for each in found.values())}: "
        f"{listed(below, STRAY_NAMED)}; unless they show none, save their foreground as {FULL}, or set "
        f"{half if largest < masks.threshold else ''}task.masks.threshold: 1 if all but 0 is foreground in "
        "every mask"
    )


def _check_numbers(pairs: PairedSources, found: Mapping[Split, RawSurvey], values: Sequence[int]) -> None:
    """Raise DataError, naming masks, if values leave numbers out, where each number would be a class."""
    stray = [value for place, value in enumerate(values) if value != place]
    if not stray:
        return
    seen, masks = [], sum(len(each.values) for each in found.values())
    for value in stray[:STRAY_NAMED]:
        shows = [
            pairs.parts[part].masks.name(index)
            for part, each in found.items()
            for index in np.flatnonzero(each.values[:, value]).tolist()
        ]
        seen.append(f"{value} in {len(shows)} of {masks} masks, such as {shows[0]}")
    more = f", and {len(stray) - STRAY_NAMED} more" if len(stray) > STRAY_NAMED else ""
    raise DataError(
        f"{pairs.path}: the masks have the values {listed([str(each) for each in values], VALUES_NAMED)}, "
        f"which leave numbers out: {'; '.join(seen)}{more}. Expected 0, 1, 2 and so on, a class each; "
        "correct the masks, or name the class of each number in task.masks.classes, and in task.masks.void "
        "those that no mask has"
    )


def _binary(masks: Masks) -> Naming:
    usual = binary(masks.threshold or 1)
    names = usual.names if masks.classes is None else names_in(masks.classes)
    if len(names) != 2:
        raise DataError(
            f"task.masks.classes: {masks.classes}: {len(names)} names; with task.masks.values: binary "
            "expected two, of background and foreground; write these two, or leave the values at index where "
            "each number is a class"
        )
    return Naming(names, usual.numbers)


def _naming(pairs: PairedSources, masks: Masks, found: Mapping[Split, RawSurvey], values: Integers) -> Naming:
    """Return the names that a person gives, or those that the format knows, or else the numbers in masks,
    which may leave none out."""
    if masks.classes is not None:
        return consecutive(names_in(masks.classes))
    if pairs.naming is not None:
        return pairs.naming
    numbers = [each for each in values.tolist() if each != masks.ignore_index]
    _check_numbers(pairs, found, numbers)
    return consecutive([str(number) for number in numbers])


def _shown(pairs: PairedSources, pixels: Mapping[Split, Integers]) -> list[Split]:
    """Return the parts that show any class, of the pixels of each, [N, K]; those that may keep it secret are
    left out. Raises DataError for any other that shows nothing."""
    blank = [part for part, each in pixels.items() if not each.any()]
    if odd := [part for part in blank if part not in pairs.secret]:
        raise DataError(
            f"{pairs.path}: every pixel of the {odd[0]} part's masks is ignored (task.masks.ignore_index, "
            f"task.masks.void); expected some that count: ignore less{none_leaves_out(odd[0])}"
        )
    return [part for part in pixels if part not in blank]


def _groups(pairs: PairedSources, spec: Data, classes: Sequence[str]) -> Mapping[Split, Sequence[str]] | None:
    """Return the groups that the format knows, or those that `data.group` finds in the images' paths."""
    if spec.group is None or pairs.groups is not None:
        return pairs.groups
    pattern, found = capture_in(spec.group), dict[Split, tuple[str, ...]]()
    for part, pair in pairs.parts.items():
        if pair.paths is None:
            raise no_files(pairs.path, pairs.format)
        found[part] = captured(pattern, pair.paths, classes, pairs.path)
    return found


def _units(groups: Mapping[Split, Sequence[str]] | None) -> Integers | None:
    """Return a number for the group of each training image."""
    return None if groups is None else np.unique(np.array(groups["train"], object), return_inverse=True)[1]


@dataclass(frozen=True)
class PaletteEntry:
    """An index that means a class, with its colour in a palette of masks that use it."""

    index: int
    colour: tuple[int, ...]
    mask: str  # the first of those masks
    all_grey: bool  # the palette has greys alone


def check_palettes(
    pairs: PairedSources, found: Mapping[Split, RawSurvey], code: MaskCode, *, is_binary: bool
) -> str:
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


def _entries_in_use(
    pairs: PairedSources, found: Mapping[Split, RawSurvey], code: MaskCode
) -> list[PaletteEntry]:
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
