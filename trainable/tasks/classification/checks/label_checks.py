"""What the checks ask of images with one label each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import final

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from trainable.array_types import Integers
from trainable.checks.finding import Finding, Level, guarded, passed, unchecked
from trainable.checks.networks import FAR_TOO_HIGH, IMAGES, LOW, about_outputs, misshapen
from trainable.checks.sampling import NamedImage
from trainable.checks.subject import Subject, TaskChecks
from trainable.data import DataSet, Split
from trainable.data.split import SplitPlan, grouped_split
from trainable.recipe import Recipe
from trainable.recipe.data import Data
from trainable.tasks.classification.checks.labels import (
    check_accuracy,
    check_contradictions,
    check_label_shares,
    check_labels,
)
from trainable.tasks.classification.checks.learning import check_flips, check_learning, check_shuffled, teach
from trainable.training.evaluate import full_precision
from trainable.training.run import Run

# A bound of the first loss over ln K. Networks as their libraries initialise them begin at 1.0 to 1.2
# (`resnet_small` with each initialisation, mobilenet_v3_small, resnet18, resnet10t); so do ten logits of
# deviation 1, at 1.2.
HIGH = 1.5


@final
class LabelChecks(TaskChecks):
    """Checks of labels, and of networks that answer with one label an image."""

    logits = "[B, classes]"
    at_once = None
    by_heart = 1.0

    def of_targets(self, data: DataSet, recipe: Recipe) -> Iterator[Finding]:
        yield from guarded("class balance", lambda: check_labels(data, recipe.data.unscored))
        yield from guarded("label shares", lambda: check_label_shares(data))
        yield from guarded("accuracy", lambda: [check_accuracy(data)])

    def contradictions(self, data: DataSet, groups: Sequence[Sequence[NamedImage]]) -> Finding:
        return check_contradictions(groups, data.info.classes)

    def check_split(self, data: DataSet, groups: Mapping[Split, Integers], spec: Data) -> None:
        labels = np.concatenate([data.parts[part].labels for part in groups])
        names = np.concatenate(list(groups.values())).astype(str).tolist()
        test_fraction = spec.test_fraction if "test" in groups else 0.0
        plan = SplitPlan(spec.validation_fraction, test_fraction, spec.split_seed, spec.validation_seed)
        grouped_split(labels, names, data.info.classes, plan)

    def lessons(self, subject: Subject, seconds: float) -> Iterator[Finding]:
        data = subject.data
        train, validation = (set(part.labels.tolist()) for part in (data.train, data.validation))
        if len(train & validation) < 2:
            yield unchecked("learning", "training and validation share fewer than two classes")
            return
        lesson = teach(subject, seconds)
        yield check_learning(lesson)
        yield from check_flips(lesson, data.info.flips)

    def outputs(self, run: Run, images: Tensor) -> Iterator[Finding]:
        yield from check_outputs(run, images)

    def initial_loss(self, run: Run) -> Finding:
        return check_initial_loss(run)

    def score(self, outputs: Tensor, targets: Tensor) -> float:
        """Return the share of a batch that is right."""
        return float((outputs.argmax(1) == targets).double().mean())

    def score_in_words(self, score: float) -> str:
        return f"{score:.0%} right"

    def shuffled(self, subject: Subject, seconds: float) -> Iterator[Finding]:
        yield from guarded("shuffled labels", lambda: [check_shuffled(subject, seconds)])


def check_outputs(run: Run, images: Tensor) -> Iterator[Finding]:
    """Yield whether outputs are logits [B, classes], are finite, and depend on their own image alone."""
    run.model.eval()
    with torch.inference_mode():
        together = full_precision(run.model(images))
        alone = full_precision(run.model(images[:1]))
    expected = (len(images), len(run.info.classes))
    if together.shape == expected:
        yield about_outputs(together, alone)
    else:
        yield misshapen(tuple(together.shape), expected)


def check_initial_loss(run: Run) -> Finding:
    """Compare the loss before any step, with batch statistics and without augmentation, with ln K; call it in
    `probing`."""
    losses, seen = 0.0, 0
    run.model.train()
    with torch.no_grad():
        for window in run.windows():
            for images, labels in window:
                outputs = full_precision(run.model(images))
                losses += float(functional.cross_entropy(outputs, labels, reduction="sum"))
                seen += len(labels)
            if seen >= IMAGES:
                break
    return initial_loss(losses / seen, len(run.info.classes))


def initial_loss(loss: float, classes: int) -> Finding:
    """Return the finding about a first loss: a network that knows nothing yet should give every class its
    share."""
    guessing = math.log(classes)
    what = f"the loss before training is {loss:.3g}, that of guessing is ln {classes} = {guessing:.3g}"
    if not loss <= HIGH * guessing:
        level: Level = "error" if not loss <= FAR_TOO_HIGH * guessing else "warning"
        means = "the network is sure of wrong answers at first: large steps, slow or unstable beginnings"
        do = (
            "smaller weights in the last layer, or model.initialisation; make sure that images are normalised"
        )
        return Finding("initial loss", level, what, means, do)
    if loss < LOW * guessing:
        means = "the network knows these labels already: it was trained on them, or they are in the images"
        return Finding(
            "initial loss", "warning", what, means, "find out where its weights (model.weights) come from"
        )
    return passed("initial loss", what)
