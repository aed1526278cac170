"""Fuzzes data sets of every kind: what is accepted gives a batch; what is not is one clear message."""

from __future__ import annotations

import gzip
import io
import shutil
import struct
import zipfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as arrow
import pyarrow.csv
import pyarrow.parquet
import pytest
import torch
from PIL import Image

from tests.fuzz import mutations
from tests.fuzz.bounds import Tally
from trainable.bench import ON_CPU
from trainable.data import DataSet
from trainable.data.assembly import load
from trainable.data.image_files import fingerprint
from trainable.errors import UserError
from trainable.recipe import Recipe
from trainable.recipe.data import Data
from trainable.tasks.kits import make_loader

RECIPE = Recipe().with_values({"loop.batch_size": 4, "precision.kind": "fp32"})
FORMATS = ("JPEG", "PNG", "BMP", "GIF", "WEBP", "TIFF", "PPM", "TGA", "JPEG2000", "AVIF")
NAMES = ("a.jpg", "b.png", ".hidden.png", "caf\udce9.png", "x" * 250 + ".png", "a\nb.jpg", "README", "c.TIF")
TALLY = Tally()
pytestmark = pytest.mark.fuzz


class Sets(NamedTuple):
    """The files of valid data sets by their names, and the folder where damaged ones are written."""

    images: tuple[bytes, ...]
    idx: dict[str, bytes]
    npz: bytes
    saved: dict[str, bytes]
    manifests: dict[str, bytes]
    folder: Path


def prepare(folder: Path) -> Sets:
    luck = np.random.default_rng(0)
    pixels = luck.integers(0, 255, (12, 9, 7), dtype=np.uint8)
    labels = (np.arange(12) % 2).astype(np.uint8)
    sets = Sets(
        tuple(encoded(pixels[0], each, mode) for each in FORMATS for mode in ("L", "RGB")),
        {
            "train-images-idx3-ubyte": struct.pack(">4B3I", 0, 0, 8, 3, *pixels.shape) + pixels.tobytes(),
            "train-labels-idx1-ubyte": struct.pack(">4BI", 0, 0, 8, 1, len(labels)) + labels.tobytes(),
        },
        packed(pixels, labels),
        saved_files(folder, pixels, labels),
        manifest_files(folder),
        folder / "damaged",
    )
    for images in sets.images:
        sets.folder.mkdir()
        write_folder(sets.folder, images, images, "image.jpg")
        read(sets.folder)  # every image is right; and what is imported first is
        shutil.rmtree(sets.folder)
    return sets


def encoded(pixels: np.ndarray, format: str, mode: str) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(out, format=format)
    return out.getvalue()


