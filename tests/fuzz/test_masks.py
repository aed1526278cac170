"""Fuzzes data sets with masks: accepted ones have a class for each pixel; others are one clear message."""

from __future__ import annotations

import io
import shutil
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from PIL import Image

from tests.fuzz import mutations
from tests.fuzz.bounds import Tally
from trainable.bench import HERE
from trainable.data.source import Collection
from trainable.data.split import members_of
from trainable.recipe.data import Data
from trainable.recipe.tasks import IGNORED, Masks
from trainable.tasks.segmentation.data.parts import MaskedSource
from trainable.tasks.segmentation.data.reading import read

FORMATS = ("PNG", "BMP", "GIF", "TIFF", "PPM", "TGA", "JPEG2000")
NAMES = (
    *["0.png"] * 8,
    "b.png",
    ".hidden.png",
    "caf\udce9.png",
    "x" * 250 + ".png",
    "a\nb.png",
    "README",
    "c.TIF",
)
TALLY = Tally()
pytestmark = pytest.mark.fuzz


class Sets(NamedTuple):
    """Files of valid data sets, and the folder where damaged ones are written."""

    image: bytes
    masks: tuple[bytes, ...]
    npz: bytes
    folder: Path


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Sets:
    luck = np.random.default_rng(0)
    images = luck.integers(0, 255, (8, 9, 7), dtype=np.uint8)
    masks = luck.integers(0, 3, (8, 9, 7), dtype=np.uint8)
    packed = io.BytesIO()
    np.savez(packed, train_images=images, train_masks=masks)
    wide = encoded(masks[0].astype(np.uint16), "TIFF")
    return Sets(
        encoded(images[0], "PNG"),
        (wide, *(encoded(masks[0], each) for each in FORMATS)),
        packed.getvalue(),
        tmp_path_factory.mktemp("masks") / "damaged",
    )


def encoded(pixels: np.ndarray, format: str) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, format=format)
    return out.getvalue()


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_masks_are_refused_at_once_or_every_pixel_has_a_class(sets: Sets) -> None:
    TALLY.try_all(lambda luck: check_one(sets, luck))
    TALLY.check(least_share=0.15)


def check_one(sets: Sets, luck: mutations.Luck) -> None:
    sets.folder.mkdir()
    try:
        path = luck.choice((damaged_folder, damaged_folder, damaged_names, damaged_npz))(sets, luck)
        names = sets.folder / "names.txt"
        masks = Masks(
            values=luck.choice(("index", "index", "binary")),
            ignore_index=luck.choice((255, None)),
            void=luck.choice(((), (), ("0",))),
            classes=str(names) if names.exists() else None,
        )
        TALLY.outcome(lambda: read_all(path, masks))
    finally:
        shutil.rmtree(sets.folder)


def read_all(path: Path, masks: Masks) -> Collection:
    spec = Data(path=str(path), validation_fraction=0.3)
    found = read(spec, HERE, masks)
    for source, indices in members_of(found, spec).values():
        assert isinstance(source, MaskedSource)
        for index in indices.tolist():
            mask = source.class_mask(index)
            assert mask.dtype == np.uint8
            assert set(np.unique(mask).tolist()) <= {*range(len(found.classes)), IGNORED}
    return found


def damaged_folder(sets: Sets, luck: mutations.Luck) -> Path:
    """Write a folder in which one mask is damaged, and perhaps something else lies there too."""
    mask = luck.choice(sets.masks)
    write_folder(sets, mask)
    name, content = luck.choice(NAMES), mutations.content(mask, luck)
    TALLY.shown = (name, content)
    (sets.folder / luck.choice(("masks", "masks", "masks", "images")) / name).write_bytes(content)
    if luck.randrange(8) == 0:
        (sets.folder / "masks" / "link").symlink_to(luck.choice(("..", "../images", "nowhere", ".", "link")))
    if luck.randrange(8) == 0:
        (sets.folder / "images" / luck.choice(("train", "val", "deep"))).mkdir()
    return sets.folder


def damaged_names(sets: Sets, luck: mutations.Luck) -> Path:
    write_folder(sets, sets.masks[1])
    content = mutations.content(b"sky\nsea\nland\n", luck)
    TALLY.shown = content
    (sets.folder / "names.txt").write_bytes(content)
    return sets.folder


def damaged_npz(sets: Sets, luck: mutations.Luck) -> Path:
    content = mutations.content(sets.npz, luck)
    TALLY.shown = content
    (sets.folder / "set.npz").write_bytes(content)
    return sets.folder / "set.npz"


def write_folder(sets: Sets, mask: bytes) -> None:
    for folder, content in (("images", sets.image), ("masks", mask)):
        (sets.folder / folder).mkdir()
        for number in range(6):
            (sets.folder / folder / f"{number}.png").write_bytes(content)
