"""What a bundle has of a network that gives each pixel a label: `model.onnx`, `predict.py`, and its page."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from trainable.array_types import Integers
from trainable.data import DataInfo, DataSet, Split
from trainable.data.decode import upright
from trainable.data.loading import statistics_of
from trainable.data.source import Pixels
from trainable.errors import visible
from trainable.markdown import between, code, code_block, numbers, table
from trainable.recipe import Recipe
from trainable.recipe.tasks import Segmentation
from trainable.tasks.exporter import (
    AXES,
    IMAGES_TRACED,
    Agreement,
    CardWords,
    Example,
    Exporter,
    NumpyAnswer,
    Parity,
    body_of,
    colours_of,
    embedded,
    views_in_words,
)
from trainable.tasks.segmentation.data.assembly import stored_parts
from trainable.tasks.segmentation.data.loading import PIXELS_AT_ONCE
from trainable.tasks.segmentation.data.parts import MaskedFilePart, MaskedPart, image_planes
from trainable.tasks.segmentation.exported import whole_images
from trainable.tasks.segmentation.exported.whole_images import class_logits
from trainable.tasks.segmentation.predicted import KeptMasks, PredictedMasks, png_of, voc_colours
from trainable.training.bootstrap import Intervals
from trainable.training.evaluate import Scores, make_views

SCRIPT = Path(__file__).with_name("predict.py")
TITLES = {"iou": "IoU", "dice": "Dice", "boundary_f1": "boundary F1"}


@final
class Segmenter(nn.Module):
    """Square windows of images -> logits of each pixel: float32 [N, side, side, C] -> float32 [N, classes,
    side, side].

    Levels are in [0, 255]; C is 1 (grey) or 3 (RGB). `whole_images` cuts images of any size into windows, and
    joins their logits.
    """

    def __init__(self, network: nn.Module, *, side: int, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.network, self.side = network, side
        self.mean: Tensor
        self.std: Tensor
        for name, values in (("mean", mean), ("std", std)):
            self.register_buffer(name, torch.tensor(values).mul(255.0).view(1, -1, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.network((images.permute(0, 3, 1, 2) - self.mean) / self.std)
        if logits.shape[-2:] == (self.side, self.side):
            return logits
        return functional.interpolate(logits, size=(self.side, self.side), mode="bilinear")


@final
@dataclass(frozen=True)
class MaskExporter(Exporter):
    """A segmenter: windows float32 [N, side, side, C] -> logits float32 [N, classes, side, side]."""

    recipe: Recipe  # of a run (`Run.recipe`): no field of `data` is open
    info: DataInfo
    section: Segmentation  # the recipe's

    words: ClassVar[CardWords] = CardWords(
        hub_task="image-segmentation",
        network="A network that names the class of each pixel, which",
        metric="mean_iou",
        metric_title="mean IoU",
        compared="pixels",
        of_them="of their pixels",
        of_part="the pixels of the",
        answer="its answer to each pixel",
    )
    output: ClassVar[str] = "logits"

    @property
    def most_at_once(self) -> int:
        """So many windows a run scores together."""
        return max(1, PIXELS_AT_ONCE // self.info.image_size**2)

    def module(self, network: nn.Module) -> Segmenter:
        mean, std = statistics_of(self.recipe.data, self.info)
        made = Segmenter(network.float(), side=self.info.image_size, mean=mean, std=std)
        return made.eval().requires_grad_(False)

    def example(self) -> Example:
        side = self.info.image_size
        return Example(torch.zeros(IMAGES_TRACED, side, side, self.info.channels), AXES[:1])

    def about(self) -> dict[str, Any]:
        """Return the names of the classes, the value of each in the file of a mask, and how images are cut
        into windows and seen."""
        info, side = self.info, self.info.image_size
        views = make_views(self.recipe.evaluation, side)
        return {
            "classes": list(info.classes),
            "values": list(info.mask_values or range(len(info.classes))),
            "channels": info.channels,
            "side": side,
            "overlap": self.section.overlap,
            "views": [[1.0 if view.size is None else view.size / side, view.mirrored] for view in views],
        }

    def script(self) -> str:
        ours = (upright, visible, png_of, voc_colours)
        return embedded(SCRIPT, body_of(whole_images), *(inspect.getsource(each) for each in ours))

    def batch(self, images: Pixels) -> NDArray[Any]:
        return images.astype(np.float32)

    def parity(self, data: DataSet, part: Split) -> Parity:
        return MaskParity(self, data, part)

    def predictions(self, data: DataSet, folder: Path, out: Path | None) -> PredictedMasks:
        return PredictedMasks(data, folder, out)

    def uses(self) -> Iterator[str]:
        yield code_block(
            "sh",
            "pip install onnxruntime pillow numpy\npython predict.py DIR IMAGE...    # masks as PNG, in DIR",
        )
        yield (
            "`model.onnx` and `model.pt2` are functions of square windows: normalisation is inside, and "
            "`class_logits` of `predict.py` cuts an image of any size into windows and joins their answers."
        )
        yield code_block(
            "python",
            "import onnxruntime\n"
            'session = onnxruntime.InferenceSession("model.onnx")\n'
            '(logits,) = session.run(None, {"images": windows})    # float32 [N, side, side, C]\n\n'
            "import torch\n"
            'segment = torch.export.load("model.pt2").module()\n'
            "logits = segment(windows)    # a tensor, float32 [N, side, side, C]",
        )
        yield "There are no files for timm, whose networks classify images."

    def takes_and_gives(self) -> dict[str, str]:
        info, side = self.info, self.info.image_size
        mean, std = statistics_of(self.recipe.data, info)
        values = zip(self.about()["values"], info.classes, strict=True)
        return {
            "images": f"of any height and width, {colours_of(info)}, upright (`predict.py` turns them as "
            "EXIF says)",
            "windows": f"float32 [N, {side}, {side}, {info.channels}], levels in [0, 255]: a larger image is "
            f"cut into windows that overlap by {self.section.overlap:.0%} of their side or more, and their "
            "logits are averaged; a smaller one is filled up with black (0)",
            "inside": f"on [0, 1], normalised by mean {numbers(mean)} and std {numbers(std)}",
            "views": views_in_words(self.recipe.evaluation),
            "logits": f"float32 [N, {len(info.classes)}, {side}, {side}], in the order of the classes; "
            "computed in fp32",
            "masks": "`predict.py` writes the values of the training masks: "
            + ", ".join(f"{value} {code(name)}" for value, name in values),
        }

    def by_class(self, scores: Scores, sure: Intervals) -> str:
        found = scores.by_class
        head = ["class", *(column for name in found for column in (TITLES[name], "95 % interval"))]

        def cells(at: int) -> Iterator[str]:
            for name, values in found.items():
                value = values[at]
                yield "" if value is None else f"{value:.4f}"
                yield between(sure.by_class[name][at])

        return table(head, ([code(name), *cells(at)] for at, name in enumerate(self.info.classes)))


@final
class MaskParity(Parity):
    """The likeliest class of each pixel of a part's images, as a run answers."""

    def __init__(self, exporter: MaskExporter, data: DataSet, part: Split) -> None:
        self._exporter, self._data, self._part, self._kept = exporter, data, part, KeptMasks()

    def take(self, positions: Integers, outputs: Tensor) -> None:
        self._kept.take(positions, outputs)

    def same(self, answer: NumpyAnswer) -> Agreement:
        exporter = self._exporter
        images = stored_images(self._data, exporter.recipe, exporter.section, self._part)
        return same_pixels(answer, images, exporter.about(), self._kept)


