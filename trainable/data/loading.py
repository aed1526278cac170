"""Makes normalised batches on a device: augmented for training, in order and whole for evaluation.

What is random in a batch depends on (seed, epoch, position) alone. The caller chooses the images in it.
Images that are decoded already, in host memory or in a mapped file, are copied to the device some batches
ahead.
"""

from __future__ import annotations

import abc
import threading
from collections.abc import Iterator, Sequence
from queue import SimpleQueue
from typing import assert_never, final

import numpy as np
import torch
from torch import Tensor

from trainable.array_types import Integers
from trainable.augmentation.augment import make_augment
from trainable.augmentation.draws import Draws, on_device
from trainable.augmentation.masking import make_masking
from trainable.data import DataInfo, DataSet, Split
from trainable.data.arrays import as_tensor
from trainable.data.batch import PORTION_BATCHES, Batch
from trainable.data.parts import PartView, Views
from trainable.data.readers import Augmented, FileBatch, FileImages, Readers, Reading
from trainable.errors import DataError
from trainable.recipe import Recipe
from trainable.recipe.augmentations import ResizedCrop
from trainable.recipe.data import ChannelStatistics, Data
from trainable.recipe.training import Loop

# Decoded images are augmented in portions of at most PORTION_BATCHES batches and so many bytes of pixels, at
# least a batch.
#
# On a GPU these are 4,096 images of 32 px with 3 channels in batches of 128; a batch of large images keeps it
# busy by itself. On a CPU they stay in its caches. See docs/decisions/0053-portions.md.
PORTION_BYTES = {"cuda": 16 * 2**20, "cpu": 2 * 2**20}

# Images stay on a GPU if all together take at most one part in so many of the run's share of its memory
RESIDENT_SHARE = 4


