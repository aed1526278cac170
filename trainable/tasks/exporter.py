"""What whoever ships a trained network asks of its task: `Exporter`, which has a class for each kind of task.

`trainable.bundle` writes files, checks and describes them; `search.followers` serves the same network.
"""

from __future__ import annotations

import abc
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from trainable.array_types import Integers
from trainable.data import DataInfo, DataSet, Split
from trainable.data.source import Pixels
from trainable.markdown import numbers
from trainable.recipe.training import Evaluation
from trainable.training.bootstrap import Intervals
from trainable.training.evaluate import Scores

# A file as the function that it is: a batch [N, H, W, C] -> what `Exporter.output` names, [N, ...]
NumpyAnswer = Callable[[NDArray[Any]], NDArray[np.float32]]

AXES = ("batch", "height", "width")  # of a batch, without the channels
IMAGES_TRACED = 2  # torch would fix a size of 1


@dataclass(frozen=True)
class CardWords:
    """How a task is spoken of on the page of a bundle, and while it is written."""

    hub_task: str  # its name on the Hugging Face Hub
    network: str  # how the page begins, before "tunebook trained"
    metric: str  # the score that matters most, as `Scores.by_name` has it
    metric_title: str  # the metric's name for readers
    compared: str  # what has a top class: images, pixels
    of_them: str  # how a line about some images ends: the same top class on 99 % "of them"
    of_part: str  # what stands before a part's name: the share of "the pixels of the" validation part
    answer: str  # one of the classes is "its answer"


class Example(NamedTuple):
    """A batch that a network is traced with, and the names of its first axes that may have any length."""

    batch: Tensor
    axes: tuple[str, ...]


class Agreement(NamedTuple):
    """For how many of the images, or pixels, of a part a file has the top class that the run has."""

    same: int
    among: int


class Parity(abc.ABC):
    """What a run answers to a part's images; files are to answer the same to them as they are stored."""

    @abc.abstractmethod
    def take(self, positions: Integers, outputs: Tensor) -> None:
        """Keep what the run answers to a batch (`Run.score`)."""

    @abc.abstractmethod
    def same(self, answer: NumpyAnswer) -> Agreement:
        """Return how often a file has the run's top class, after the run has answered the whole part."""


class Predictions(abc.ABC):
    """What a run predicts for the images of a part, to be written into a folder of its own."""

    part: Split

    @abc.abstractmethod
    def take(self, positions: Integers, outputs: Tensor) -> None:
        """Keep what the run answers to a batch (`Run.score`)."""

    @abc.abstractmethod
    def write(self, scores: Scores) -> str:
        """Write the folder, whole or not at all, and return a line that says so. Raises UserError."""


class Exporter(abc.ABC):
    """The answers of one kind of task about a recipe's network and the images that it is for."""

    words: ClassVar[CardWords]
    output: ClassVar[str]  # what the network gives, by its name in ONNX

    @property
    @abc.abstractmethod
    def most_at_once(self) -> int | None:
        """How many inputs are answered together at most; None for any number."""

    @abc.abstractmethod
    def module(self, network: nn.Module) -> nn.Module:
        """Return a network with what happens to its images before it and after it, in fp32, ready to answer.

        The network itself is used, not a copy.
        """

    @abc.abstractmethod
    def example(self) -> Example:
        """Return what `module` is traced with."""

    @abc.abstractmethod
    def about(self) -> dict[str, Any]:
        """Return what `predict.py` must know of the network, as plain data for JSON."""

    @abc.abstractmethod
    def script(self) -> str:
        """Return `predict.py`, which needs nothing of ours."""

    @abc.abstractmethod
    def batch(self, images: Pixels) -> NDArray[Any]:
        """Return decoded images, uint8 [N, side, side, C], as the files take them."""

    @abc.abstractmethod
    def parity(self, data: DataSet, part: Split) -> Parity:
        """Return what compares files with a run on a part."""

    @abc.abstractmethod
    def predictions(self, data: DataSet, folder: Path, out: Path | None) -> Predictions:
        """Return what `--predict FOLDER` writes; `out` is where the run leaves its own files.

        Raises UserError where nothing could be written: before an hour's work, and not after it.
        """

    @abc.abstractmethod
    def uses(self) -> Iterator[str]:
        """Yield the page's paragraphs about how the files are used."""

    @abc.abstractmethod
    def takes_and_gives(self) -> dict[str, str]:
        """Return the rows of the page's table: what goes in and what comes out."""

    @abc.abstractmethod
    def by_class(self, scores: Scores, sure: Intervals) -> str | None:
        """Return the page's table of the scores of each class; None where a class has none of its own."""


def views_in_words(evaluation: Evaluation) -> str:
    """Return how often the network sees an image."""
    if not evaluation.flip and len(evaluation.scales) == 1:
        return "one"
    mirrored = ", each mirrored too" if evaluation.flip else ""
    return f"the mean over scales {numbers(evaluation.scales)}{mirrored}"


def colours_of(info: DataInfo) -> str:
    return "grey" if info.channels == 1 else "RGB"


OURS = "from trainable."  # a line that begins so imports what is ours
LAST_IMPORT = "import numpy as np\n"


def embedded(program: Path, *sources: str) -> str:
    """Return the text of a program with sources in the place of its lines that import what is ours."""
    lines = program.read_text(encoding="utf-8").splitlines(keepends=True)
    ours = [number for number, line in enumerate(lines) if line.startswith(OURS)]
    body = "\n" + "\n\n".join(sources)
    return "".join([*lines[: ours[0]], body, *lines[ours[-1] + 1 :]])


def body_of(module: ModuleType) -> str:
    """Return the source of a module after its imports, of which numpy's is the last."""
    return inspect.getsource(module).partition(LAST_IMPORT)[2].strip("\n") + "\n"
