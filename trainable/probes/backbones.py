"""Measures how well the frozen features of a pretrained network tell the classes of a data set apart.

A grid of linear heads, on features that are computed once, ranks networks in seconds, where training each
takes hours. Kornblith, Shlens and Le (arXiv 1805.08974, section 4) find that ImageNet accuracy predicts the
accuracy of such heads (r = 0.99) and that after fine-tuning (r = 0.96) on twelve sets of photographs. Your
images may be none of these, so it is measured on them.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from trainable.array_types import Integers
from trainable.bench import Bench
from trainable.checks.two_samples import Booleans
from trainable.data import DataSet, Split
from trainable.data.measure import some
from trainable.data.split import some_of_each_class
from trainable.errors import ModelError
from trainable.files.host_memory import available_bytes
from trainable.probes.memory_estimate import SMALLEST, draw_line, tensor_bytes
from trainable.recipe import Recipe
from trainable.tasks.kits import make_loader
from trainable.training.part_features import FeatureArray, part_features

# At most so many images of each part are looked at, the same for every network
TRAIN, VALIDATION = 5_000, 2_000
# The grid of heads: scikit-learn's C, the inverse of the decay, for standardised features
STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
STEPS = 200
MEMORY_BATCH = 32
DRAWS = 2_000  # of the validation images


@dataclass(frozen=True)
class HeadFeatures:
    """What a network's body makes of some training and some validation images."""

    train: FeatureArray  # [N, F]
    train_labels: Integers  # [N]
    validation: FeatureArray
    validation_labels: Integers


@dataclass(frozen=True)
class HeadScore:
    """The best head of the grid."""

    right: Booleans  # which validation images it has right, [N]
    strength: float  # its C

    @property
    def accuracy(self) -> float:
        return float(self.right.mean())


def features_of(network: nn.Module, data: DataSet, recipe: Recipe, bench: Bench) -> HeadFeatures:
    """Return what a network's body makes of a sample of training and validation images, shown as in scoring.

    The training images are of every class, in proportion: a head never answers a class that it has not seen.
    Raises ModelError for a network that cannot be cut before its head.
    """
    chosen: dict[Split, Integers] = {
        "train": some_of_each_class(data.train.labels, TRAIN),
        "validation": some(len(data.validation), VALIDATION),
    }
    loader = make_loader(data, recipe.with_values({"loop.workers": 0}), bench)
    found = part_features(network, loader, recipe, data.info, chosen)
    if found is None:
        raise ModelError(f"{type(network).__name__}: its features cannot be told from its head")
    return HeadFeatures(*found["train"], *found["validation"])


def best_head(features: HeadFeatures) -> HeadScore:
    """Return the linear head of the grid that has most validation images right.

    Heads are multinomial logistic regressions on features of mean 0 and deviation 1 over the training images.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    mean, std = features.train.mean(0), features.train.std(0)
    std[std == 0.0] = 1.0
    train, validation = (features.train - mean) / std, (features.validation - mean) / std
    scores = []
    for strength in STRENGTHS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # nearly converged ranks as well
            head = LogisticRegression(C=strength, max_iter=STEPS, tol=1e-3).fit(train, features.train_labels)
        scores.append(HeadScore(head.predict(validation) == features.validation_labels, strength))
    return max(scores, key=lambda each: each.accuracy)


def chances_to_be_best(right: Sequence[Booleans]) -> list[float]:
    """Return for each network how often it has most images right when validation images are drawn again, in
    a paired bootstrap (Efron and Tibshirani 1993, chapter 6); ties are shared.

    `right` holds for each network which of the same validation images it has right.
    """
    table = np.stack(right).astype(np.float64)
    count = table.shape[1]
    drawn = np.random.default_rng(0).multinomial(count, np.full(count, 1.0 / count), size=DRAWS)
    totals = table @ drawn.T
    best = totals == totals.max(0)
    shares: list[float] = (best / best.sum(0)).mean(1).tolist()
    return shares


def training_bytes(network: nn.Module, shape: tuple[int, int, int], images: int = MEMORY_BATCH) -> int:
    """Return about how much memory it takes to fine-tune a network with AdamW on so many images at once, in
    fp32 on a CPU: the estimate that `batch-find` makes there, from a few small steps."""
    network = network.cpu().train()
    optimizer = torch.optim.AdamW([each for each in network.parameters() if each.requires_grad], lr=0.0)

    def take(count: int) -> None:
        network(torch.zeros(count, *shape)).logsumexp(1).sum().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    take(SMALLEST)  # makes AdamW's averages, which are held from then on
    held = tensor_bytes([network.state_dict(), optimizer.state_dict()])
    return draw_line(take, held, available_bytes() // 2).bytes(images)