def statistics_of(spec: Data, info: DataInfo) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the mean and the deviation of each channel by which images are normalised.

    Raises ValueError for `pretrained`, in the place of which a Run writes numbers (`pixels.resolved`), and
    DataError for numbers of other channels.
    """
    match spec.normalisation:
        case None | "data":
            return info.mean, info.std
        case "pretrained":
            raise ValueError("data.normalisation: expected the statistics of the weights, got `pretrained`")
        case ChannelStatistics(mean=mean, std=std):
            if len(mean) != info.channels:
                raise DataError(
                    f"data.normalisation: the images have {info.channels} channels, got the mean and std of "
                    f"{len(mean)}"
                )
            return mean, std
        case _:
            assert_never(spec.normalisation)


def train_side(data: DataSet, recipe: Recipe) -> int:
    """Return the side of the squares that training images are made from: resized crops need more detail."""
    cut = isinstance(recipe.augmentation.crop, ResizedCrop)
    return data.info.detail_size if cut and data.info.detail_size is not None else data.info.image_size


def readers_of(loop: Loop) -> int:
    """Return how many processes read image files: by default all of the run's threads but one, which is
    left to the steps, and at least one."""
    return max(1, torch.get_num_threads() - 1) if loop.workers is None else loop.workers


class Loader(abc.ABC):
    """The maker of the batches of one data set for one recipe on one device."""

    def __init__(self, data: DataSet, recipe: Recipe, device: torch.device) -> None:
        self.device = device
        self.seed = recipe.loop.seed
        self.evaluation_batch = recipe.evaluation.batch_size
        self.masking = make_masking(recipe.augmentation.masking, recipe.loop.epochs)
        self.memory_format = (
            torch.channels_last if recipe.precision.channels_last else torch.contiguous_format
        )
        self.mean, self.std = (
            torch.tensor(values, device=device).mul_(255.0).view(1, -1, 1, 1)
            for values in statistics_of(recipe.data, data.info)
        )
        self.portion_images = 0  # so many images are augmented at once, or the batch that has more
        self.parts = data.parts
        self.labels = {name: part.labels for name, part in self.parts.items()}

    def train(self, batches: Sequence[Tensor], epoch: int) -> Iterator[Batch]:
        """Yield augmented training batches;
        `batches` are positions in the training part, int64 [B] on the CPU.

        An image's augmentation depends on (loop.seed, epoch, position) only: not on the batch it is in, on
        what came before, nor on workers. In a part of N images, position p + N is another showing of image p,
        augmented anew. Read all batches of one call before the next call.
        """
        positions, done = [batch.numpy() for batch in batches], 0
        try:
            for batch in self._trained_on(positions, epoch):
                yield batch
                done += 1
                del batch  # else it keeps its portion, when memory has run out for the next one
            return
        except torch.OutOfMemoryError:
            if self.portion_images == 0:
                raise
        self.portion_images = 0  # the run may still fit by batches, which is for the trainer to find out
        torch.cuda.empty_cache()
        yield from self._trained_on(positions[done:], epoch)

    def _trained_on(self, batches: Sequence[Integers], epoch: int) -> Iterator[Batch]:
        """Yield batches as slices of portions, each of which takes as many launches as a batch alone."""
        portions = in_portions(batches, self.portion_images)
        shown = [np.concatenate(portion) for portion in portions]
        for portion, positions, pixels in zip(portions, shown, self._augmented(shown, epoch), strict=True):
            images, targets = self._finished(pixels, Draws(self.seed, epoch, positions))
            sizes = [len(batch) for batch in portion]
            yield from zip(images.split(sizes), targets.split(sizes), strict=True)

    def _finished(self, pixels: Tensor, draws: Draws) -> Batch:
        """Return pixels as a batch: normalised, masked, laid out."""
        images, targets = self.images_and_targets(pixels, "train", self._images_at(draws.indices))
        images = self._normalise(images)
        for change in self.masking:
            images = change(images, draws)
        return self._laid_out(images), targets

    def evaluate(
        self, name: Split, chosen: Integers | None = None, batch: int | None = None
    ) -> Iterator[Batch]:
        """Yield a part's batches in order, not augmented; nothing is left out or padded.

        If `chosen` gives positions, int64 [n], only those images are in them; a batch has
        `evaluation.batch_size` images, or `batch`. Raises DataError if the data set has no such part.
        """
        if name not in self.parts:
            raise DataError(f"the data set has no {name} part; it has {', '.join(self.parts)}")
        positions = np.arange(len(self.parts[name])) if chosen is None else chosen
        size = batch or self.evaluation_batch
        batches = self._batches(name, positions, size)
        for each, pixels in zip(batches, self._plain(name, batches), strict=True):
            images, targets = self.images_and_targets(pixels, name, each)
            yield self._laid_out(self._normalise(images)), targets

    def unchanged(self, chosen: Integers, batch: int) -> Iterator[Batch]:
        """Yield training images at some positions, not augmented, in batches of the size that is trained
        on."""
        return self.evaluate("train", chosen, batch)

    @abc.abstractmethod
    def close(self) -> None:
        """Free memory and processes. The loader cannot be used afterwards."""

    @abc.abstractmethod
    def _augmented(self, batches: Sequence[Integers], epoch: int) -> Iterator[Tensor]:
        """Yield training images uint8 [B, C, H, W] on the device, with all augmentation except masking."""

    @abc.abstractmethod
    def _plain(self, name: Split, batches: Sequence[Integers]) -> Iterator[Tensor]:
        """Yield a part's images uint8 [B, C, H, W] on the device."""

    def _batches(self, name: Split, positions: Integers, size: int) -> list[Integers]:
        """Return the positions of the batches that a part is scored in."""
        return [positions[start : start + size] for start in range(0, len(positions), size)]

    def images_and_targets(self, pixels: Tensor, name: Split, shown: Integers) -> tuple[Tensor, Tensor]:
        """Return the images of a batch, uint8 [B, C, H, W], and their targets: here those of the part."""
        return pixels, on_device(self.labels[name][shown], self.device)

    def _normalise(self, images: Tensor) -> Tensor:
        return images.to(torch.float32).sub_(self.mean).div_(self.std)

    def _laid_out(self, images: Tensor) -> Tensor:
        # Last: normalising took twice as long in channels_last (128 x 3 x 64 x 64, one thread).
        return images.contiguous(memory_format=self.memory_format)

    def _images_at(self, positions: Integers) -> Integers:
        """Return which training images are shown at these positions."""
        return positions % len(self.parts["train"])


