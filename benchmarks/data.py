"""Measures how many images a second of processor time a run gets from files and from the cache.

    python benchmarks/data.py --data FOLDER [--rounds 7] [--count 600]

Images are JPEGs of 500 x 375, made from the Sign Language Digits below FOLDER (as the tests' TUNEBOOK_DATA),
and are wanted at 224 px. One process with one thread does what the host must do for a batch; augmentation is
the device's work and is left out. Arms take turns within a round:

- `ImageFolder`: torchvision's, with its Resize and PILToTensor, as is written by hand: one image at a time;
- `Pillow`: decodes and resizes with Pillow, one image at a time, as tunebook did before it had a cache;
- `files, no torchcodec`: tunebook's readers where torchcodec does not load: torch resizes;
- `files`: tunebook's readers: torchcodec decodes, and torch resizes;
- `bound`: these two steps alone, from bytes in memory to nowhere: no first epoch of these pixels is faster;
- `first epoch`: decodes all images into a new cache, waits for the disk, and gathers all batches from it;
- `first epoch, crops`: the same with the larger squares too, from which resized crops are cut;
- `later epoch` and `later epoch, crops`: gather all batches from the cache, whose pages are in memory.

A ratio is the median over rounds of the ratio within a round to `ImageFolder`, or to `Pillow`, with least
and most.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.nn.functional import interpolate
from torchvision.datasets import ImageFolder
from torchvision.transforms.v2 import Compose, PILToTensor, Resize

from report import described, environment, in_rounds, plain, ratio, write
from trainable.data import DataSet, FilePart
from trainable.data.arrays import as_tensor
from trainable.data.assembly import load
from trainable.data.decode import jpeg_pixels, square, to_array, upright
from trainable.data.jpeg_decoder import decode as decode_jpeg
from trainable.data.prefetch import prefetched
from trainable.data.readers import FileBatch, FileImages
from trainable.data.source import FileSource, Integers, Pixels
from trainable.recipe.data import Data

SIDE, DETAIL, BATCH = 224, 256, 64
NOISE, QUALITY = 12.0, 93
"""These make files of about 87 kB, as photographs of this size have."""
BASES = "ImageFolder", "Pillow"
COPIES = 10
"""A later epoch is read so many times in a slice, or it would be too short to time."""


def main() -> None:
    options = _options()
    torch.set_num_threads(1)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])  # one thread decodes
    where = environment(1)
    with tempfile.TemporaryDirectory(dir=options.disk) as folder:
        data = photographs(Path(options.data), Path(folder), options.count)
        arms = arms_of(data, Path(folder))
        slices = in_rounds(arms, options.rounds)
        kilobytes = statistics.mean(file.stat().st_size for file in Path(folder).rglob("*.jpg")) / 1e3
        apart = parity(data)
    ratios = {
        base: {arm: ratio(slices[arm], slices[base], lambda each: each.thrift) for arm in arms}
        for base in BASES
    }
    rows = [
        " | ".join([f"| {arm}", rates(slices[arm]), *(shown(ratios[base][arm]) for base in BASES)]) + " |"
        for arm in arms
    ]
    page = (
        "# What images cost\n\nImages a second of processor time, with one thread, and their ratio to "
        f"ImageFolder's and to Pillow's: median, least and most of n = {options.rounds} rounds. "
        f"{data.info.train_images} training and {data.info.validation_images} validation images, JPEG of "
        f"500 x 375 with {kilobytes:.0f} kB, at {SIDE} px.\n\n"
        "| arm | images a second | to ImageFolder | to Pillow |\n|-|-|-|-|\n"
        + "\n".join(rows)
        + f"\n\n{apart}\n\n"
    )
    record: dict[str, Any] = {
        "environment": where,
        "ratios": ratios,
        "slices": plain(slices),
        "parity": apart,
    }
    write(options.name, record, page + described(where))


def photographs(data: Path, folder: Path, count: int) -> DataSet:
    """Write enlarged images with noise, without which a JPEG is too cheap, and load them."""
    found = sorted((data / "sign-language-digits" / "Dataset").glob("*/*"))
    for number, small in enumerate(found[:: len(found) // count]):
        large = Image.open(small).convert("RGB").resize((500, 375), Image.Resampling.BICUBIC)
        noise = np.random.default_rng(number).normal(0.0, NOISE, (375, 500, 3))
        path = folder / "photos" / small.parent.name / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.clip(np.asarray(large) + noise, 0.0, 255.0).astype(np.uint8)
        Image.fromarray(pixels).save(path, quality=QUALITY)
    spec = Data(path=str(folder / "photos"), image_size=SIDE, in_memory=False, test_fraction=0.0)
    return load(spec)


def arms_of(data: DataSet, folder: Path) -> dict[str, Callable[[], float]]:
    ready = [with_cache(data, folder / f"ready-{crops}", crops) for crops in (False, True)]
    for each in ready:
        each.be_here()
    files = contents(data)
    fresh = (folder / f"fresh-{number}" for number in range(10**6))
    return {
        "ImageFolder": lambda: from_image_folder(data, folder / "photos"),
        "Pillow": lambda: from_files(data, pillow_square),
        "files, no torchcodec": lambda: from_files(data, lambda image: without_torchcodec(image, data)),
        "files": lambda: through_readers(data),
        "bound": lambda: decoded_and_resized(files),
        "first epoch": lambda: first_epoch(with_cache(data, next(fresh), crops=False), SIDE),
        "first epoch, crops": lambda: first_epoch(with_cache(data, next(fresh), crops=True), DETAIL),
        "later epoch": lambda: sum(from_cache(ready[0], SIDE) for _ in range(COPIES)),
        "later epoch, crops": lambda: sum(from_cache(ready[1], DETAIL) for _ in range(COPIES)),
    }


def with_cache(data: DataSet, folder: Path, crops: bool) -> DataSet:
    assert data.cache is not None
    return replace(data, cache=replace(data.cache, root=str(folder)), crops=crops)


def batches(data: DataSet) -> Iterator[tuple[Any, Integers]]:
    """Yield an epoch's batches: the training part in random order, then the validation part."""
    order = np.random.default_rng(0).permutation(data.info.train_images)
    for name, positions in (("train", order), ("validation", np.arange(data.info.validation_images))):
        for start in range(0, len(positions), BATCH):
            yield name, positions[start : start + BATCH]


