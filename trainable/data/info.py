"""What is known of a data set, without the images."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from pydantic import TypeAdapter

from trainable.data.source import Channels, Flip
from trainable.errors import listed
from trainable.recipe.data import Data, Interpolation
from trainable.recipe.tasks import TASKS, AnyTask, TaskKind

FEW_LEVELS = 64  # a quarter of what eight bits hold; 16 are left of twelve bits that are stored in sixteen
MARKS_ASIDE = "without rare white, such as that of scale bars"
LOST_DETAIL = (
    "detail is lost: of images of 16 bits the upper 8 are read, and cameras of 12 bits fill the lower 12 "
    "alone; or they are far too dark"
)
SCALE_ALL = "scale all images by one factor, so that white is 65,535 of 16 bits or 255 of 8, and store them"


@dataclass(frozen=True)
class DataInfo:
    """What is known of a data set, as plain data."""

    path: str
    format: str
    classes: tuple[str, ...]
    channels: Channels
    image_size: int  # the side in pixels
    train_images: int
    validation_images: int
    test_images: int
    # The numbers of training images of each class; there are none where `classes` names numbers that are
    # learnt, each of them an output of the network
    class_counts: tuple[int, ...]
    mean: tuple[float, ...]
    # Mean and deviation are those of each channel of the training images, on [0, 1], or of a sample of them
    # if they are not in memory
    std: tuple[float, ...]
    flips: tuple[Flip, ...]
    digest: str  # the digest covers which image is in which part with which label (`membership_digest`)
    in_memory: bool
    # Resized crops are cut from squares of this side, if most images have more pixels than `image_size` and
    # are read from files
    detail_size: int | None = None
    interpolation: Interpolation = "bilinear"  # images were resized by this filter
    # This digest covers each image's name, class and stored size too; empty if an older version measured
    stored: str = ""
    # For images with masks, these are the numbers of training pixels of each class, and `class_counts` those
    # of the images that show it
    pixel_counts: tuple[int, ...] = ()
    # For images with masks, which keep their size, this is the median of their longer sides, in training
    longer_side: int | None = None
    # For images with masks, this is the value of each class in the masks as they are stored
    mask_values: tuple[int, ...] = ()
    found: str = ""  # in words, the folders of images and masks, where the recipe does not name them
    left_out: tuple[str, ...] = ()  # the classes that `data.min_images` leaves out
    span: int = 255  # levels between the darkest and the brightest training pixels
    deep_span: int | None = None  # the levels of images of 16 bits, if some training images have so many
    whole: bool = False  # `digest` reads every image, as `Membership.whole`
    task_kind: TaskKind = "classification"  # what is learnt from these labels

    def __post_init__(self) -> None:
        """Raise ValueError for what no data set is: it may come from a file that somebody has changed."""
        if self.class_counts and (len(self.classes) < 2 or min(self.class_counts) < 1):
            raise ValueError("expected two classes or more, and training images of each")
        if not self.classes or len(self.class_counts) not in (0, len(self.classes)):
            raise ValueError("expected a number of training images for each class")
        if min(self.train_images, self.validation_images, self.image_size) < 1 or self.test_images < 0:
            raise ValueError("expected images to train and to validate on, with pixels")
        if not len(self.mean) == len(self.std) == self.channels or not min(self.std) > 0.0:
            raise ValueError(f"expected mean and deviation of {self.channels} channels, deviations above 0")

    @property
    def task(self) -> AnyTask:
        """The task that these labels are of, with its defaults."""
        return TASKS[self.task_kind]()

    @property
    def _kind_by_counts(self) -> TaskKind:
        # files name no kind where this is it: those of earlier versions name none
        return "segmentation" if self.pixel_counts else "classification"

    @property
    def class_balance(self) -> float:
        """The training images, or pixels, of the smallest class as a share of those of the largest; 1 where
        `classes` names numbers."""
        counts = self.pixel_counts or self.class_counts or (1,)
        return min(counts) / max(counts)

    @property
    def files(self) -> str | None:
        """`stored` where `digest` reads some of the images alone; None where that says all."""
        return None if self.whole else self.stored or None

    @property
    def left_out_in_words(self) -> str:
        """In words which classes are left out; an empty text if none are."""
        count = "1 class is" if len(self.left_out) == 1 else f"{len(self.left_out):,} classes are"
        return f"{count} left out by data.min_images: {listed(self.left_out, 20)}" if self.left_out else ""

    @property
    def few_levels(self) -> str:
        """In words that images use few of the 256 levels; an empty text if they do not."""
        if self.deep_span is not None and self.deep_span < FEW_LEVELS:
            found = f"images of 16 bits use {self.deep_span + 1} levels of 256, {MARKS_ASIDE}"
        elif self.span < FEW_LEVELS:
            found = f"images use {self.span + 1} levels of 256"
        else:
            return ""
        return f"{found}: {LOST_DETAIL}; {SCALE_ALL}"

    @property
    def remarks(self) -> tuple[str, ...]:
        """What whoever trains on these images should hear before."""
        return tuple(line for line in (self.found, self.left_out_in_words, self.few_levels) if line)

    def tree(self) -> dict[str, Any]:
        tree = asdict(self)
        if self.task_kind == self._kind_by_counts:
            del tree["task_kind"]
        return tree

    @classmethod
    def from_tree(cls, tree: Mapping[str, Any]) -> DataInfo:
        """Read what `tree` returned, after it went through JSON. Raises ValidationError for other data."""
        info = TypeAdapter(cls).validate_json(json.dumps(tree), strict=True)
        return info if "task_kind" in tree else replace(info, task_kind=info._kind_by_counts)


def is_split_here(data: Data, info: DataInfo) -> bool:
    """Say whether tunebook has split the validation part off: it has the size that the fraction asks for,
    with no limit of images."""
    learnt_from = info.train_images + info.validation_images
    sizes = (data.validation_fraction * (learnt_from + test) for test in (0, info.test_images))
    near = any(abs(size - info.validation_images) <= len(info.classes) for size in sizes)
    return data.train_limit is None and near
