"""Compares what it costs a loader's worker to augment a whole batch, and image by image by torchvision's v2.

    python benchmarks/file_augmentation.py --data FOLDER [--rounds 9] [--count 128]

One process with one thread, as a worker is, decodes and augments a folder's images in batches of 64.
`tunebook` is trainable.data.readers.FileImages, and `one at a time` the same in batches of one.
`torchvision` is what stood there before: a crop and flips of the PIL image, then the policy on its tensor,
drawn from torch's global generator, which is seeded for each image. FOLDER holds Fashion-MNIST and the Sign
Language Digits, as the tests' TUNEBOOK_DATA.

All arms read the same images in a slice, and take turns within a round; a ratio is the median over rounds of
the ratio within a round, by processor time, with least and most.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, assert_never

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from report import Slice, described, environment, in_rounds, plain, ratio, write
from trainable.augmentation.geometry import padding
from trainable.data import ArrayPart, DataSet, FilePart
from trainable.data.assembly import load
from trainable.data.decode import Form, upright
from trainable.data.loading import train_side
from trainable.data.readers import Augmented, FileBatch, FileImages
from trainable.data.source import Integers
from trainable.recipe import Recipe
from trainable.recipe.augmentations import (
    SCALED_NEEDS_MASKS,
    Augmentation,
    AutoAugment,
    NoCrop,
    NoPolicy,
    PadCrop,
    RandAugment,
    ResizedCrop,
    ScaledCrop,
    TrivialAugment,
)
from trainable.recipe.data import Data

BATCH = 64
CASES = {
    "nothing": Augmentation(crop=NoCrop(), flip_probability=0.0),
    "pad crop, flip": Augmentation(crop=PadCrop()),
    "resized crop, flip": Augmentation(crop=ResizedCrop()),
    "resized crop, flip, RandAugment": Augmentation(crop=ResizedCrop(), policy=RandAugment()),
    "resized crop, flip, TrivialAugment": Augmentation(crop=ResizedCrop(), policy=TrivialAugment()),
    "resized crop, flip, AutoAugment": Augmentation(crop=ResizedCrop(), policy=AutoAugment()),
}


def main() -> None:
    options = _options()
    torch.set_num_threads(1)
    where = environment(1)  # its load is written down; slices in turn, by processor time, bear a busy machine
    record: dict[str, Any] = {"environment": where}
    pages = []
    with tempfile.TemporaryDirectory() as folder:
        for title, root, side in image_sets(Path(options.data), Path(folder), options.count):
            data = load(Data(path=str(root), image_size=side, flips=("horizontal",), in_memory=False))
            record[title], page = compared(title, data, options)
            pages.append(page)
    write(
        options.name,
        record,
        "# What augmenting costs a worker\n\n" + "\n".join(pages) + "\n" + described(where),
    )


def image_sets(data: Path, folder: Path, count: int) -> Iterator[tuple[str, Path, int]]:
    """Yield what is read, where it is, and the requested side in pixels; files are written first."""
    yield "Fashion-MNIST as PNG of 28 x 28, at 28", fashion_files(data, folder / "fashion", 2 * count), 28
    digits = data / "sign-language-digits" / "Dataset"
    for side in (64, 96, 100):
        yield f"Sign Language Digits, JPEG of 100 x 100, at {side}", digits, side
    yield "The same enlarged to JPEG of 500 x 375, at 224", photographs(digits, folder / "photos"), 224


def fashion_files(data: Path, folder: Path, count: int) -> Path:
    part = load(Data(path=str(data / "fashion-mnist"), in_memory=True)).train
    assert isinstance(part, ArrayPart)
    for number, (pixels, label) in enumerate(zip(part.images[:count, 0], part.labels[:count], strict=True)):
        path = folder / str(label) / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
    return folder


def photographs(digits: Path, folder: Path) -> Path:
    """Write every eighth image, enlarged, with noise of 6 grey levels: a JPEG without it is too cheap."""
    for number, small in enumerate(sorted(digits.glob("*/*"))[::8]):
        large = Image.open(small).convert("RGB").resize((500, 375), Image.Resampling.BICUBIC)
        noise = np.random.default_rng(number).normal(0.0, 6.0, (375, 500, 3))
        pixels = np.clip(np.asarray(large) + noise, 0.0, 255.0).astype(np.uint8)
        path = folder / small.parent.name / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path, quality=90)
    return folder


def compared(title: str, data: DataSet, options: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """Return rates with each augmentation, and our rates over torchvision's, by processor time."""
    count = min(options.count, data.info.train_images)
    figures, rows = {}, []
    for name, augmentation in CASES.items():
        recipe = Recipe(augmentation=augmentation)
        arms = {
            "torchvision": theirs(data, recipe, count),
            "tunebook": ours(data, recipe, count, at_once=BATCH),
            "one at a time": ours(data, recipe, count, at_once=1),
        }
        slices = in_rounds(arms, options.rounds)
        ratios = {
            arm: ratio(slices[arm], slices["torchvision"], lambda each: each.thrift)
            for arm in ("tunebook", "one at a time")
        }
        figures[name] = {"ratios": ratios, "slices": plain(slices)}
        cells = [name, *map(middle, slices.values()), *map(shown, ratios.values())]
        rows.append("| " + " | ".join(cells) + " |")
    head = (
        "| augmentation | torchvision | tunebook | one at a time | tunebook, ratio | one at a time, ratio |"
    )
    page = (
        f"## {title}\n\nImages a second of processor time, and ratios; {count} images a slice, "
        f"n = {options.rounds} rounds.\n\n{head}\n|-|-|-|-|-|-|\n" + "\n".join(rows) + "\n"
    )
    return figures, page


