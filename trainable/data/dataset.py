"""Defines a data set: its training, validation and test parts, with all that is known of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, final

from trainable.array_types import Integers
from trainable.bench import Say, silent
from trainable.data.decode import Form, Resize
from trainable.data.groups import Series, SharedGroups
from trainable.data.image_cache import ImageCache
from trainable.data.info import DataInfo
from trainable.data.parts import ArrayPart, Members, Part, Views
from trainable.data.remote_data import cached, cached_objects, data_root
from trainable.errors import DataError
from trainable.files.paths import without_tilde
from trainable.files.store import is_uri
from trainable.recipe.data import Data, Split
from trainable.recipe.training import Stretch

if TYPE_CHECKING:  # it imports torch, which takes seconds
    from trainable.data.readers import FileImages, Readers, Reading


@final
class IdleReaders:
    """The processes that read a set's files and that no run uses: starting them takes seconds.

    A pickle of it is empty: processes stay where they are.
    """

    def __init__(self) -> None:
        self._idle: list[Readers] = []

    def take(self, images: FileImages, how: Reading) -> Readers:
        """Return idle readers of these images, or new ones; idle ones that read otherwise end."""
        from trainable.data.readers import Readers

        fitting = [each for each in self._idle if each.how == how and each.images.are(images)]
        self._idle = fitting[1:]
        return fitting[0] if fitting else Readers(images, how)

    def give_back(self, readers: Readers) -> None:
        """Keep readers for the next run, unless one of their processes may have died."""
        if readers.how.workers and not readers.failed:
            self._idle.append(readers)

    def end(self) -> None:
        """End the idle readers' processes."""
        self._idle.clear()

    def __getstate__(self) -> dict[str, object]:
        return {"_idle": []}


@dataclass(frozen=True, eq=False)
class DataSet:
    """The three parts. It is cheap to pickle and to share: arrays travel as buffers."""

    info: DataInfo
    train: Part
    validation: Part
    test: Part | None  # no trial sees this part; before a search it is only compared with the others
    # How images are made square. Training crops act on the square, in memory and from files.
    resize: Resize = field(default_factory=Stretch)

    copy: Path | None = None  # for data behind a URI, this is their copy on the machine that loaded them
    objects: tuple[str, ...] = ()  # the URIs of a manifest's images, of which `copy` is the folder
    # If it is known what stays in one part, such as a patient, these are the groups of each part's images, as
    # numbers [n]
    groups: Mapping[Split, Integers] | None = None
    shared: tuple[SharedGroups, ...] = ()  # these groups are in two parts
    in_series: Series | None = None  # where no groups are known, what seem to be series
    inner_folders: tuple[str, ...] = ()  # as a Collection's
    cache: ImageCache | None = None  # machines may keep these images decoded on their disks
    files: str = ""  # a digest for caches of the images in their order: `files_digest`; of own data none
    crops: bool = True  # whether training may ask for resized crops, for which the cache keeps larger squares
    # Processes that read these images' files wait here from one run to the next
    idle_readers: IdleReaders = field(default_factory=IdleReaders)

    @property
    def parts(self) -> dict[Split, Part]:
        """The parts that exist, by name, in this order."""
        parts: dict[Split, Part] = {"train": self.train, "validation": self.validation}
        return parts if self.test is None else {**parts, "test": self.test}

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

    def be_here(self, say: Say = silent) -> None:
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
        """Raise DataError if parts that the data define share a group, unless `data.leaks` allows it."""
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
