"""Makes four small sets of labelled images for fine-tuning, from the folder TUNEBOOK_DATA, at 96 px.

`signs` are photographs of hands of 100 px (digits of sign language). The others are enlarged: `photographs`
are CIFAR-10's of 32 px, `clothes` Fashion-MNIST's of 28 px, and `nuclei` squares of 48 px cut from microscope
images, by how many nuclei are in them: none, 1 or 2, 3 to 5, more. Training and test squares of `nuclei` come
from different images.
"""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Images = NDArray[np.uint8]
Labels = NDArray[np.int64]
SIDE = 96
TRAIN, TEST = 10_000, 1_500
SQUARE, SQUARES = 48, 60
"""A microscope image gives so many squares, of this side in pixels."""
SIGNS = 1_442
"""So many photographs of hands are trained on."""


@dataclass(frozen=True)
class TuningSet:
    """Holds images uint8 [N, SIDE, SIDE, 3] and labels [N], in random order."""

    train: Images
    train_labels: Labels
    test: Images
    test_labels: Labels

    @property
    def classes(self) -> int:
        return int(max(self.train_labels.max(), self.test_labels.max())) + 1


def make_set(name: str, folder: Path) -> TuningSet:
    """Return the set of this name, one of SETS."""
    return SETS[name](folder)


def _signs(folder: Path) -> TuningSet:
    files = sorted((folder / "sign-language-digits" / "Dataset").glob("*/*"))
    labels = np.array([int(file.parent.name) for file in files])
    images = np.stack([_square(Image.open(file)) for file in files])
    order = np.random.default_rng(0).permutation(len(labels))
    return _cut(images[order], labels[order], SIGNS)


def _photographs(folder: Path) -> TuningSet:
    return _cut(*photographs(folder, TRAIN + TEST), TRAIN)


def photographs(folder: Path, count: int, side: int = SIDE) -> tuple[Images, Labels]:
    """Return so many of CIFAR-10's training images, in random order, and their labels."""
    names, contents = [], []
    with tarfile.open(folder / "cifar10-jpg.tar.xz") as archive:
        for member in archive:
            parts = Path(member.name).parts
            if member.isfile() and "train" in parts and member.name.endswith(".jpg"):
                file = archive.extractfile(member)
                assert file is not None
                names.append(parts[-2])
                contents.append(file.read())
    classes = sorted(set(names))
    chosen = np.random.default_rng(0).permutation(len(names))[:count]
    images = np.stack([_square(Image.open(io.BytesIO(contents[each])), side) for each in chosen])
    return images, np.array([classes.index(names[each]) for each in chosen])


def _clothes(folder: Path) -> TuningSet:
    pixels = _idx(folder / "fashion-mnist" / "train-images-idx3-ubyte.gz", 16).reshape(-1, 28, 28)
    labels = _idx(folder / "fashion-mnist" / "train-labels-idx1-ubyte.gz", 8).astype(np.int64)
    chosen = np.random.default_rng(0).permutation(len(labels))[: TRAIN + TEST]
    images = np.stack([_square(Image.fromarray(pixels[each])) for each in chosen])
    return _cut(images, labels[chosen], TRAIN)


def _nuclei(folder: Path) -> TuningSet:
    random = np.random.default_rng(0)
    images, labels, numbers = nuclei_squares(folder, random)
    trained = (int(numbers[-1]) + 1) * 3 // 4 * SQUARES
    order = np.concatenate([random.permutation(trained), np.arange(trained, len(labels))])
    return _cut(images[order], labels[order], trained)


def nuclei_squares(folder: Path, random: np.random.Generator) -> tuple[Images, Labels, Labels]:
    """Return squares of microscope images, their labels, and the number of the image that each is from."""
    images, labels, numbers = [], [], []
    for number, file in enumerate(sorted((folder / "nuclei" / "images").iterdir())):
        pixels = np.asarray(Image.open(file).convert("RGB"))
        mask = np.asarray(Image.open(folder / "nuclei" / "masks" / file.name))
        for _ in range(SQUARES):
            middle = [int(random.integers(SQUARE // 2, length - SQUARE // 2)) for length in mask.shape]
            top, left = (each - SQUARE // 2 for each in middle)
            cut = np.s_[top : top + SQUARE, left : left + SQUARE]
            images.append(_square(Image.fromarray(pixels[cut])))
            count = len(set(np.unique(mask[cut]).tolist()) - {0})
            labels.append(sum(count >= least for least in (1, 3, 6)))
            numbers.append(number)
    return np.stack(images), np.array(labels), np.array(numbers)


def write_parts(made: TuningSet, file: Path, *, train: int) -> None:
    """Write the first images of the training part, and the test part in two: a third of it validates.

    So training, validation and test squares of `nuclei` come from different microscope images.
    """
    third = len(made.test_labels) // 3
    np.savez(
        file,
        train_images=made.train[:train],
        train_labels=made.train_labels[:train],
        val_images=made.test[:third],
        val_labels=made.test_labels[:third],
        test_images=made.test[third:],
        test_labels=made.test_labels[third:],
    )


SETS: dict[str, Callable[[Path], TuningSet]] = {
    "signs": _signs,
    "photographs": _photographs,
    "clothes": _clothes,
    "nuclei": _nuclei,
}


def _cut(images: Images, labels: Labels, train: int) -> TuningSet:
    return TuningSet(images[:train], labels[:train], images[train:], labels[train:])


def _square(image: Image.Image, side: int = SIDE) -> Images:
    return np.asarray(image.convert("RGB").resize((side, side), Image.Resampling.BICUBIC))


def _idx(file: Path, header: int) -> Images:
    with gzip.open(file) as opened:
        return np.frombuffer(opened.read(), np.uint8, offset=header)
