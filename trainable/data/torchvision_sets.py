"""Reads torchvision's classification data sets, by their names, from a root folder."""

from __future__ import annotations

import os
from collections.abc import Container
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, final, get_args

import numpy as np

from trainable.array_types import Integers
from trainable.data.source import Collection, FileSource, Flip, Source
from trainable.errors import DataError, quoted
from trainable.recipe.data import Split

if TYPE_CHECKING:
    from PIL import Image

HORIZONTAL: tuple[Flip, ...] = ("horizontal",)


class Layout(NamedTuple):
    """How each part of a data set is asked for: the arguments besides its root."""

    train: dict[str, Any]
    validation: dict[str, Any] | None = None
    test: dict[str, Any] | None = None
    flips: tuple[Flip, ...] = ()


_FLAG = ({"train": True}, None, {"train": False})
_SPLIT = ({"split": "train"}, None, {"split": "test"})
_THREE = ({"split": "train"}, {"split": "val"}, {"split": "test"})
_TRAINVAL = ({"split": "trainval"}, None, {"split": "test"})

# The data sets known here, with the flips under which their labels survive and why
LAYOUTS = {
    # Digits, letters and signs are not themselves in a mirror.
    "MNIST": Layout(*_FLAG),
    "KMNIST": Layout(*_FLAG),
    "USPS": Layout(*_FLAG),
    "SVHN": Layout(*_SPLIT),
    "GTSRB": Layout(*_SPLIT),
    # Clothes, photographs of things, animals, plants, food, textures: left and right mean nothing.
    "FashionMNIST": Layout(*_FLAG, HORIZONTAL),
    "CIFAR10": Layout(*_FLAG, HORIZONTAL),
    "CIFAR100": Layout(*_FLAG, HORIZONTAL),
    "STL10": Layout(*_SPLIT, HORIZONTAL),
    "Food101": Layout(*_SPLIT, HORIZONTAL),
    "Flowers102": Layout(*_THREE, HORIZONTAL),
    "OxfordIIITPet": Layout(*_TRAINVAL, HORIZONTAL),
    "DTD": Layout(*_THREE, HORIZONTAL),
    "FGVCAircraft": Layout(*_THREE, HORIZONTAL),
    "ImageNet": Layout({"split": "train"}, {"split": "val"}, None, HORIZONTAL),
    # Seen from above, there is no upright either.
    "EuroSAT": Layout({}, flips=("horizontal", "vertical")),
}


# Under one of these names a data set lists its files: their paths, or pairs of a path and a label
FILES = ("_image_files", "_images", "samples", "_samples")


@final
class TorchvisionSource(Source):
    """One part of a torchvision data set that is stored in arrays."""

    encoded, travels = False, True

    def __init__(self, dataset: Any, labels: Integers) -> None:
        self.dataset = dataset
        self.labels = labels

    def open(self, index: int) -> Image.Image:
        image: Image.Image = self.dataset[index][0]
        return image

    def content(self, index: int) -> bytes:
        return self.open(index).tobytes()

    def name(self, index: int) -> str:
        return str(index)

    def sizes_and_times(self, indices: Integers) -> Integers:
        return np.zeros((len(indices), 2), np.int64)


def read(
    name: str | None, root: Path, may_fetch: bool = False, left_out: Container[Split] = ()
) -> Collection:
    """Return the data set called `name` under `root`;
    fetches it only with `may_fetch`, and only if it is missing.

    Raises DataError if the name is not known, or the files are missing or broken.
    """
    if name not in LAYOUTS:
        known = ", ".join(sorted(LAYOUTS))
        raise DataError(f"data.name: expected one of torchvision's {known}; got {name!r}")
    layout = LAYOUTS[name]
    datasets = {
        part: open_part(name, root, arguments, may_fetch)
        for part, arguments in zip(get_args(Split), layout[:3], strict=True)
        if arguments is not None and part not in left_out
    }
    labels = {part: _labels(dataset) for part, dataset in datasets.items()}
    known_labels = np.unique(np.concatenate(list(labels.values())))
    sources: dict[Split, Source] = {}
    for part, dataset in datasets.items():
        numbers = np.searchsorted(known_labels, labels[part]).astype(np.int64)
        if len(paths := _paths(dataset, root)) == len(numbers):
            sources[part] = FileSource(str(root), paths, numbers)
        else:
            sources[part] = TorchvisionSource(dataset, numbers)
    return Collection(
        str(root),
        "torchvision",
        _classes(datasets["train"], known_labels),
        sources,
        layout.flips,
    )


def open_part(name: str, root: Path, arguments: dict[str, Any], may_fetch: bool) -> Any:
    """Return one part as torchvision's object. Raises DataError if files are missing."""
    from torchvision import datasets  # seconds to import: only where it is used

    kind = getattr(datasets, name)
    try:
        return kind(str(root), **arguments)
    except (RuntimeError, OSError) as error:
        if not may_fetch:
            reason = str(error).split(". You can use")[0]
            raise DataError(
                f"{root}: torchvision's {name}: {reason}. `tunebook check` with --download fetches it"
            ) from error
    try:
        return kind(str(root), **arguments, download=True)
    except (RuntimeError, OSError, TypeError) as error:  # TypeError: ImageNet has no `download`
        raise DataError(f"{root}: torchvision's {name} could not be fetched: {error}") from error


def _labels(dataset: Any) -> Integers:
    """Return the labels without decoding an image; torchvision's data sets have them under these names."""
    for attribute in ("targets", "labels", "_labels"):
        if attribute in vars(dataset):
            return np.asarray(vars(dataset)[attribute], dtype=np.int64)
    return np.array([label for _, label in dataset._samples], dtype=np.int64)


def _paths(dataset: Any, root: Path) -> list[str]:
    """Return the files of a data set's images, relative to the root; none if it does not list them.

    Raises DataError for files outside of the root: whoever made the lists may have named this machine's own.
    """
    listed = next((vars(dataset)[name] for name in FILES if name in vars(dataset)), ())
    files = (each[0] if isinstance(each, tuple) else each for each in listed)
    paths = [os.path.relpath(each, root) for each in files]
    if outside := [path for path in paths if Path(path).parts[0] == os.pardir]:
        raise DataError(
            f"{root}: its lists name images outside of it, {len(outside):,} in all, the first "
            f"{quoted(outside[0])}; expected the lists as they were published: fetch the data set anew"
        )
    return paths


def _classes(dataset: Any, known: Integers) -> tuple[str, ...]:
    """Return the classes' names if torchvision has them (several synonyms for ImageNet's),
    else their numbers."""
    names = getattr(dataset, "classes", None)
    if names is None or len(names) <= known.max():
        return tuple(str(label) for label in known)
    chosen = [names[label] for label in known]
    return tuple(name if isinstance(name, str) else ", ".join(name) for name in chosen)
