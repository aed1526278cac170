"""The parts of a data set as class folders, which other programs read as they are seen here."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from PIL import Image
from PIL.ExifTags import Base

from trainable.data.decode import upright
from trainable.data.source import FileSource, Selection
from trainable.errors import UserError, first_line, quoted
from trainable.files.folders import is_empty, moved_to
from trainable.files.paths import LONGEST_NAME, without_tilde
from trainable.recipe.data import Split
from trainable.tune.causes import refusal_in

FOLDERS: Mapping[Split, str] = {"train": "train", "validation": "val", "test": "test"}
DIGEST_FILE = "digest.txt"  # says which images, in which parts, a folder has
# All programs read these formats (a phone's JPEG may be an MPO), and know them by these endings
ENDINGS = {"JPEG": ".jpg", "MPO": ".jpg", "PNG": ".png"}
QUALITY = 95  # of photographs that must be turned, in full colour: as PNG they would be large
LONGEST_STEM = 100


def write_parts(parts: Mapping[Split, Selection], classes: tuple[str, ...], folder: Path, digest: str) -> int:
    """Write FOLDER/PART/CLASS/NUMBER-NAME for each image of each part, and a list of each part beside them.

    JPEG and PNG files are linked, not copied. Images of other formats, images that are no files, and those
    that other programs would show otherwise (turned by EXIF, transparent, of 16 bits) are written upright.
    Return how many images there are; a folder that has these parts already stays, a new one is whole or not
    there, and an empty one is filled. Raises UserError if the folder has anything else, where a class cannot
    be the name of a folder, and for an image that cannot be read; OSError from a disk that takes no more.
    """
    folder = without_tilde(str(folder)).absolute()
    refuse_filled(folder, digest)
    for name in classes:
        is_path = re.search(r"[/\t\r\n\0]", name) is not None or name in (".", "..")
        if not is_path and len(os.fsencode(name)) <= LONGEST_NAME:
            continue
        raise UserError(
            f"--images: class {quoted(name)} cannot be the name of a folder in a list of images; rename it "
            "in the data, or leave --images out"
        )
    if not (folder / DIGEST_FILE).exists():
        with moved_to(folder.resolve(), last=DIGEST_FILE) as made:
            for part, selection in parts.items():
                _write_part(selection, classes, made, FOLDERS[part])
            (made / DIGEST_FILE).write_text(f"{digest}\n", encoding="utf-8")
    return sum(len(selection.indices) for selection in parts.values())


def refuse_filled(folder: Path, digest: str) -> None:
    """Raise UserError for a file, and for a folder with anything but the parts of this digest."""
    if folder.is_file():
        raise UserError(f"--images {folder}: is a file; give a new folder")
    file = folder / DIGEST_FILE
    if file.is_file() and file.read_text(encoding="utf-8").strip() == digest:
        return
    if folder.exists() and not is_empty(folder):
        raise UserError(f"--images {folder}: has not these parts, and is not empty; give a new folder")


def _write_part(selection: Selection, classes: tuple[str, ...], folder: Path, part: str) -> None:
    digits, lines = len(str(len(selection.indices))), []
    for name in classes:
        (folder / part / name).mkdir(parents=True)
    for position, (index, label) in enumerate(zip(selection.indices.tolist(), selection.labels, strict=True)):
        # letters, digits and underscores, so that no file's name can break a list
        plain = re.sub(r"\W+", "_", Path(selection.source.name(index)).stem)[:LONGEST_STEM]
        name = f"{position:0{digits}}-{plain}"
        try:
            ending = _write_image(selection, index, folder / part / classes[label], name)
        except Exception as error:  # Pillow's plug-ins raise nearly anything
            if refusal_in(error) is not None:
                raise
            raise UserError(f"--images: {selection.source.name(index)}: {first_line(error)}") from error
        lines.append(f"{part}/{classes[label]}/{name}{ending}\t{label}\n")
    text = "".join(lines).encode("utf-8", "surrogateescape")  # names of folders need not be UTF-8
    (folder / f"{part}_list.txt").write_bytes(text)


def _write_image(selection: Selection, index: int, folder: Path, name: str) -> str:
    """Write or link an image, and return the ending of its name."""
    source = selection.source
    with source.open(index) as image:
        ending = ENDINGS.get(image.format or "", ".png")
        if isinstance(source, FileSource) and _seen_alike(image):
            (folder / f"{name}{ending}").symlink_to(Path(source.root, source.paths[index]).absolute())
            return ending
        if not isinstance(source, FileSource):
            ending = ".png"
        shown = upright(image, 1 if image.mode[0] in "1LI" else 3)
    how: dict[str, Any] = {"quality": QUALITY, "subsampling": 0} if ending == ".jpg" else {}
    shown.save(folder / f"{name}{ending}", **how)
    return ending


def _seen_alike(image: Image.Image) -> bool:
    """Say whether other programs show a file as it is seen here: most do not turn it as EXIF says, drop
    what is transparent, and cut the levels of 16 bits off."""
    turned = image.getexif().get(Base.Orientation, 1) != 1
    deep = image.mode.startswith("I")
    return image.format in ENDINGS and not (turned or deep or image.has_transparency_data)