def stored_images(data: DataSet, recipe: Recipe, section: Segmentation, part: Split) -> Iterator[Pixels]:
    """Yield a part's images in its order as `predict.py` decodes them: uint8 [H, W, C].

    Of images that Python gave as arrays, what is in memory is all there is.
    """
    held = data.parts[part]
    if recipe.data.own and isinstance(held, MaskedPart):
        positions = np.arange(len(held))
        yield from (
            np.moveaxis(each[:-1], 0, -1) for each in image_planes(held, positions, data.info.channels)
        )
        return
    if isinstance(held, MaskedFilePart):
        selection = held.selection
    else:
        selection = stored_parts(recipe.data, section.masks)[0][part]
    for index in selection.indices.tolist():
        with selection.source.open(index) as image:
            pixels = np.asarray(upright(image, data.info.channels))
            yield pixels[:, :, None] if pixels.ndim == 2 else pixels


def same_pixels(
    answer: NumpyAnswer, images: Iterable[Pixels], about: dict[str, Any], expected: KeptMasks
) -> Agreement:
    """Return for how many of all pixels a file has the class of the masks that a run gave."""
    same = pixels = 0
    for position, image in enumerate(images):
        found = class_logits(answer, image, about).argmax(0)
        same += int((found == expected.mask(position)).sum())
        pixels += found.size
    return Agreement(same, pixels)
