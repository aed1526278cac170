"""Training throughput of Run against a bare hand-written loop on the same model, images, batch and threads.

    python benchmarks/throughput.py [--rounds 31] [--images 2560] [--width 16] [--stem-stride 1]

Both arms train ResNet-8 on 28 x 28 grey images held in memory as uint8, batch 128, SGD with Nesterov
momentum, a cosine schedule, fp32, channels_last: the bare loop is what one would write by hand, no more.
One slice is one epoch of two seconds or more; arms take turns; the figure is the median over rounds of the
ratio within a round.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from report import Slice, described, environment, in_rounds, plain, ratio, refuse_busy_machine, write
from trainable.data import ArrayPart, DataSet, from_arrays
from trainable.models.make import make_model
from trainable.recipe import Recipe
from trainable.run import Run

BATCH = 128
CLASSES = 10
ENDLESS = 10_000
"""Epochs of the schedule: more than any benchmark trains."""


def main() -> None:
    options = _options()
    torch.set_num_threads(options.threads)
    refuse_busy_machine(options.threads)
    where = environment(options.threads)
    data = random_images(options.images)
    recipe = make_recipe(options)
    arms = {"bare loop": bare_loop(recipe, data), "Run": our_run(recipe, data)}
    slices = in_rounds(arms, options.rounds)
    figures = {
        "wall": ratio(slices["Run"], slices["bare loop"], lambda each: each.rate),
        "cpu": ratio(slices["Run"], slices["bare loop"], lambda each: each.thrift),
    }
    write(
        options.name,
        {"environment": where, "ratios": figures, "slices": plain(slices)},
        _page(slices, figures, where),
    )


def make_recipe(options: argparse.Namespace) -> Recipe:
    return Recipe().with_values(
        {
            "model.width": options.width,
            "model.stem_stride": options.stem_stride,
            "augmentation.crop.kind": "none",
            "precision.kind": "fp32",
            "loop.batch_size": BATCH,
            "loop.epochs": ENDLESS,
            "optimizer.lr": 0.01,
        }
    )


def random_images(count: int) -> DataSet:
    """Random grey images, as many as asked for training and as few as possible for validation."""
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (count + 20, 28, 28), dtype=np.uint8)
    labels = np.arange(count + 20, dtype=np.int64) % CLASSES
    train, validation = (images[:-20], labels[:-20]), (images[-20:], labels[-20:])
    return from_arrays(train=train, validation=validation)


def our_run(recipe: Recipe, data: DataSet) -> Callable[[], float]:
    run = Run(recipe, data=data, device=torch.device("cpu"))

    def epoch() -> float:
        run.step()
        return float(data.info.train_images // BATCH * BATCH)

    return epoch


def bare_loop(recipe: Recipe, data: DataSet) -> Callable[[], float]:
    """The loop one would write by hand, in one function."""
    torch.manual_seed(0)
    assert isinstance(data.train, ArrayPart)
    images, labels = data.train.tensors()
    mean = torch.tensor(data.info.mean).view(1, -1, 1, 1) * 255
    std = torch.tensor(data.info.std).view(1, -1, 1, 1) * 255
    model = make_model(recipe.model, classes=CLASSES, channels=1, image_size=28)
    model = model.to(memory_format=torch.channels_last)
    decay = [weight for weight in model.parameters() if weight.ndim > 1]
    rest = [weight for weight in model.parameters() if weight.ndim <= 1]
    groups = [{"params": decay, "weight_decay": 1e-4}, {"params": rest, "weight_decay": 0.0}]
    optimizer = torch.optim.SGD(groups, lr=0.01 * BATCH / 256, momentum=0.9, nesterov=True)
    loss_of = nn.CrossEntropyLoss()
    steps = len(labels) // BATCH
    taken = 0

    def epoch() -> float:
        nonlocal taken
        model.train()
        loss_sum, right = torch.zeros(()), torch.zeros((), dtype=torch.int64)
        for indices in torch.randperm(len(labels))[: steps * BATCH].split(BATCH):
            factor = 0.5 * (1.0 + math.cos(math.pi * taken / (steps * ENDLESS)))
            for group in optimizer.param_groups:
                group["lr"] = 0.01 * BATCH / 256 * factor
            batch = images[indices].to(torch.float32).sub_(mean).div_(std)
            batch = batch.contiguous(memory_format=torch.channels_last)
            target = labels[indices]
            optimizer.zero_grad(set_to_none=True)
            logits = model(batch)
            loss = loss_of(logits, target)
            loss.backward()
            optimizer.step()
            loss_sum += loss.detach()
            right += (logits.detach().argmax(1) == target).sum()
            taken += 1
        float(loss_sum), int(right)
        return float(steps * BATCH)

    return epoch


def _page(slices: dict[str, list[Slice]], figures: dict[str, dict[str, float]], where: dict[str, Any]) -> str:
    rates = {name: sorted(each.rate for each in arm) for name, arm in slices.items()}
    rows = "\n".join(
        f"| {name} | {np.median(rate):,.0f} | {rate[0]:,.0f} to {rate[-1]:,.0f} |"
        for name, rate in rates.items()
    )
    return (
        "# Training throughput against a bare loop\n\n"
        "ResNet-8, 28 x 28 grey images in memory, batch 128, fp32, channels_last; one slice is one epoch.\n\n"
        f"| arm | images/s, median | range |\n|-|-|-|\n{rows}\n\n"
        f"**Run / bare loop: {_told(figures['wall'])} by the wall clock, {_told(figures['cpu'])} by "
        f"processor time** (medians of n = {figures['wall']['n']} rounds, with least and most).\n\n"
        f"{described(where)}"
    )


def _told(figure: dict[str, float]) -> str:
    return f"{figure['median']:.3f} ({figure['min']:.3f} to {figure['max']:.3f})"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--images", type=int, default=2_560)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--stem-stride", type=int, default=1, choices=(1, 2))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--name", default="throughput-cpu")
    return parser.parse_args()


if __name__ == "__main__":
    main()