@final
class ArrayLoader(Loader):
    """A loader of decoded images from memory or from a mapped file, on the device if they fit, which augments
    them there. A part that is not decoded is read from its files."""

    def __init__(
        self, data: DataSet, recipe: Recipe, device: torch.device, gpu_share: float, views: Views
    ) -> None:
        super().__init__(data, recipe, device)
        self.views = views
        total = sum(pixels.nbytes for pixels in views.values())
        # Whether views are copied to the device and stay there
        self.resident = device.type != "cuda" or may_reside(total, device_bytes(device), gpu_share)
        self.side, self.train_side = data.info.image_size, train_side(data, recipe)
        if self.resident:
            self.portion_images = portion_images(device, data.info.channels * self.train_side**2)
        self.augment = make_augment(recipe.augmentation, data.info.flips, data.info.image_size)
        # Views are copied to the device when first asked for: during a search, a test part is not
        self.images: dict[PartView, Tensor] = {}
        self.files = FileLoader(data, recipe, device)

    def close(self) -> None:
        self.images.clear()
        self.files.close()

    def _augmented(self, batches: Sequence[Integers], epoch: int) -> Iterator[Tensor]:
        shown = [self._images_at(batch) for batch in batches]
        squares = self._gathered(("train", self.train_side), shown)
        for batch, images in zip(batches, squares, strict=True):
            draws = Draws(self.seed, epoch, batch)
            for change in self.augment:
                images = change(images, draws)
            yield images

    def _plain(self, name: Split, batches: Sequence[Integers]) -> Iterator[Tensor]:
        if (name, self.side) not in self.views:
            return self.files._plain(name, batches)
        return self._gathered((name, self.side), batches)

    def _gathered(self, view: PartView, batches: Sequence[Integers]) -> Iterator[Tensor]:
        held = self._images_of(view)
        if not self.resident:
            yield from prefetched(held, batches, self.device)
            return
        for batch in batches:
            yield held.index_select(0, on_device(batch, held.device))

    def _images_of(self, view: PartView) -> Tensor:
        if view not in self.images:
            images = as_tensor(self.views[view])
            self.images[view] = images.to(self.device) if self.resident else images
        return self.images[view]


class FileLoader(Loader):
    """A loader that decodes images each time, in `loop.workers` processes, which the data set keeps for the
    next run."""

    def __init__(self, data: DataSet, recipe: Recipe, device: torch.device) -> None:
        super().__init__(data, recipe, device)
        self.data = data
        self.side, self.train_side = data.info.image_size, train_side(data, recipe)
        self.augmentation, self.flips = recipe.augmentation, data.info.flips
        self.how = Reading(readers_of(recipe.loop), recipe.loop.prefetch, pinned=device.type == "cuda")
        self.readers: Readers | None = None

    def close(self) -> None:
        if self.readers is not None:
            self.data.idle_readers.give_back(self.readers)
            self.readers = None

    def _augmented(self, batches: Sequence[Integers], epoch: int) -> Iterator[Tensor]:
        how = Augmented(self.augmentation, self.flips, self.seed, epoch)
        return self._read([FileBatch("train", batch, self.train_side, how) for batch in batches])

    def _plain(self, name: Split, batches: Sequence[Integers]) -> Iterator[Tensor]:
        return self._read([FileBatch(name, batch, self.side) for batch in batches])

    def _file_images(self) -> FileImages:
        """Return what a process reads."""
        return FileImages(self.data.selections, self.data.form)

    def _read(self, batches: list[FileBatch]) -> Iterator[Tensor]:
        if self.readers is None:
            self.readers = self.data.idle_readers.take(self._file_images(), self.how)
        for images in self.readers.read(batches):
            yield images.to(self.device, non_blocking=True)


def portion_images(device: torch.device, image_bytes: int) -> int:
    """Return the most images of a portion on a device; 0 if every batch is a portion of its own."""
    return PORTION_BYTES.get(device.type, 0) // image_bytes