def packed(pixels: np.ndarray, labels: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.savez(out, train_images=pixels, train_labels=labels)
    return out.getvalue()


def saved_files(folder: Path, pixels: np.ndarray, labels: np.ndarray) -> dict[str, bytes]:
    """Return the files that Hugging Face `datasets` saves."""
    import datasets

    datasets.disable_progress_bars()
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b"])})
    content = {"image": [Image.fromarray(each) for each in pixels], "label": labels.tolist()}
    datasets.Dataset.from_dict(content, features=features).save_to_disk(str(folder / "saved"))
    return {each.name: each.read_bytes() for each in (folder / "saved").iterdir()}


def manifest_files(folder: Path) -> dict[str, bytes]:
    """Return a manifest of a folder of images as CSV and as Parquet."""
    columns = {
        "path": [f"{label}/{number}.jpg" for label in "ab" for number in range(4)],
        "label": [label for label in "ab" for _ in range(4)],
        "group": [f"p{number}" for _ in "ab" for number in range(4)],
    }
    table = arrow.table(columns)
    arrow.csv.write_csv(table, folder / "set.csv")
    arrow.parquet.write_table(table, folder / "set.parquet")
    return {name: (folder / name).read_bytes() for name in ("set.csv", "set.parquet")}


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Sets:
    return prepare(tmp_path_factory.mktemp("sets"))


def check_one(sets: Sets, luck: mutations.Luck) -> None:
    sets.folder.mkdir()
    try:
        path = luck.choice(
            (damaged_folder, damaged_folder, damaged_idx, damaged_npz, damaged_saved, damaged_manifest)
        )(sets, luck)
        TALLY.outcome(lambda: read(path))
    finally:
        shutil.rmtree(sets.folder)


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_data_are_refused_at_once_or_give_a_batch(sets: Sets) -> None:
    TALLY.try_all(lambda luck: check_one(sets, luck))
    TALLY.check(least_share=0.2)


def read(path: Path) -> DataSet:
    fingerprint(path)
    data = load(Data(path=str(path), validation_fraction=0.3))
    try:
        loader = make_loader(data, RECIPE, ON_CPU)
        (images, labels), *_ = loader.train([torch.arange(min(4, len(data.train)))], epoch=1)
        loader.close()
    except UserError as error:
        raise AssertionError(f"accepted, and then refused: {error}") from error
    assert images.shape == (len(labels), data.info.channels, data.info.image_size, data.info.image_size)
    assert bool(torch.isfinite(images).all())
    assert 0 <= int(labels.min()) <= int(labels.max()) < len(data.info.classes)
    return data


def damaged_folder(sets: Sets, luck: mutations.Luck) -> Path:
    """Return a folder in which one image is damaged, and perhaps something else lies there too."""
    content = mutations.content(image := luck.choice(sets.images), luck)
    name = luck.choice(NAMES)
    TALLY.shown = (name, content)
    write_folder(sets.folder, image, content, name)
    match luck.randrange(12):
        case 0:
            (sets.folder / "b" / "link").symlink_to(luck.choice(("..", "../a", "nowhere", ".", "link")))
        case 1:
            (sets.folder / "b" / "link.png").symlink_to(
                luck.choice(("../a/0.jpg", "0.jpg", "nowhere", "link.png"))
            )
        case 2:
            (sets.folder / luck.choice(("train", "val", "test", ".git", "c"))).mkdir()
        case 3:
            (sets.folder / luck.choice(("a/loose", "b/deep/er"))).mkdir(parents=True)
        case _:
            pass
    return sets.folder


def write_folder(folder: Path, image: bytes, content: bytes, name: str) -> None:
    for label in ("a", "b"):
        (folder / label).mkdir()
        for number in range(4):
            (folder / label / f"{number}.jpg").write_bytes(image)
    (folder / "b" / name).write_bytes(content)


def damaged_idx(sets: Sets, luck: mutations.Luck) -> Path:
    name, zipped = luck.choice(tuple(sets.idx)), luck.randrange(3) == 0
    damaged = sets.idx[name]
    if not zipped or luck.randrange(2):
        damaged = begin_changed(damaged, luck)
    for other, whole in sets.idx.items():
        content = damaged if other == name else whole
        if zipped:
            content = gzip.compress(content, mtime=0)
            content = mutations.content(content, luck) if other == name and luck.randrange(2) else content
        if other == name:
            TALLY.shown = (other, content)
        (sets.folder / f"{other}{'.gz' * zipped}").write_bytes(content)
    return sets.folder


def begin_changed(content: bytes, luck: mutations.Luck) -> bytes:
    """Change mostly the header, since every other byte may have any value."""
    if luck.randrange(3) == 0:
        return mutations.content(content, luck)
    header = bytearray(content[:16])
    for _ in range(luck.choice((1, 2))):
        header[luck.randrange(len(header))] = luck.choice((0, 1, 2, 3, 4, 127, 128, 255))
    return bytes(header) + content[16:]


def damaged_npz(sets: Sets, luck: mutations.Luck) -> Path:
    path = sets.folder / "set.npz"
    change = luck.choice((mutations.content, members_changed))
    content = change(sets.npz, luck)
    TALLY.shown = content
    path.write_bytes(content)
    return path


def damaged_saved(sets: Sets, luck: mutations.Luck) -> Path:
    name = luck.choice(tuple(sets.saved))
    for other, content in sets.saved.items():
        changed = mutations.content(content, luck) if other == name else content
        TALLY.shown = (name, changed) if other == name else TALLY.shown
        (sets.folder / other).write_bytes(changed)
    return sets.folder


def damaged_manifest(sets: Sets, luck: mutations.Luck) -> Path:
    write_folder(sets.folder, sets.images[0], sets.images[0], "0.jpg")
    name = luck.choice(tuple(sets.manifests))
    content = mutations.content(sets.manifests[name], luck)
    TALLY.shown = (name, content)
    (sets.folder / name).write_bytes(content)
    return sets.folder / name


def members_changed(content: bytes, luck: mutations.Luck) -> bytes:
    """Change an array in the file, and pack it again: so the file's own checksums are right."""
    out = io.BytesIO()
    kind = luck.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))
    with zipfile.ZipFile(io.BytesIO(content)) as file, zipfile.ZipFile(out, "w", kind) as packed_again:
        for name in file.namelist():
            member = file.read(name)
            for old, new in ((b"|u1", b"<i8"), (b"(12,", b"(11,"), (b"9, 7", b"0, 7"), (b"False", b"True ")):
                member = member.replace(old, new) if luck.randrange(8) == 0 else member
            member = mutations.content(member, luck) if luck.randrange(4) == 0 else member
            packed_again.writestr(zipfile.ZipInfo(name), member, kind)
    return out.getvalue()
