"""Reads images in class folders, with or without folders for the parts above them."""

from __future__ import annotations

import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from trainable.data.image_files import (
    ENDINGS,
    Identity,
    identity_of,
    images_below,
    is_image,
    subfolders,
    walk_into,
)
from trainable.data.part_names import ALL_PARTS, USUAL_NAMES, PartChoice, excluding, none_leaves_out
from trainable.data.source import Collection, FileSource, ordered
from trainable.errors import DataError
from trainable.files.paths import text_of
from trainable.recipe.data import Split

UNLISTED = "; move it into its class's folder, or list all images in a manifest"


@dataclass(frozen=True)
class FolderTree:
    """The class folders of one part and their images."""

    folder: Path
    images: dict[str, list[Path]]


def read(root: Path, choice: PartChoice = ALL_PARTS) -> Collection:
    """Return the collection under a folder, with the parts that a recipe chooses there; folders that it
    excludes are no part and no class.

    With a training folder, subfolders of parts are the classes. Without it, the folder's own subfolders are
    the classes of one tree. Folders of parts that are left out are not looked into. Deeper folders belong to
    the class above them. Hidden files and files that are no images are ignored. Raises DataError for anything
    that would leave images out: empty classes, images beside the class folders.
    """
    check_not_wrapped(root)
    children = {child.name: child for child in subfolders(root)}
    children = {name: children[name] for name in choice.used(children, root)}
    folders = _part_folders(root, children, choice.named)
    trees = {part: _tree(folder, subfolders(folder), part) for part, folder in folders.items()}
    trees = trees or {"train": _tree(root, list(children.values()), "train")}
    classes = ordered(name for tree in trees.values() for name in tree.images)
    _check_one_label(trees.values())
    parts = {part: _source(root, tree, classes) for part, tree in trees.items()}
    return Collection(str(root), "folder", classes, parts, inner_folders=_inner_folders(root, trees["train"]))


def _inner_folders(root: Path, tree: FolderTree) -> tuple[str, ...]:
    """Return the folders below class folders that hold images, if most of the images lie in such folders."""
    folders = [path.parent for paths in tree.images.values() for path in paths]
    inner = [folder for folder in folders if folder.parent != tree.folder]
    if 2 * len(inner) <= len(folders):
        return ()
    return tuple(folder.relative_to(root).as_posix() for folder in dict.fromkeys(inner))


def check_not_wrapped(root: Path) -> None:
    """Raise DataError for a folder with one folder or none:
    one would be a data set of one class, or is a wrapping."""
    children = subfolders(root)
    if len(children) == 1 and not subfolders(children[0]):
        raise DataError(f"{root} holds one class only, {children[0].name}/; a data set has two or more")
    if len(children) == 1:
        raise DataError(
            f"{root} holds one folder only, {children[0].name}/; data.path should be {children[0]}"
        )
    if not children:
        raise DataError(f"{root} holds no folders; expected one for each class, with its images")


def _part_folders(
    root: Path, children: Mapping[str, Path], named: Mapping[Split, str | None]
) -> dict[Split, Path]:
    """Return folders by part: those named, else those with usual names;
    empty if the root is one tree of classes."""
    folders = {part: _named(root, part, name, children) for part, name in named.items() if name is not None}
    for part, usual in USUAL_NAMES.items():
        found = [child for name, child in children.items() if name.strip().lower() in usual]
        if part not in folders and found:
            if len(found) > 1:
                names = " and ".join(child.name for child in found)
                raise DataError(
                    f"{root}: {names} could both be the {part} part; name one by data.{part}, or leave "
                    f"one out by {excluding([child.name for child in found[1:]])}"
                )
            folders[part] = found[0]
    if not any(named.values()) and not _are_parts(folders, children):
        _check_no_class(root, folders)
        return {}
    if "train" not in folders:
        raise DataError(f"{root}: no training folder among {', '.join(children)}; name it by data.train")
    check_left_out(root, [child for child in children.values() if child not in folders.values()])
    return folders