def ours(data: DataSet, recipe: Recipe, count: int, at_once: int) -> Callable[[], float]:
    """Make batches as a worker does now, copied once, as on their way into shared memory."""
    images, side = FileImages(data.selections, data.form), train_side(data, recipe)

    def read(epoch: int, positions: Integers) -> Tensor:
        parts = np.split(positions, range(at_once, len(positions), at_once))
        how = Augmented(recipe.augmentation, data.info.flips, recipe.loop.seed, epoch)
        return torch.cat([images[FileBatch("train", part, side, how)] for part in parts])

    return epochs(count, read)


def theirs(data: DataSet, recipe: Recipe, count: int) -> Callable[[], float]:
    """Make batches as a worker did before: torchvision's v2 augments each image, then they are stacked."""
    assert isinstance(data.train, FilePart)
    source, indices = data.train.selection
    form = Form(data.info.channels, data.info.image_size, data.resize)
    crop_first = isinstance(recipe.augmentation.crop, ResizedCrop)
    transform = torchvision_chain(recipe.augmentation, form.side)

    def read(epoch: int, position: int) -> Tensor:
        with source.open(int(indices[position])) as image:
            shown = upright(image, form.channels) if crop_first else square_of(image, form)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(hash((epoch, position)) % 2**63)
            return transform(shown)

    return epochs(count, lambda epoch, positions: torch.stack([read(epoch, int(at)) for at in positions]))


def square_of(image: Image.Image, form: Form) -> Image.Image:
    """Return the image stretched to the square, as Pillow does it."""
    return upright(image, form.channels).resize((form.side, form.side), Image.Resampling.BILINEAR)


def epochs(count: int, read: Callable[[int, Integers], Tensor]) -> Callable[[], float]:
    """Read the first training images in batches, the same ones each time, in one epoch after another."""
    numbers = iter(range(10**9))
    batches = np.split(np.arange(count), range(BATCH, count, BATCH))

    def epoch() -> float:
        number = next(numbers)
        return float(sum(len(read(number, batch)) for batch in batches))

    return epoch


def torchvision_chain(spec: Augmentation, side: int) -> Callable[[Any], Tensor]:
    """Return crop and flips of a PIL image of mode L or RGB, then the policy on uint8 [C, side, side]."""
    from torchvision.transforms import v2

    flip = [v2.RandomHorizontalFlip(spec.flip_probability)] if spec.flip_probability > 0.0 else []
    chain = [*_crop(spec, side), *flip, v2.PILToTensor(), *_policy(spec)]
    transform: Callable[[Any], Tensor] = v2.Compose(chain)
    return transform


def _crop(spec: Augmentation, side: int) -> list[Any]:
    from torchvision.transforms import v2

    match spec.crop:
        case NoCrop():
            return []
        case PadCrop(fraction=fraction):
            return [v2.RandomCrop(side, padding=padding(fraction, side))]
        case ResizedCrop() as box:
            scale, ratio = (box.scale_min, box.scale_max), (box.ratio_min, box.ratio_max)
            return [v2.RandomResizedCrop(side, scale=scale, ratio=ratio)]
        case ScaledCrop():
            raise ValueError(SCALED_NEEDS_MASKS)
        case _:
            assert_never(spec.crop)


def _policy(spec: Augmentation) -> list[Any]:
    from torchvision.transforms import v2

    match spec.policy:
        case NoPolicy():
            return []
        case RandAugment(num_ops=num_ops, magnitude=magnitude):
            return [v2.RandAugment(num_ops, magnitude)]
        case TrivialAugment():
            return [v2.TrivialAugmentWide()]
        case AutoAugment(policy=policy):
            return [v2.AutoAugment(v2.AutoAugmentPolicy(policy))]
        case _:
            assert_never(spec.policy)


def middle(slices: Sequence[Slice]) -> str:
    return f"{statistics.median(each.thrift for each in slices):,.0f}"


def shown(figure: Mapping[str, float]) -> str:
    return f"{figure['median']:.2f} ({figure['min']:.2f} to {figure['max']:.2f})"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Time the augmentation of image files against torchvision's."
    )
    parser.add_argument("--data", required=True, help="a folder with fashion-mnist and sign-language-digits")
    parser.add_argument("--count", type=int, default=128, help="images a slice")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--name", default="file-augmentation")
    return parser.parse_args()


if __name__ == "__main__":
    main()
