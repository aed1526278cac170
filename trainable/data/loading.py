"""Makes normalised batches of a data set on a device:
augmented for training, in order and whole for evaluation.

What is random in a batch depends on (seed, epoch, position) alone. The caller chooses the images in it.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, assert_never, final

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from trainable.augmentation.augment import make_augment, make_boxes
from trainable.augmentation.change import on_device
from trainable.augmentation.draws import Draws
from trainable.augmentation.geometry import resized_crop
from trainable.augmentation.masking import make_masking
from trainable.data import ArrayPart, DataSet, FilePart, Split
from trainable.data.decode import Form, is_finer, part_of_square, square, to_array
from trainable.data.source import Integers
from trainable.errors import DataError
from trainable.recipe import Recipe
from trainable.recipe.augmentations import NoCrop, ResizedCrop

Batch = tuple[Tensor, Tensor]
"""A batch is images float32 [B, C, H, W], normalised, and labels int64 [B];
both are on the loader's device."""

RESIDENT_SHARE = 4
"""Images stay on a GPU if all together take at most one part in so many of the run's share of its memory."""


def make_loader(data: DataSet, recipe: Recipe, device: torch.device, gpu_share: float = 1.0) -> Loader:
    """Returns the loader of a data set for a recipe; `gpu_share`, in (0, 1], is the run's share of the GPU.

    Raises DataError if the set was loaded for another form.
    """
    if not 0.0 < gpu_share <= 1.0:
        raise ValueError(f"gpu_share must be above 0 and at most 1, got {gpu_share}")
    _check_agree(data, recipe)
    match data.train:
        case ArrayPart():
            return ArrayLoader(data, recipe, device, gpu_share)
        case FilePart():
            return FileLoader(data, recipe, device)
        case _:
            assert_never(data.train)


class Loader(abc.ABC):
    """Makes the batches of one data set for one recipe on one device."""

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
            for values in (data.info.mean, data.info.std)
        )
        self.parts = data.parts
        self.labels = {name: part.labels for name, part in self.parts.items()}

    def train(self, batches: Sequence[Tensor], epoch: int) -> Iterator[Batch]:
        """Yields augmented training batches;
        `batches` are positions in the training part, int64 [B] on the CPU.

        An image's augmentation depends on (loop.seed, epoch, position) only: not on the batch it is in, on
        what came before, nor on workers. Read all batches of one call before the next call.
        """
        positions = [batch.numpy() for batch in batches]
        for batch, images in zip(positions, self._augmented(positions, epoch), strict=True):
            normalised = self._normalise(images)
            for change in self.masking:
                normalised = change(normalised, Draws(self.seed, epoch, batch))
            yield self._laid_out(normalised), self._labels("train", batch)

    def evaluate(
        self, name: Split, chosen: Integers | None = None, batch: int | None = None
    ) -> Iterator[Batch]:
        """Yields a part's batches in order, not augmented; nothing is left out or padded.

        If `chosen` gives positions, int64 [n], only those images are in them; a batch has
        `evaluation.batch_size` images, or `batch`. Raises DataError if the data set has no such part.
        """
        if name not in self.parts:
            raise DataError(f"the data set has no {name} part; it has {', '.join(self.parts)}")
        positions = np.arange(len(self.parts[name])) if chosen is None else chosen
        size = batch or self.evaluation_batch
        batches = [positions[start : start + size] for start in range(0, len(positions), size)]
        for each, images in zip(batches, self._plain(name, batches), strict=True):
            yield self._laid_out(self._normalise(images)), self._labels(name, each)

    @abc.abstractmethod
    def close(self) -> None:
        """Frees memory and processes. The loader cannot be used afterwards."""

    @abc.abstractmethod
    def _augmented(self, batches: Sequence[Integers], epoch: int) -> Iterator[Tensor]:
        """Yields training images uint8 [B, C, H, W] on the device, with all augmentation except masking."""

    @abc.abstractmethod
    def _plain(self, name: Split, batches: Sequence[Integers]) -> Iterator[Tensor]:
        """Yields a part's images uint8 [B, C, H, W] on the device."""

    def _normalise(self, images: Tensor) -> Tensor:
        return images.to(torch.float32).sub_(self.mean).div_(self.std)

    def _laid_out(self, images: Tensor) -> Tensor:
        # Last: normalising took twice as long in channels_last (128 x 3 x 64 x 64, one thread).
        return images.contiguous(memory_format=self.memory_format)

    def _labels(self, name: Split, batch: Integers) -> Tensor:
        return on_device(self.labels[name][batch], self.device)