def _are_parts(folders: Mapping[Split, Path], children: Mapping[str, Path]) -> bool:
    """Return whether usual names are parts:
    `train` beside `bus` and `car`, with images directly in it, is a class."""
    if "train" in folders:
        return bool(subfolders(folders["train"]))
    return len(folders) == len(children)


def _check_no_class(root: Path, folders: Mapping[Split, Path]) -> None:
    """Raise DataError for a folder beside class folders that is called like a validation or test part; its
    images would be those of a class."""
    for part, folder in folders.items():
        if part != "train":
            raise DataError(
                f"{root}: {folder.name}/ lies beside class folders, and is called like the {part} part"
                f"{none_leaves_out(part)}; to use it, move the class folders into train/; if it is a class, "
                "rename it"
            )


def _named(root: Path, part: str, name: str, children: Mapping[str, Path]) -> Path:
    for child in children.values():
        if child.name == name:
            return child
    raise DataError(f"{root}: data.{part} is {name!r}, but the folders there are {', '.join(children)}")


def check_left_out(root: Path, folders: Iterable[Path]) -> None:
    """Raise DataError, with the names of those folders that hold images."""
    if left_out := [each.name for each in folders if any(images_below(walk_into(root, [each]), each))]:
        raise DataError(
            f"{root}: {', '.join(left_out)} would be left out, as it has no part's name. Name it by "
            "data.train, data.validation or data.test, move it away, or leave it out by "
            f"{excluding(left_out)}"
        )


def _tree(folder: Path, children: Sequence[Path], part: Split) -> FolderTree:
    loose = [entry.name for entry in sorted(folder.iterdir()) if entry.is_file() and is_image(entry.name)]
    if loose:
        count = "1 image" if len(loose) == 1 else f"{len(loose):,} images, the first"
        raise DataError(
            f"{folder}: {count} in no class folder: {loose[0]}{none_leaves_out(part) or UNLISTED}"
        )
    _check_names(children)
    walk = walk_into(folder, children)
    images = {child.name: sorted(images_below(walk, child)) for child in children}
    if empty := [name for name, paths in images.items() if not paths]:
        raise DataError(
            f"{folder}: no images in class {', '.join(empty)} (known endings: {' '.join(ENDINGS)}); "
            "fill or remove these folders"
        )
    if part == "train" and len(images) < 2:
        count = ", ".join(images) or "none"
        raise DataError(f"{folder}: at least two class folders are needed, found {count}")
    return FolderTree(folder, images)


def _source(root: Path, tree: FolderTree, classes: tuple[str, ...]) -> FileSource:
    images = [tree.images.get(name, []) for name in classes]
    paths = [path.relative_to(root).as_posix() for each in images for path in each]
    labels = np.repeat(np.arange(len(classes)), [len(each) for each in images])
    return FileSource(str(root), paths, labels.astype(np.int64))


def _check_names(folders: Iterable[Path]) -> None:
    """Raise DataError for a class whose name cannot be written into a file or shown."""
    for folder in folders:
        if (name := text_of(folder.name)) != folder.name:
            raise DataError(f"{folder.parent}: the name of class folder {name} is not UTF-8; rename it")


def _check_one_label(trees: Iterable[FolderTree]) -> None:
    """Raise DataError for an image that has two labels, by a link to it from another class."""
    images = [(name, path) for tree in trees for name, paths in tree.images.items() for path in paths]
    if not any(_is_linked(path) for _, path in images):
        return
    found: dict[Identity, tuple[str, Path]] = {}
    for name, path in images:
        label, first = found.setdefault(identity_of(path), (name, path))
        if label != name:
            raise DataError(
                f"{first} and {path} are one image, by a link, with the labels {label} and {name}; remove one"
            )


def _is_linked(image: Path) -> bool:
    found = image.lstat()
    return stat.S_ISLNK(found.st_mode) or found.st_nlink > 1
