"""Small data, nets and recipes that the tests of Run share: an epoch takes milliseconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from trainable.bench import Bench
from trainable.data import DataSet
from trainable.data.assembly import from_arrays
from trainable.recipe import Recipe
from trainable.recipe.data import Split
from trainable.training.metrics import EpochResult
from trainable.training.run import Run

CLASSES = 3
SIZE = 8
ONE_THREAD = Bench(device_name="cpu", threads=1)
# They may differ between two equal runs
TIMES = {
    "epoch_seconds",
    "data_seconds",
    "evaluation_seconds",
    "images_per_second",
    "teacher_seconds",
    "first_step_extra_seconds",
    "starting_seconds",
    "checkpoint_seconds",
    "peak_memory_bytes",
}


def images(count: int, seed: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return noise with a bright column whose position shows the class, and the labels."""
    random = np.random.default_rng(seed)
    labels = np.arange(count) % CLASSES
    pixels = random.integers(0, 100, (count, SIZE, SIZE), dtype=np.uint8)
    pixels[np.arange(count), :, 2 * labels] += 120
    return pixels, labels


def data_set(train: int = 48, validation: int = 20, test: int = 20) -> DataSet:
    return from_arrays(images(train, 0), images(validation, 1), images(test, 2))


def write_parts(file: Path, *, other_kind: bool) -> None:
    """Write three parts, enough images to learn from; those of a test part of another kind are inverted."""
    (train_x, train_y), (val_x, val_y), (test_x, test_y) = images(240, 0), images(120, 1), images(120, 2)
    np.savez(
        file,
        train_images=train_x,
        train_labels=train_y,
        val_images=val_x,
        val_labels=val_y,
        test_images=255 - test_x if other_kind else test_x,
        test_labels=test_y,
    )


HELD = (32, 12, 4)  # the classes of the unequal set have so many training images
LABELS = np.repeat(np.arange(CLASSES), HELD)


def unequal_set() -> DataSet:
    """Return noise in classes of unequal sizes; half of the training images validate, too."""
    pixels = np.random.default_rng(0).integers(0, 255, (len(LABELS), SIZE, SIZE), dtype=np.uint8)
    return from_arrays((pixels, LABELS), (pixels[::2], LABELS[::2]))


def small_recipe(values: dict[str, Any] | None = None) -> Recipe:
    """Return three epochs of batches of 16 in fp32, without augmentation; `values` by dotted path."""
    plain: dict[str, Any] = {
        "data.path": "arrays",
        "model.width": 8,
        "augmentation.crop.kind": "none",
        "augmentation.flip_probability": 0.0,
        "precision.kind": "fp32",
        "optimizer.scaling": "none",
        "loop.epochs": 3,
        "loop.batch_size": 16,
    }
    return Recipe().with_values({**plain, **(values or {})})


def plain_net(seed: int = 0, dropout: float = 0.0) -> nn.Module:
    """Return a net in fp64 without batch statistics: what it computes of an image needs no other image."""
    torch.manual_seed(seed)
    layers = [
        nn.Conv2d(1, 4, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(dropout),
        nn.Linear(4 * SIZE * SIZE, CLASSES),
    ]
    return nn.Sequential(*layers).double()


def finished(run: Run) -> Run:
    """Train a run to its end."""
    while not run.finished:
        run.step()
    return run


def curve(history: tuple[EpochResult, ...]) -> list[dict[str, Any]]:
    """Return what a run measured, without the size of its micro-batches and what it did not measure."""
    return [
        {name: value for name, value in each.items() if name != "micro_batch" and value is not None}
        for each in numbers(history)
    ]


def numbers(history: tuple[EpochResult, ...]) -> list[dict[str, Any]]:
    """Return what a run measured, by name, without how long it took."""
    flat = [{**result.tree(), **result.extra_metrics} for result in history]
    left_out = {*TIMES, "extra_metrics"}
    return [{name: value for name, value in each.items() if name not in left_out} for each in flat]


def probabilities(run: Run, part: Split) -> Tensor:
    """What a run answers to the images of a part, in their order, [N, classes]."""
    found: list[Tensor] = []
    run.score(part, take=lambda positions, logits: found.append(logits))
    return torch.cat(found).softmax(1)
