"""What a format finds: images and their masks, paired by name, before any mask is read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np

from trainable.data.image_files import images_below, walk_into
from trainable.data.part_names import none_leaves_out
from trainable.data.source import FileSource, Flip, Source
from trainable.errors import DataError, listed
from trainable.files.paths import text_of
from trainable.recipe.data import Split
from trainable.recipe.tasks import Masks
from trainable.tasks.segmentation.data.mask_values import Naming
from trainable.tasks.segmentation.data.stores import MaskFiles, MaskStore


class PairedSource(NamedTuple):
    """The images of a part, and a mask for each."""

    images: Source
    masks: MaskStore
    # In these paths `data.group` finds groups: each image's below the folder of images. None for images that
    # have no files.
    paths: tuple[str, ...] | None


@dataclass(frozen=True)
class PairedSources:
    """The images and masks of a data set; `Collection` says what fields of the same names mean."""

    path: str
    format: str
    parts: Mapping[Split, PairedSource]
    naming: Naming | None = None  # the classes, where the format knows them
    flips: tuple[Flip, ...] = ()
    groups: Mapping[Split, Sequence[str]] | None = None
    objects: tuple[str, ...] = ()
    copy: Path | None = None
    # These parts may be published with masks that show nothing; then they are left out
    secret: frozenset[Split] = frozenset()
    found: str = ""  # in words, the folders of images and masks, where the recipe does not name them


def pair_of_files(
    root: str, images: Sequence[str], masks: Sequence[str], paths: Sequence[str], spec: Masks
) -> PairedSource:
    """Return the pair of files below one root."""
    source = FileSource(root, images, np.zeros(len(images), np.int64))
    return PairedSource(
        source,
        MaskFiles(root, masks, spec.values == "binary", lossy=spec.threshold is not None),
        tuple(paths),
    )


SHOWN = 10  # so many files without a partner are named; the rest are counted

# By each file's path below a folder, without its ending: its path below the data set's root
Files = dict[str, str]


def files_below(root: Path, folder: Path) -> Files:
    """Return the image files below a folder. Raises DataError for two whose names differ in their endings
    alone: nobody could say which of them a mask belongs to."""
    found = dict[str, str]()
    for each in sorted(map(str, images_below(walk_into(folder, []), folder))):
        path = os.path.relpath(each, root)
        name = os.path.splitext(os.path.relpath(each, folder))[0]
        if (first := found.setdefault(name, path)) != path:
            raise DataError(
                f"{root}: {first} and {path} have one name; expected one image or mask of it: remove or "
                "rename one"
            )
    return found


def paired(root: Path, images: Files, masks: Files, names: Sequence[str], spec: Masks) -> PairedSource:
    """Return the pair of the files with these names."""
    chosen = [images[name] for name in names]
    shown = [name + os.path.splitext(path)[1] for name, path in zip(names, chosen, strict=True)]
    return pair_of_files(str(root), chosen, [masks[name] for name in names], shown, spec)


def in_order(names: Iterable[str]) -> list[str]:
    """Return the names as a person sorts files: folder by folder."""
    return sorted(names, key=lambda name: PurePosixPath(name).parts)


def split_by_suffix(files: Files, suffix: str) -> tuple[Files, Files]:
    """Return the images and the masks of one folder, by the images' names."""
    return (
        {name: path for name, path in files.items() if not _ends(name, suffix)},
        without_suffix({name: path for name, path in files.items() if _ends(name, suffix)}, suffix),
    )


def without_suffix(files: Files, suffix: str) -> Files:
    """Return the masks by the images' names. Raises DataError for a mask without the suffix."""
    if odd := [path for name, path in files.items() if not _ends(name, suffix)]:
        raise DataError(
            f"task.masks.suffix: expected masks whose names end with {suffix!r}, before the file's ending; "
            f"got {_named(odd)}; change the field, or rename or remove these"
        )
    return {name.removesuffix(suffix): path for name, path in files.items()}


def check_paired(where: Path | str, images: Files, masks: Files, part: Split) -> None:
    """Raise DataError for images of a part without masks, and for masks without images: it counts and names
    them."""
    lonely = [images[name] for name in in_order(images.keys() - masks.keys())]
    odd = [masks[name] for name in in_order(masks.keys() - images.keys())]
    faults = [
        *([f"{_count(lonely, 'image')} without a mask: {_named(lonely)}"] if lonely else []),
        *([f"{_count(odd, 'mask')} without an image: {_named(odd)}"] if odd else []),
    ]
    if faults:
        head = f"{where}: images and masks are paired by their names, and some have no partner:"
        leave_out = none_leaves_out(part).removeprefix("; ")
        advice = [*_advice(images, masks), *([leave_out] if leave_out else [])]
        raise DataError("\n  ".join([head, *faults, *advice]))


def _ends(name: str, suffix: str) -> bool:
    """Return whether a name is a mask's: there is a name before the suffix."""
    return name.endswith(suffix) and len(os.path.basename(name)) > len(suffix)


def _advice(images: Files, masks: Files) -> list[str]:
    """Return what the masks' names add to those of images, if that pairs all masks that have no image."""
    odd = in_order(masks.keys() - images.keys())
    cuts = range(len(odd[0]) - 1, 0, -1) if odd else ()
    suffix = next((odd[0][cut:] for cut in cuts if odd[0][:cut] in images), "")
    if not suffix or not all(_ends(name, suffix) and name.removesuffix(suffix) in images for name in odd):
        return [
            "add or remove these, or list pairs of other names in a manifest, with a column task.masks.column"
        ]
    return [f"set task.masks.suffix: {suffix!r} if masks are named like {masks[odd[0]]}"]


def _count(paths: Sequence[str], what: str) -> str:
    return f"1 {what}" if len(paths) == 1 else f"{len(paths):,} {what}s"


def _named(paths: Sequence[str]) -> str:
    return listed([text_of(each) for each in paths], SHOWN)
