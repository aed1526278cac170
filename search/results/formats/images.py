"""Writes the parts of a data set as class folders, which other programs read: links to files, or PNGs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from trainable.data.source import FileSource, Selection, Split
from trainable.errors import UserError
from trainable.files.paths import without_tilde

FOLDERS: Mapping[Split, str] = {"train": "train", "validation": "val", "test": "test"}


def write_parts(parts: Mapping[Split, Selection], classes: tuple[str, ...], folder: Path) -> int:
    """Writes FOLDER/PART/CLASS/NUMBER-NAME for each image of each part, and a list of each part beside them.

    Image files are linked, not copied; others are written as PNG. Returns how many images there are. Raises
    UserError if the folder is not empty, and where a class cannot be the name of a folder.
    """
    folder = without_tilde(str(folder)).absolute()
    refuse_filled(folder)
    if bad := [name for name in classes if "/" in name or name in (".", "..")]:
        raise UserError(f"--images: class {bad[0]!r} cannot be the name of a folder")
    return sum(_write_part(selection, classes, folder, FOLDERS[part]) for part, selection in parts.items())


def refuse_filled(folder: Path) -> None:
    """Raises UserError for a folder that is not empty, and for a file."""
    if folder.is_file():
        raise UserError(f"--images {folder}: is a file; give a new folder")
    if folder.exists() and any(folder.iterdir()):
        raise UserError(f"--images {folder}: is not empty; give a new folder")


def _write_part(selection: Selection, classes: tuple[str, ...], folder: Path, part: str) -> int:
    digits, lines = len(str(len(selection.indices))), []
    for name in classes:
        (folder / part / name).mkdir(parents=True)
    for position, (index, label) in enumerate(zip(selection.indices.tolist(), selection.labels, strict=True)):
        path = Path(part, classes[label], f"{position:0{digits}}-{_file_name(selection, index)}")
        _write_image(selection, index, folder / path)
        lines.append(f"{path.as_posix()}\t{label}\n")
    (folder / f"{part}_list.txt").write_text("".join(lines))
    return len(lines)


def _file_name(selection: Selection, index: int) -> str:
    if isinstance(selection.source, FileSource):
        return Path(selection.source.paths[index]).name
    return f"{index}.png"


def _write_image(selection: Selection, index: int, path: Path) -> None:
    if isinstance(selection.source, FileSource):
        path.symlink_to(Path(selection.source.root, selection.source.paths[index]).absolute())
        return
    with selection.source.open(index) as image:
        image.save(path, format="PNG")
