"""The kit of classification: images with one label each, as folders, tables and arrays have them."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor
from torch.nn import functional

from trainable.bench import HERE, Bench
from trainable.data import DataInfo, DataSet, assembly
from trainable.data.loading import ArrayLoader, FileLoader, Loader, train_side
from trainable.data.parts import Members
from trainable.recipe import Recipe
from trainable.tasks.classification.task import ClassificationTask
from trainable.tasks.kit import HeadLoss, Kit
from trainable.training.extra_metrics import ExtraMetrics
from trainable.training.imbalance import class_terms


@final
class ClassificationKit(Kit):
    """Cross-entropy of images with one label each."""

    task_class = ClassificationTask

    def load(self, recipe: Recipe, bench: Bench, *, most_bytes: int | None = None) -> DataSet:
        return assembly.load(
            recipe.data,
            resize=recipe.evaluation.resize,
            bench=bench,
            most_bytes=most_bytes,
        )

    def stored_parts(self, recipe: Recipe, bench: Bench = HERE) -> tuple[Members, tuple[str, ...]]:
        return assembly.stored_parts(recipe.data, bench=bench)

    def stored_side(self, recipe: Recipe, bench: Bench = HERE) -> int | None:
        return assembly.stored_side(recipe.data, bench=bench)

    def loader(self, data: DataSet, recipe: Recipe, bench: Bench) -> Loader:
        views = data.decoded_views()
        if {("train", train_side(data, recipe)), ("validation", data.info.image_size)} <= views.keys():
            return ArrayLoader(data, recipe, bench.device, bench.gpu_share, views)
        return FileLoader(data, recipe, bench.device)

    def task(
        self, recipe: Recipe, info: DataInfo, device: torch.device, extra: ExtraMetrics | None = None
    ) -> ClassificationTask:
        spec = recipe.regularisation
        terms = class_terms(spec, info.class_counts, recipe.loop.sampling, device)
        return ClassificationTask(len(info.classes), spec.label_smoothing, *terms)

    def loss_of_noise(self, images: Tensor, info: DataInfo) -> HeadLoss:
        labels = (torch.arange(len(images)) % len(info.classes)).to(images.device)
        return lambda logits: functional.cross_entropy(logits, labels)
