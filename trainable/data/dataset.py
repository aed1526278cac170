"""Defines a data set: its training, validation and test parts, with all that is known of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from trainable.data.decode import Channels, Form, Resize
from trainable.data.groups import Series, Shared
from trainable.data.idle_readers import IdleReaders
from trainable.data.image_cache import ImageCache, Say
from trainable.data.measure import FEW_LEVELS
from trainable.data.parts import ArrayPart, Members, Part, Views
from trainable.data.remote_data import cached, cached_objects, data_root
from trainable.data.source import Flip, Integers, Split
from trainable.errors import DataError, listed
from trainable.files.paths import without_tilde
from trainable.files.store import is_uri
from trainable.recipe.data import Data, Interpolation
from trainable.recipe.tasks import CLASSIFICATION, Segmentation, Task
from trainable.recipe.training import Stretch


@dataclass(frozen=True)
class DataInfo:
    """Holds what is known of a data set, as plain data."""

    path: str
    format: str
    classes: tuple[str, ...]
    channels: Channels
    image_size: int
    """This is the side in pixels."""
    train_images: int
    validation_images: int
    test_images: int
    class_counts: tuple[int, ...]
    """These are the numbers of training images of each class; there are none where `classes` names numbers
    that are learnt, each of them an output of the network."""
    mean: tuple[float, ...]
    std: tuple[float, ...]
    """Mean and deviation are those of each channel of the training images, on [0, 1], or of a sample of them
    if they are not in memory."""
    flips: tuple[Flip, ...]
    digest: str  # the digest covers which image is in which part with which label (`membership_digest`)
    in_memory: bool
    detail_size: int | None = None
    """Resized crops are cut from squares of this side, if most images have more pixels than `image_size` and
    are read from files."""
    interpolation: Interpolation = "bilinear"
    """Images were resized by this filter."""
    stored: str = ""
    """This digest covers each image's name, class and stored size too; empty if an older version measured."""
    pixel_counts: tuple[int, ...] = ()
    """For images with masks, these are the numbers of training pixels of each class, and `class_counts` those
    of the images that show it."""
    longer_side: int | None = None
    """For images with masks, which keep their size, this is the median of their longer sides, in training."""
    mask_values: tuple[int, ...] = ()
    """For images with masks, this is the value of each class in the masks as they are stored."""
    found: str = ""  # in words, the folders of images and masks, where the recipe does not name them
    left_out: tuple[str, ...] = ()  # the classes that `data.min_images` leaves out
    span: int = 255  # levels between the darkest and the brightest training pixels
    deep_span: int | None = None  # the same of images of 16 bits, if some of the training images have so many
    whole: bool = False  # `digest` reads every image, as `Membership.whole`

    def __post_init__(self) -> None:
        """Raises ValueError for what no data set is: it may come from a file that somebody has changed."""
        if self.class_counts and (len(self.classes) < 2 or min(self.class_counts) < 1):
            raise ValueError("expected two classes or more, and training images of each")
        if not self.classes or len(self.class_counts) not in (0, len(self.classes)):
            raise ValueError("expected a number of training images for each class")
        if min(self.train_images, self.validation_images, self.image_size) < 1 or self.test_images < 0:
            raise ValueError("expected images to train and to validate on, with pixels")
        if not len(self.mean) == len(self.std) == self.channels or not min(self.std) > 0.0:
            raise ValueError(f"expected mean and deviation of {self.channels} channels, deviations above 0")

    @property
    def task(self) -> Task:
        """The task that these labels are of, with its defaults."""
        return Segmentation() if self.dense else CLASSIFICATION

    @property
    def dense(self) -> bool:
        """Whether each image has a mask, a label for each of its pixels."""
        return bool(self.pixel_counts)

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
        return asdict(self)

    @classmethod
    def from_tree(cls, tree: Mapping[str, Any]) -> DataInfo:
        """Read what `tree` returned, after it went through JSON. Raises ValidationError for other data."""
        return TypeAdapter(cls).validate_json(json.dumps(tree), strict=True)


MARKS_ASIDE = "without rare white, such as that of scale bars"
LOST_DETAIL = (
    "detail is lost: of images of 16 bits the upper 8 are read, and cameras of 12 bits fill the lower 12 "
    "alone; or they are far too dark"
)
SCALE_ALL = "scale all images by one factor, so that white is 65,535 of 16 bits or 255 of 8, and store them"