def from_files(data: DataSet, square_of: Callable[[Image.Image], Pixels]) -> float:
    """Make an epoch's batches from files by a function of one image."""
    done = 0
    for name, positions in batches(data):
        part = data.parts[name]
        assert isinstance(part, FilePart)
        pixels = np.empty((len(positions), 3, SIDE, SIDE), np.uint8)
        for row, index in enumerate(part.selection.indices[positions].tolist()):
            with part.selection.source.open(index) as image:
                pixels[row] = square_of(image)
        done += len(pixels)
    return float(done)


def from_image_folder(data: DataSet, photos: Path) -> float:
    """Make an epoch's batches as a person would by hand."""
    images = ImageFolder(photos, Compose([Resize((SIDE, SIDE)), PILToTensor()]))
    chosen = ((data.selections[name].indices[positions]) for name, positions in batches(data))
    return float(sum(len(torch.stack([images[index][0] for index in each.tolist()])) for each in chosen))


def without_torchcodec(image: Image.Image, data: DataSet) -> Pixels:
    image.load()  # an image that Pillow has decoded is not given to torchcodec
    return square(image, data.form)


def pillow_square(image: Image.Image) -> Pixels:
    return to_array(upright(image, 3).resize((SIDE, SIDE), Image.Resampling.BILINEAR))


def through_readers(data: DataSet) -> float:
    images = FileImages(data.selections, data.form)
    return float(sum(len(images[FileBatch(name, positions, SIDE)]) for name, positions in batches(data)))


def decoded_and_resized(files: list[bytes]) -> float:
    assert decode_jpeg is not None, "torchcodec cannot be imported"
    for content in files:
        interpolate(decode_jpeg(content, mode="RGB")[None], (SIDE, SIDE), mode="bilinear", antialias=True)
    return float(len(files))


def contents(data: DataSet) -> list[bytes]:
    """Return the files of an epoch."""
    return [
        Path(source.root, source.paths[index]).read_bytes()
        for source, indices in data.selections.values()
        if isinstance(source, FileSource)
        for index in indices.tolist()
    ]


def first_epoch(data: DataSet, side: int) -> float:
    data.be_here()
    return from_cache(data, side)


def from_cache(data: DataSet, side: int) -> float:
    """Gather an epoch's batches, as on their way to a GPU: training images of `side` pixels."""
    views, done, found = data.decoded_views(), 0, list(batches(data))
    for name, at in (("train", side), ("validation", SIDE)):
        wanted = [positions for part, positions in found if part == name]
        held = as_tensor(views[name, at])  # type: ignore[index]
        done += sum(len(images) for images in gathered(held, wanted))
    return float(done)


def gathered(held: torch.Tensor, wanted: list[Integers]) -> Iterator[torch.Tensor]:
    """Gather batches into a ring of buffers, without the copy to a device, which a GPU makes by itself."""
    return prefetched(held, wanted, torch.device("cpu"))


def parity(data: DataSet) -> str:
    """Say how far the decoders and the resizing are apart on these images."""
    decoded, resized = 0, 0
    source, indices = data.selections["train"]
    for index in indices.tolist():
        with source.open(index) as image:
            found = jpeg_pixels(image, 3)
        with source.open(index) as image:
            pillow = to_array(upright(image, 3))
        assert found is not None
        decoded = max(decoded, int(np.abs(found.numpy().astype(int) - pillow).max()))
    ours = FileImages(data.selections, data.form)[FileBatch("train", np.arange(len(indices)), SIDE)].numpy()
    for row, index in enumerate(indices.tolist()):
        with source.open(index) as image:
            resized = max(resized, int(np.abs(ours[row].astype(int) - pillow_square(image)).max()))
    return (
        f"Over {len(indices)} images, torchcodec's pixels differ from Pillow's by {decoded} levels at most, "
        f"and the squares by {resized}."
    )


def rates(arm: Any) -> str:
    found = [each.thrift for each in arm]
    return f"{statistics.median(found):,.0f} ({min(found):,.0f} to {max(found):,.0f})"


def shown(figure: dict[str, float]) -> str:
    return f"{figure['median']:.2f} ({figure['min']:.2f} to {figure['max']:.2f})"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure what images cost, from files and from the cache.")
    parser.add_argument(
        "--data", default=os.environ.get("TUNEBOOK_DATA"), help="a folder with sign-language-digits"
    )
    parser.add_argument("--count", type=int, default=600, help="images, for several blocks of the cache")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--disk", help="the folder in which images and caches are written for a while")
    parser.add_argument("--name", default="data")
    options = parser.parse_args()
    if options.data is None:
        parser.error("--data: give the folder, or set TUNEBOOK_DATA")
    return options


if __name__ == "__main__":
    main()
