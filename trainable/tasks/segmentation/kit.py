"""The kit of segmentation: images whose pixels have a label each, in masks beside them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor
from torch.nn import functional

from trainable.bench import HERE, Bench
from trainable.data import DataInfo, DataSet
from trainable.data.loading import Loader, statistics_of
from trainable.data.parts import Members
from trainable.recipe import Recipe
from trainable.recipe.tasks import Segmentation
from trainable.tasks.kit import HeadLoss, Kit
from trainable.tasks.segmentation.data import assembly
from trainable.tasks.segmentation.data.loading import FileMasksLoader, HeldMasksLoader
from trainable.tasks.segmentation.data.parts import MaskedPart
from trainable.tasks.segmentation.losses import enlarged
from trainable.tasks.segmentation.task import SegmentationTask, SlidingWindow
from trainable.training.extra_metrics import ExtraMetrics
from trainable.training.imbalance import class_terms


@final
@dataclass(frozen=True)
class SegmentationKit(Kit):
    """Losses of pixels, in windows that are cut out of images which keep their sizes."""

    section: Segmentation

    task_class = SegmentationTask

    def load(self, recipe: Recipe, bench: Bench, *, most_bytes: int | None = None) -> DataSet:
        return assembly.load(
            recipe.data,
            self.section.masks,
            bench=bench,
            most_bytes=most_bytes,
        )

    def stored_parts(self, recipe: Recipe, bench: Bench = HERE) -> tuple[Members, tuple[str, ...]]:
        return assembly.stored_parts(recipe.data, self.section.masks, bench=bench)

    def stored_side(self, recipe: Recipe, bench: Bench = HERE) -> int | None:
        return assembly.stored_side(recipe.data, self.section.masks, bench=bench)

    def loader(self, data: DataSet, recipe: Recipe, bench: Bench) -> Loader:
        if isinstance(data.train, MaskedPart):
            return HeldMasksLoader(data, recipe, bench.device, bench.gpu_share)
        return FileMasksLoader(data, recipe, bench.device)

    def task(
        self, recipe: Recipe, info: DataInfo, device: torch.device, extra: ExtraMetrics | None = None
    ) -> SegmentationTask:
        """Return the task; the pixels of a class count, and those of an image whatever its sampling is."""
        spec = recipe.regularisation
        mean, std = (torch.tensor(each).to(device) for each in statistics_of(recipe.data, info))
        return SegmentationTask(
            self.section,
            len(info.classes),
            SlidingWindow(info.image_size, self.section.overlap, -mean / std),
            label_smoothing=spec.label_smoothing,
            terms=class_terms(spec, info.pixel_counts, "natural", device),
            extra=extra,
        )

    def loss_of_noise(self, images: Tensor, info: DataInfo) -> HeadLoss:
        """Return the cross-entropy at the images' size, to which logits are enlarged."""
        shape = (len(images), *images.shape[-2:])
        masks = (torch.arange(math.prod(shape)).view(shape) % len(info.classes)).to(images.device)
        return lambda logits: functional.cross_entropy(enlarged(logits, masks), masks)