@dataclass(frozen=True, eq=False)
class DataSet:
    """Holds the three parts. It is cheap to pickle and to share: arrays travel as buffers."""

    info: DataInfo
    train: Part
    validation: Part
    test: Part | None
    """No trial sees this part; before a search it is only compared with the others."""
    resize: Resize = field(default_factory=Stretch)
    """This says how images are made square. Training crops act on the square, in memory and from files."""

    copy: Path | None = None
    """For data behind a URI, this is their copy on the machine that loaded them."""
    objects: tuple[str, ...] = ()
    """These are the URIs of a manifest's images, of which `copy` is the folder."""
    groups: Mapping[Split, Integers] | None = None
    """If it is known what stays in one part, such as a patient, these are the groups of each part's images,
    as numbers [n]."""
    shared: tuple[Shared, ...] = ()  # these groups are in two parts
    in_series: Series | None = None  # where no groups are known, what seem to be series
    cache: ImageCache | None = None
    """Machines may keep these images decoded on their disks."""
    files: str = ""  # a digest for caches of the images in their order: `files_digest`; of own data none
    crops: bool = True
    """This says whether training may ask for resized crops, for which the cache keeps larger squares."""
    idle_readers: IdleReaders = field(default_factory=IdleReaders)
    """Processes that read these images' files wait here from one run to the next."""

    @property
    def parts(self) -> dict[Split, Part]:
        """The parts that exist, by name, in this order."""
        parts: dict[Split, Part] = {"train": self.train, "validation": self.validation}
        return parts if self.test is None else {**parts, "test": self.test}

    def check_has(self, part: Split) -> None:
        """Raises DataError if there is no such part."""
        if part not in self.parts:
            raise DataError(f"data.path {self.info.path}: there is no {part} part to score")

    @property
    def grouped(self) -> bool:
        """Whether it is known what stays in one part, such as a patient."""
        return self.groups is not None

    @property
    def series(self) -> str | None:
        """An expression for `data.group` by which images seem to be in series, if there is one."""
        return None if self.in_series is None else self.in_series.expression

    @property
    def selections(self) -> Members:
        """The images of each part that is read from files."""
        return {name: part.selection for name, part in self.parts.items() if part.selection is not None}

    @property
    def form(self) -> Form:
        return Form(self.info.channels, self.info.image_size, self.resize, self.info.interpolation)

    def decoded_views(self) -> Views:
        """Return the images that are decoded already: those in memory, or in this machine's cache."""
        held = {
            (name, self.info.image_size): part.images
            for name, part in self.parts.items()
            if isinstance(part, ArrayPart)
        }
        return held or (self.cache.views() if self.cache is not None else {})

    def be_here(self, say: Say = lambda line: None) -> None:
        """Make sure that this machine has what training needs: a copy of files behind a URI, and the decoded
        images in its cache.

        Raises DataError if files cannot be copied, or not to the same path, if images are broken, and if a
        folder that `data.cache` names has no room.
        """
        self.copy_here()
        if self.cache is not None:
            self.cache.fill(self.selections, detail=self.crops, say=say)

    def copy_here(self) -> None:
        """Copy files behind a URI to this machine, once. Raises DataError as `be_here` does."""
        if self.copy is None or self.info.in_memory or self.copy.exists():
            return
        if self.copy.parents[1] != data_root():
            raise DataError(
                f"data.path: the copy of {self.info.path} is in {data_root()} on this machine and is "
                f"{self.copy} on the search's; set XDG_CACHE_HOME to the same folder on all"
            )
        if self.objects:
            cached_objects(self.objects, expected=self.copy.parent.name)
        else:
            cached(self.info.path, expected=self.copy.parent.name)

    def refuse_leaks(self, spec: Data) -> None:
        """Raises DataError if parts that the data define share a group, unless `data.leaks` allows it."""
        if self.grouped and self.shared and spec.leaks == "refuse":
            raise DataError(
                f"{self.info.path}: {'; '.join(map(str, self.shared))}: scores would reward memory. Put each "
                "group into one part, or set data.leaks=allow"
            )


def resolve(spec: Data, info: DataInfo) -> Data:
    """Return the section with everything that was measured or found filled in."""
    measured = ("path", "format", "channels", "image_size", "interpolation", "flips", "in_memory")
    found = {name: getattr(info, name) for name in measured}
    if spec.root is not None and not is_uri(spec.root):
        found["root"] = str(without_tilde(spec.root).absolute())
    if spec.exclude is not None:
        found["exclude"] = str(without_tilde(spec.exclude).absolute())
    return Data.model_validate({**dict(spec), **found})