def in_portions(batches: Sequence[Integers], images: int) -> list[list[Integers]]:
    """Return the batches in portions of at most so many images and PORTION_BATCHES batches, at least one."""
    portions: list[list[Integers]] = []
    room = 0
    for batch in batches:
        if room < len(batch) or len(portions[-1]) == PORTION_BATCHES:
            portions.append([])
            room = images
        portions[-1].append(batch)
        room -= len(batch)
    return portions


def may_reside(image_bytes: int, device_bytes: int, gpu_share: float) -> bool:
    """Return whether all images of a data set together may stay on a GPU.

    Its whole memory decides, not what is free: that changes as other trials come and go.
    """
    return image_bytes * RESIDENT_SHARE <= device_bytes * gpu_share


def device_bytes(device: torch.device) -> int:
    return int(torch.cuda.get_device_properties(device).total_memory)


def check_form(data: DataSet, recipe: Recipe) -> None:
    """Raise DataError if the images were made for another form than the recipe's, which would train on
    wrong ones."""
    spec, info = recipe.data, data.info
    forms = (
        ("task.kind", recipe.task.kind, info.task_kind),
        ("data.channels", spec.channels, info.channels),
        ("data.image_size", spec.image_size, info.image_size),
        ("data.interpolation", spec.interpolation, info.interpolation),
        ("evaluation.resize", recipe.evaluation.resize, data.resize),
    )
    for name, wanted, loaded in forms:
        if wanted is not None and wanted != loaded:
            raise DataError(
                f"{name}: the recipe asks for {wanted}, but the data set was loaded with {loaded}"
            )


BUFFERS = 3  # one buffer is filled while one is copied and one waits to be copied


class _Buffer:
    """A batch in pinned memory until its copy to the device has ended."""

    def __init__(self, like: Tensor, size: int, device: torch.device) -> None:
        pinned = device.type == "cuda"
        with torch.inference_mode(False):  # scoring asks for batches, and another thread fills the memory
            self._memory = torch.empty((size, *like.shape[1:]), dtype=like.dtype, pin_memory=pinned)
        self._device = device
        self._copied = torch.cuda.Event() if pinned else None
        self._count = 0

    def fill(self, held: Tensor, chosen: Tensor) -> None:
        """Gather images into the memory, once its last copy has ended."""
        if self._copied is not None:
            self._copied.synchronize()
        self._count = len(chosen)
        torch.index_select(held, 0, chosen, out=self._memory[: self._count])

    def copied(self) -> Tensor:
        """Return the batch on the device; the host does not wait for the copy."""
        batch = self._memory[: self._count]
        if self._copied is None:
            return batch.clone()
        there = batch.to(self._device, non_blocking=True)
        self._copied.record()
        return there


def prefetched(held: Tensor, batches: Sequence[Integers], device: torch.device) -> Iterator[Tensor]:
    """Yield the batches' images [B, ...] of an array [N, ...] on the device, in order.

    A thread fills a ring of BUFFERS pinned buffers ahead; it ends with the iterator.
    """
    if not batches:
        return
    largest = max(map(len, batches))
    empty: SimpleQueue[_Buffer | None] = SimpleQueue()
    full: SimpleQueue[_Buffer | Exception] = SimpleQueue()
    for _ in range(min(BUFFERS, len(batches))):
        empty.put(_Buffer(held, largest, device))
    thread = threading.Thread(target=_fill, args=(held, batches, empty, full), daemon=True)
    thread.start()
    try:
        for _ in batches:
            buffer = full.get()
            if isinstance(buffer, Exception):
                raise buffer
            images = buffer.copied()
            empty.put(buffer)
            yield images
    finally:
        empty.put(None)
        thread.join()


def _fill(
    held: Tensor,
    batches: Sequence[Integers],
    empty: SimpleQueue[_Buffer | None],
    full: SimpleQueue[_Buffer | Exception],
) -> None:
    """Fill buffers in the order of the batches, until all are read or None comes instead of a buffer."""
    try:
        for batch in batches:
            if (buffer := empty.get()) is None:
                return
            buffer.fill(held, torch.from_numpy(batch))
            full.put(buffer)
    except Exception as error:  # raised again where the batch is asked for
        full.put(error)