@final
class ArrayLoader(Loader):
    """Loads images from memory, on the device if they fit, and augments a batch at a time."""

    def __init__(self, data: DataSet, recipe: Recipe, device: torch.device, gpu_share: float) -> None:
        super().__init__(data, recipe, device)
        total = sum(part.images.nbytes for part in self.parts.values() if isinstance(part, ArrayPart))
        self.resident = device.type != "cuda" or may_reside(total, _device_bytes(device), gpu_share)
        """This says whether parts are copied to the device and stay there."""
        self.augment = make_augment(recipe.augmentation, data.info.flips, data.info.image_size)
        self.images: dict[str, Tensor] = {}
        """Parts are copied to the device when first asked for: during a search, a test part is not."""

    def close(self) -> None:
        self.images.clear()

    def _augmented(self, batches: Sequence[Integers], epoch: int) -> Iterator[Tensor]:
        for batch, images in zip(batches, self._plain("train", batches), strict=True):
            draws = Draws(self.seed, epoch, batch)
            for change in self.augment:
                images = change(images, draws)
            yield images

    def _plain(self, name: Split, batches: Sequence[Integers]) -> Iterator[Tensor]:
        held = self._images_of(name)
        for batch in batches:
            chosen = held.index_select(0, on_device(batch, held.device))
            yield chosen.to(self.device, non_blocking=True)

    def _images_of(self, name: Split) -> Tensor:
        if name not in self.images:
            part = self.parts[name]
            assert isinstance(part, ArrayPart)  # all parts of a data set are of one kind
            images, _ = part.tensors()
            self.images[name] = images.to(self.device) if self.resident else images
        return self.images[name]


@final
class FileLoader(Loader):
    """Decodes images each time, in `loop.workers` processes that live as long as the loader."""

    def __init__(self, data: DataSet, recipe: Recipe, device: torch.device) -> None:
        super().__init__(data, recipe, device)
        self.batches: list[FileBatch] = []
        """The workers read these batches, those of the current turn."""
        self.turn = 0
        workers = recipe.loop.workers
        self.reader: DataLoader[Tensor] | None = DataLoader(
            FileImages(data, recipe),
            sampler=self.batches,
            batch_size=None,  # a worker reads a whole batch at once
            num_workers=workers,
            persistent_workers=workers > 0,
            prefetch_factor=recipe.loop.prefetch if workers > 0 else None,
            pin_memory=device.type == "cuda",
            generator=torch.Generator(),  # else it would draw from the global one, and a resumed run differ
        )

    def close(self) -> None:
        self.reader = None  # its workers end with it

    def _augmented(self, batches: Sequence[Integers], epoch: int) -> Iterator[Tensor]:
        return self._read([FileBatch("train", batch, epoch) for batch in batches])

    def _plain(self, name: Split, batches: Sequence[Integers]) -> Iterator[Tensor]:
        return self._read([FileBatch(name, batch, None) for batch in batches])

    def _read(self, batches: list[FileBatch]) -> Iterator[Tensor]:
        assert self.reader is not None, "the loader is closed"
        self.turn = turn = self.turn + 1
        self.batches[:] = batches
        for images in self.reader:
            if turn != self.turn:  # the workers serve one turn at a time: these images are another's
                raise RuntimeError("new batches were requested before the last ones were all read")
            yield images.to(self.device, non_blocking=True)


