"""Defines what is checked: a recipe with its images and its network, of which every check uses a new copy."""

from __future__ import annotations

import copy
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain, count
from typing import Any

import torch
from torch import Tensor, nn

from trainable.data import DataSet, Split
from trainable.recipe import Recipe
from trainable.recipe.distillation import SECTION
from trainable.run import make_run
from trainable.training import seeds
from trainable.training.evaluate import full_precision
from trainable.training.network import make_network
from trainable.training.pixels import resolved
from trainable.training.run import Run
from trainable.training.seeds import Use

PLAIN: Mapping[str, Any] = {
    SECTION: None,  # a teacher's share of the loss does not vanish
    "regularisation.label_smoothing": 0.0,
    "regularisation.class_weights.kind": "none",
    "regularisation.logit_adjustment": 0.0,
    "regularisation.clipping.kind": "none",
    "regularisation.averaging.kind": "none",
    "augmentation.crop.kind": "none",
    "augmentation.flip_probability": 0.0,
    "augmentation.policy.kind": "none",
    "augmentation.masking.kind": "none",
    "augmentation.mixing.kind": "none",
    "augmentation.size.kind": "fixed",
    "model.freeze_epochs": 0,
    "schedule.kind": "constant",
    "schedule.warmup_epochs": 0.0,
    "loop.sampling": "natural",
    "loop.micro_batch": None,
    "loop.workers": 0,
    "loop.sync_norm": False,
    "loop.checkpoint_activations": False,
    "loop.compile": False,
    "evaluation.flip": False,
    "evaluation.scales": [1.0],
    "evaluation.norm_batches": 0,
}
"""A recipe with these values has nothing that makes training images or labels harder,
or that only costs time here."""

EASY: Mapping[str, Any] = {
    "optimizer.kind": "adam",
    "optimizer.lr": 1e-3,
    "optimizer.scaling": "none",
    "model.layer_rates.kind": "uniform",
    "model.freeze_norm": False,
}
"""These values give a second opinion on rates:
at its paper's rate (1412.6980, section 2) Adam learns a batch with any net."""


LAST = 0.3
"""In this last part of its time, the rate of a training that is too slow for its steps falls to 0."""


@dataclass(frozen=True)
class Subject:
    """Holds a recipe resolved for its images, and the network as it is before training."""

    recipe: Recipe
    data: DataSet
    untrained: nn.Module
    without_drops: nn.Module
    """This is the same network, but it leaves nothing out at random."""
    device: torch.device
    is_own: bool
    """This says whether the network is a person's own, rather than the recipe's."""

    def network(self) -> nn.Module:
        """Return a copy of the network, to be trained or not."""
        return copy.deepcopy(self.untrained)

    def plain_run(
        self, batch_size: int, values: Mapping[str, Any] | None = None, data: DataSet | None = None
    ) -> Run:
        """Return a run of the network without dropout on images without augmentation."""
        return make_run(
            self.recipe.with_values({**PLAIN, "loop.batch_size": batch_size, **(values or {})}),
            data=data or self.data,
            model=copy.deepcopy(self.without_drops),
            device=self.device,
        )


def make_subject(
    recipe: Recipe, data: DataSet, model: nn.Module | None, device: torch.device, *, download: bool
) -> Subject:
    """Make the subject of the checks. Raises ModelError if the recipe's network cannot be made."""
    whole = resolved(recipe, data, own_model=model is not None, download=download)
    if model is not None:
        untrained, bare = copy.deepcopy(model), copy.deepcopy(model)
    else:
        drops = {"dropout": 0.0 if recipe.model.dropout is not None else None, "stochastic_depth": None}
        untrained = _make_network(recipe, data, device, download)
        bare = _make_network(
            recipe.model_copy(update={"model": recipe.model.model_copy(update=drops)}), data, device, download
        )
    return Subject(whole, data, untrained, _without_drops(bare), device, is_own=model is not None)


def _make_network(recipe: Recipe, data: DataSet, device: torch.device, download: bool) -> nn.Module:
    """Return the recipe's network, drawn as `Run` draws it."""
    with seeds.global_generators(device, seeds.derive(recipe.loop.seed, Use.WEIGHTS)):
        return make_network(recipe.model, data.info, download=download)


def _without_drops(model: nn.Module) -> nn.Module:
    """Return the network, with every layer of dropout or stochastic depth set to probability 0."""
    torchvision = sys.modules.get("torchvision.ops")  # a package that is not imported has made no layer
    timm = sys.modules.get("timm.layers.drop")
    for module in model.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd) or (
            torchvision is not None and isinstance(module, torchvision.StochasticDepth)
        ):
            module.p = 0.0
        elif timm is not None and isinstance(module, timm.DropPath):
            module.drop_prob = 0.0
    return model


def train(run: Run, *, steps: int, lr: float, seconds: float) -> int:
    """Train a run in `probing` for so many steps, or fewer if time runs out. Return how many steps it took.

    The rate falls in a straight line to 0, so that the weights settle: with the steps, and faster in the last
    part of the time.
    """
    began = time.perf_counter()
    windows = chain.from_iterable(map(run.windows, count()))
    for done in range(steps):
        left = 1.0 - (time.perf_counter() - began) / seconds
        if left <= 0.0:
            return done
        run.train_on(next(windows), lr * min(1.0 - done / steps, left / LAST))
    return steps


@torch.inference_mode()
def logits(run: Run, part: Split, turned: Callable[[Tensor], Tensor] | None = None) -> tuple[Tensor, Tensor]:
    """Return what a run's network answers to a part's images, perhaps turned: [N, classes];
    and the labels [N].

    Both are on the CPU. Call it in `probing`: it leaves the network in evaluation mode.
    """
    run.model.eval()
    answers, truth = [], []
    for images, labels in run.images.evaluate(part):
        shown = images if turned is None else turned(images)
        answers.append(full_precision(run.model(shown)).cpu())
        truth.append(labels.cpu())
    return torch.cat(answers), torch.cat(truth)
