"""What a bundle has of a network that gives an image one label: its files, `predict.py` and its page."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from typing import Any, ClassVar, NoReturn, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from trainable.array_types import Integers
from trainable.data import DataInfo, DataSet, Split
from trainable.data.assembly import stored_parts
from trainable.data.decode import Form, enough_pixels, upright
from trainable.data.loading import statistics_of
from trainable.data.parts import ArrayPart, FilePart
from trainable.data.source import Pixels, Selection
from trainable.errors import UserError, visible
from trainable.markdown import code_block, numbers
from trainable.recipe import Recipe
from trainable.recipe.data import Data
from trainable.recipe.training import CenterCrop
from trainable.tasks.classification.exported.classifier import Classifier
from trainable.tasks.exporter import (
    AXES,
    IMAGES_TRACED,
    Agreement,
    CardWords,
    Example,
    Exporter,
    NumpyAnswer,
    Parity,
    colours_of,
    embedded,
    views_in_words,
)
from trainable.training.bootstrap import Intervals
from trainable.training.evaluate import Scores, make_views

SCRIPT = Path(__file__).with_name("predict.py")
SIZE_TRACED = (24, 32)
AT_ONCE = 32  # images of one size that follow each other are answered together


@final
@dataclass(frozen=True)
class LabelExporter(Exporter):
    """A classifier: images uint8 [N, H, W, C] of any size -> probabilities float32 [N, classes]."""

    recipe: Recipe  # of a run (`Run.recipe`): no field of `data` is open
    info: DataInfo

    words: ClassVar[CardWords] = CardWords(
        hub_task="image-classification",
        network="An image classifier that",
        metric="accuracy",
        metric_title="accuracy",
        compared="images",
        of_them="of them",
        of_part="the",
        answer="its answer",
    )
    output: ClassVar[str] = "probabilities"

    @property
    def most_at_once(self) -> None:
        return None

    @property
    def squares(self) -> Form:
        """The squares that images become inside the network."""
        info = self.info
        return Form(info.channels, info.image_size, self.recipe.evaluation.resize, info.interpolation)

    def module(self, network: nn.Module) -> Classifier:
        mean, std = statistics_of(self.recipe.data, self.info)
        views = make_views(self.recipe.evaluation, self.info.image_size)
        made = Classifier(network.float(), self.squares, mean=mean, std=std, views=views)
        return made.eval().requires_grad_(False)

    def example(self) -> Example:
        batch = torch.zeros(IMAGES_TRACED, *SIZE_TRACED, self.info.channels, dtype=torch.uint8)
        return Example(batch, AXES)

    def about(self) -> dict[str, Any]:
        """Return the names of the classes, and how images are decoded."""
        return {
            "classes": list(self.info.classes),
            "channels": self.info.channels,
            "enough": enough_pixels(self.squares),
        }

    def script(self) -> str:
        return embedded(SCRIPT, inspect.getsource(upright), inspect.getsource(visible))

    def batch(self, images: Pixels) -> NDArray[Any]:
        return images

    def parity(self, data: DataSet, part: Split) -> Parity:
        return LabelParity(self, data, part)

    def predictions(self, data: DataSet, folder: Path, out: Path | None) -> NoReturn:
        raise UserError(
            "--predict: it writes masks, which a segmentation predicts, and this recipe classifies images "
            "(task.kind); predict.py of `tunebook bundle` names the class of any image"
        )

    def uses(self) -> Iterator[str]:
        yield code_block(
            "sh",
            "pip install onnxruntime pillow numpy\npython predict.py IMAGE...    # file, class, probability",
        )
        yield "`model.onnx` and `model.pt2` are functions of pixels: all preprocessing is inside."
        yield code_block(
            "python",
            "import onnxruntime\n"
            'session = onnxruntime.InferenceSession("model.onnx")\n'
            '(probabilities,) = session.run(None, {"images": images})    # uint8 [N, H, W, C]\n\n'
            "import torch\n"
            'classify = torch.export.load("model.pt2").module()\n'
            "probabilities = classify(images)    # a tensor, uint8 [N, H, W, C]",
        )

    def takes_and_gives(self) -> dict[str, str]:
        info, side, resize = self.info, self.info.image_size, self.recipe.evaluation.resize
        mean, std = statistics_of(self.recipe.data, info)
        shape = "stretched"
        if isinstance(resize, CenterCrop):
            shape = f"cut to their middle square, {resize.ratio:g} of the shorter side, and resized"
        return {
            "images": f"uint8 [N, H, W, {info.channels}], {colours_of(info)}, of any height and width, "
            "upright (`predict.py` turns them as EXIF says)",
            "inside": f"{shape} to {side} x {side} px by an antialiased {info.interpolation} filter; then, "
            f"on [0, 1], normalised by mean {numbers(mean)} and std {numbers(std)}",
            "views": views_in_words(self.recipe.evaluation),
            "probabilities": f"float32 [N, {len(info.classes)}], in the order of the classes; computed in "
            "fp32",
        }

    def by_class(self, scores: Scores, sure: Intervals) -> None:
        return None


@final
class LabelParity(Parity):
    """The likeliest class of each image of a part, as a run answers."""

    def __init__(self, exporter: LabelExporter, data: DataSet, part: Split) -> None:
        self._exporter, self._data, self._part = exporter, data, part
        self._expected = np.zeros(len(data.parts[part]), np.int64)

    def take(self, positions: Integers, outputs: Tensor) -> None:
        self._expected[positions] = outputs.argmax(1).cpu().numpy()

    def same(self, answer: NumpyAnswer) -> Agreement:
        about, spec = self._exporter.about(), self._exporter.recipe.data
        found = top_classes(answer, stored_images(self._data, spec, self._part, about))
        return Agreement(int((found == self._expected).sum()), len(self._expected))


def stored_images(data: DataSet, spec: Data, part: Split, about: dict[str, Any]) -> Iterator[Pixels]:
    """Yield a part's images in its order as `predict.py` decodes them: uint8 [H, W, C], at their own sizes.

    Of images that Python gave as arrays, the squares are all there is.
    """
    held = data.parts[part]
    if isinstance(held, FilePart):
        selection = held.selection
    elif spec.own and isinstance(held, ArrayPart):
        yield from np.moveaxis(held.images, 1, -1)
        return
    else:
        selection = stored_parts(spec)[0][part]
    yield from _decoded(selection, about)


def _decoded(selection: Selection, about: dict[str, Any]) -> Iterator[Pixels]:
    from trainable.tasks.classification.exported.predict import stored_pixels  # it imports onnxruntime

    for index in selection.indices.tolist():
        with selection.source.open(index) as image:
            yield stored_pixels(image, about)


def top_classes(answer: NumpyAnswer, images: Iterable[Pixels]) -> Integers:
    """Return the likeliest class of each image [H, W, C], int64 [N]; of equals the first."""
    found = [answer(np.stack(batch)).argmax(1) for batch in _batches(images)]
    return np.concatenate(found)


def _batches(images: Iterable[Pixels]) -> Iterator[list[Pixels]]:
    for _, alike in groupby(images, key=np.shape):
        while batch := list(islice(alike, AT_ONCE)):
            yield batch