class FileBatch(NamedTuple):
    """Names images to read together:
    their part, their positions in it [B], and the training epoch, if any."""

    part: Split
    positions: Integers
    epoch: int | None
    """It is None for evaluation: nothing is augmented."""


class FileImages(Dataset[Tensor]):
    """Does a worker's job: it reads a batch as uint8 [B, C, side, side], augmented if it is for training.

    The whole batch is augmented at once, by the same changes as images in memory. Only the box of a resized
    crop is cut from the image itself if that has finer pixels than its square.
    """

    def __init__(self, data: DataSet, recipe: Recipe) -> None:
        info, spec = data.info, recipe.augmentation
        self.form = Form(info.channels, info.image_size, data.resize)
        self.seed = recipe.loop.seed
        self.boxes = make_boxes(spec.crop, info.image_size) if isinstance(spec.crop, ResizedCrop) else None
        """This draws the boxes of a resized crop, which is made while decoding; `augment` does the rest."""
        rest = spec if self.boxes is None else spec.model_copy(update={"crop": NoCrop()})
        self.augment = make_augment(rest, info.flips, info.image_size)
        self.selections = {
            name: part.selection for name, part in data.parts.items() if isinstance(part, FilePart)
        }

    def __getitem__(self, batch: FileBatch) -> Tensor:
        if batch.epoch is None:
            return self._squares(batch)
        draws = Draws(self.seed, batch.epoch, batch.positions)
        images = self._squares(batch) if self.boxes is None else self._crops(batch, self.boxes(draws))
        for change in self.augment:
            images = change(images, draws)
        return images

    def _squares(self, batch: FileBatch) -> Tensor:
        return self._decoded(batch, lambda image, _: square(image, self.form))

    def _crops(self, batch: FileBatch, boxes: Integers) -> Tensor:
        """Returns each image's box [B, 4] of its square,
        cut from the image itself if that has finer pixels."""
        squares: list[int] = []

        def cut(image: Image.Image, row: int) -> Image.Image:
            if is_finer(image, self.form):
                return part_of_square(image, self.form, boxes[row])
            squares.append(row)
            return square(image, self.form)

        images = self._decoded(batch, cut)
        if squares:
            images[squares] = resized_crop(images[squares], boxes[squares])
        return images

    def _decoded(self, batch: FileBatch, shape: Callable[[Image.Image, int], Image.Image]) -> Tensor:
        """Returns what `shape` makes of each stored image and its row in the batch."""
        source, indices = self.selections[batch.part]
        chosen = indices[batch.positions].tolist()
        pixels = np.empty((len(chosen), self.form.channels, self.form.side, self.form.side), np.uint8)
        for row, index in enumerate(chosen):
            try:
                with source.open(index) as image:
                    pixels[row] = to_array(shape(image, row))
            except Exception as error:  # Pillow's plug-ins raise nearly anything
                raise DataError(f"{source.name(index)} cannot be decoded: {error}") from error
        return torch.from_numpy(pixels)


def may_reside(image_bytes: int, device_bytes: int, gpu_share: float) -> bool:
    """Returns whether all images of a data set together may stay on a GPU.

    Its whole memory decides, not what is free: that changes as other trials come and go.
    """
    return image_bytes * RESIDENT_SHARE <= device_bytes * gpu_share


def _device_bytes(device: torch.device) -> int:
    return int(torch.cuda.get_device_properties(device).total_memory)


def _check_agree(data: DataSet, recipe: Recipe) -> None:
    """Raises DataError if the images were made for another form than the recipe's,
    which would train on wrong ones."""
    asked = (recipe.data.channels, recipe.data.image_size, recipe.evaluation.resize)
    loaded_form = (data.info.channels, data.info.image_size, data.resize)
    names = ("data.channels", "data.image_size", "evaluation.resize")
    for name, wanted, loaded in zip(names, asked, loaded_form, strict=True):
        if wanted is not None and wanted != loaded:
            raise DataError(
                f"{name}: the recipe asks for {wanted}, but the data set was loaded with {loaded}"
            )
