"""Makes batches of images with masks: square windows for training, whole images for evaluation."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Sequence
from typing import final

import numpy as np
import torch
from torch import Tensor

from trainable.array_types import Integers
from trainable.augmentation.augment import after_crop
from trainable.augmentation.draws import Draws
from trainable.data import DataSet, Split
from trainable.data.arrays import as_tensor
from trainable.data.batch import Batch
from trainable.data.loading import FileLoader, Loader, device_bytes, may_reside, portion_images
from trainable.data.readers import Augmented, FileBatch, FileImages, decoding
from trainable.data.source import Pixels
from trainable.recipe import Recipe
from trainable.recipe.augmentations import Augmentation, NoCrop, PadCrop
from trainable.recipe.tasks import IGNORED
from trainable.tasks.segmentation.data.parts import (
    MaskedPart,
    MaskedSource,
    masked,
    planes_of,
    starts_of,
)
from trainable.tasks.segmentation.windows import Planes, cut, window_boxes

# Whole images with so many pixels together are read at once: 8 of 512 x 512, 128 of 128 x 128
PIXELS_AT_ONCE = 2**21
UNCHANGED = Augmentation(crop=NoCrop(), flip_probability=0.0)


class _MaskLoader(Loader):
    """A loader whose targets, masks int64 [B, H, W], are the last of a batch's planes, uint8 [B, C + 1, H,
    W]."""

    def __init__(self, data: DataSet, recipe: Recipe, device: torch.device) -> None:
        super().__init__(data, recipe, device)
        self.side, self.augmentation, self.flips = data.info.image_size, recipe.augmentation, data.info.flips
        self.sizes = {name: masked(part).sizes for name, part in self.parts.items()}

    def unchanged(self, chosen: Integers, batch: int) -> Iterator[Batch]:
        """Yield a window of each image, from anywhere in it."""
        batches = Loader._batches(self, "train", chosen, batch)  # windows are of one size, images need not be
        for shown, planes in zip(batches, self._windows(batches, 0, UNCHANGED), strict=True):
            images, masks = self.images_and_targets(planes, "train", shown)
            yield self._laid_out(self._normalise(images)), masks

    @abc.abstractmethod
    def _windows(self, batches: Sequence[Integers], epoch: int, spec: Augmentation) -> Iterator[Tensor]:
        """Yield the planes of windows of training images, changed as `spec` says except for masking."""

    def _augmented(self, batches: Sequence[Integers], epoch: int) -> Iterator[Tensor]:
        return self._windows(batches, epoch, self.augmentation)

    def _batches(self, name: Split, positions: Integers, size: int) -> list[Integers]:
        """Return batches of at most `size` images that have the same height and width: by heights, then by
        widths, and those of one size in the order of the positions."""
        sizes = self.sizes[name][positions]
        found = list[Integers]()
        for each in np.unique(sizes, axis=0):
            alike, most = positions[(sizes == each).all(axis=1)], max(1, PIXELS_AT_ONCE // int(each.prod()))
            step = min(size, most)
            found += [alike[start : start + step] for start in range(0, len(alike), step)]
        return found

    def images_and_targets(self, pixels: Tensor, name: Split, shown: Integers) -> tuple[Tensor, Tensor]:
        return pixels[:, :-1], (IGNORED - pixels[:, -1]).long()


@final
class HeldMasksLoader(_MaskLoader):
    """A loader of images that are in memory, on the device if they fit."""

    def __init__(self, data: DataSet, recipe: Recipe, device: torch.device, gpu_share: float) -> None:
        super().__init__(data, recipe, device)
        self.planes = data.info.channels + 1
        self.held = {name: part for name, part in self.parts.items() if isinstance(part, MaskedPart)}
        total = sum(part.values.nbytes for part in self.held.values())
        # Whether images are copied to the device and stay there
        self.resident = device.type != "cuda" or may_reside(total, device_bytes(device), gpu_share)
        # The last digit of a scaled or resized window depends on what is cut beside it: see `windows.cut`.
        copied = isinstance(recipe.augmentation.crop, NoCrop | PadCrop)
        if self.resident and copied:
            self.portion_images = portion_images(device, self.planes * self.side**2)
        # Parts are copied to the device when first asked for: during a search, a test part is not
        self.copied: dict[Split, Planes] = {}

    def close(self) -> None:
        self.copied.clear()

    def _windows(self, batches: Sequence[Integers], epoch: int, spec: Augmentation) -> Iterator[Tensor]:
        planes, changes = self._planes("train"), after_crop(spec, self.flips)
        for batch in batches:
            draws, chosen = Draws(self.seed, epoch, batch), self._images_at(batch)
            boxes = window_boxes(spec.crop, draws, planes.sizes[chosen], self.side)
            windows = cut(planes, chosen, boxes, self.side).to(self.device, non_blocking=True)
            for change in changes:
                windows = change(windows, draws)
            yield windows

    def _plain(self, name: Split, batches: Sequence[Integers]) -> Iterator[Tensor]:
        planes = self._planes(name)
        for batch in batches:
            whole = torch.stack([planes.image(index) for index in batch.tolist()])
            yield whole.to(self.device, non_blocking=True)

    def _planes(self, name: Split) -> Planes:
        if name not in self.copied:
            part = self.held[name]
            values = as_tensor(part.values)
            values = values.to(self.device) if self.resident else values
            self.copied[name] = Planes(values, starts_of(part.sizes, self.planes), part.sizes, self.planes)
        return self.copied[name]


@final
class FileMasksLoader(_MaskLoader, FileLoader):
    """A loader that decodes images and masks each time, in `loop.workers` processes."""

    def _windows(self, batches: Sequence[Integers], epoch: int, spec: Augmentation) -> Iterator[Tensor]:
        how = Augmented(spec, self.flips, self.seed, epoch)
        return self._read([FileBatch("train", batch, self.side, how) for batch in batches])

    def _file_images(self) -> FileImages:
        return MaskedFileImages(self.data.selections, self.data.form)


@final
class MaskedFileImages(FileImages):
    """What a reading process makes of its files: batches with masks, windows uint8 [B, C + 1, side, side] for
    training, else whole images of one size, [B, C + 1, h, w]."""

    def __getitem__(self, batch: FileBatch) -> Tensor:
        decoded = self._decoded(batch)
        if (asked := batch.augmented) is None:
            return torch.stack([torch.from_numpy(each) for each in decoded])
        sizes = np.array([each.shape[1:] for each in decoded])
        planes = self.form.channels + 1
        values = torch.from_numpy(np.concatenate([each.ravel() for each in decoded]))
        held = Planes(values, starts_of(sizes, planes), sizes, planes)
        draws = Draws(asked.seed, asked.epoch, batch.positions)
        boxes = window_boxes(asked.spec.crop, draws, sizes, batch.side)
        windows = cut(held, np.arange(len(decoded)), boxes, batch.side)
        for change in after_crop(asked.spec, asked.flips):
            windows = change(windows, draws)
        return windows

    def _decoded(self, batch: FileBatch) -> list[Pixels]:
        source, indices = self.selections[batch.part]
        assert isinstance(source, MaskedSource)
        decoded = []
        for index in indices[batch.positions % len(indices)].tolist():
            with decoding(source, index):
                decoded.append(planes_of(source, index, self.form.channels))
        return decoded
