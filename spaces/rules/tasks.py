"""What the documents' rules answer for each task: one value a task, with an answer to every question.

Where a task has a range of its own, `spaces.rules.rules` names the task beside the field.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import assert_never

from spaces.domains import Value
from spaces.facts import Backbone, Facts
from spaces.rules import augmentations, finetuning, imbalance, loops, masks, rates, regularisation, schedules
from spaces.rules.rates import OptimizerKind
from spaces.rules.rulings import Ruling, Rulings
from trainable.recipe.tasks import TaskKind


@dataclass(frozen=True)
class StartRules:
    """The pretrained networks that a search of one task may start from by itself."""

    least_side: int  # of the images as stored, in pixels: smaller ones are learnt from scratch
    model: Callable[[Backbone], Mapping[str, str]]  # the fields of a recipe's section `model`
    source: str
    unfit: tuple[str, ...] = ()  # networks whose names begin so do not suit the task


@dataclass(frozen=True)
class TaskRules:
    """The answers of one task to what its documents are asked, wherever tasks differ."""

    optimizer: Callable[[Facts], Ruling[str]]
    optimizers: Callable[[Facts], tuple[dict[Value, float], str]]  # shares from scratch, and the reason
    rate: Callable[[Facts, OptimizerKind, bool], Ruling[float]]  # at batch 256; True: BatchNorm is frozen
    short_run_factor: Callable[[Facts, OptimizerKind], float]  # of the rate
    rate_is_sure: Callable[[Facts, OptimizerKind], bool]
    decay: Callable[[Facts, OptimizerKind, bool], Ruling[float]]  # True: augmentation is strong
    schedule: Callable[[Facts], Ruling[str]]
    power: Ruling[float] | None  # of a polynomial; None leaves the recipe's default
    crop: Callable[[Facts], Ruling[str]]
    batch_size: Callable[[Facts], Ruling[int]]
    wanted_epochs: Callable[[Facts], Ruling[int]]
    network: Callable[[Facts], Rulings]  # what a pretrained network needs, and the side of what it sees
    label_smoothing: Callable[[Facts], Ruling[float]]
    corrections: Callable[[Facts], Rulings]  # of unequal classes
    losses: Rulings
    start: StartRules
    fine_tuned: tuple[str, ...] = ()  # what fine-tuning varies in this task alone


LABELS = TaskRules(
    optimizer=rates.optimizer,
    optimizers=rates.optimizers,
    rate=rates.rate,
    short_run_factor=rates.short_run_factor,
    rate_is_sure=rates.is_sure,
    decay=rates.weight_decay,
    schedule=schedules.schedule,
    power=None,
    crop=augmentations.crop_kind,
    batch_size=loops.batch_size,
    wanted_epochs=loops.wanted_epochs,
    network=finetuning.frozen_norm,
    label_smoothing=regularisation.label_smoothing,
    corrections=imbalance.corrections,
    losses={},
    start=StartRules(
        least_side=finetuning.LEAST_SIDE,
        model=finetuning.model,
        source="measured: benchmarks/results/finetuning.md; arXiv 1411.1792, 2406.05612; the 64 px are ours",
    ),
)
MASKS = TaskRules(
    optimizer=masks.optimizer,
    optimizers=masks.optimizers,
    rate=masks.rate,
    short_run_factor=masks.short_run_factor,
    rate_is_sure=masks.rate_is_sure,
    decay=masks.weight_decay,
    schedule=masks.schedule,
    power=masks.POWER,
    crop=masks.crop_kind,
    batch_size=masks.batch_size,
    wanted_epochs=masks.wanted_epochs,
    network=masks.network,
    label_smoothing=masks.label_smoothing,
    corrections=masks.corrections,
    losses=masks.LOSSES,
    start=StartRules(
        least_side=masks.LARGEST_OF_UNET_SMALL + 1,
        model=masks.model,
        source="000:48; arXiv 1505.04597, 1411.4038, section 4.3; the 128 px are ours",
        unfit=("vit_",),  # their features have one size, above which no decoder fits
    ),
    fine_tuned=("augmentation.crop.kind", "augmentation.crop.scale_max", "task.loss.dice"),
)


def rules_of(task: TaskKind) -> TaskRules:
    """Return the answers of a task."""
    match task:
        case "classification":
            return LABELS
        case "segmentation":
            return MASKS
        case _:
            assert_never(task)
