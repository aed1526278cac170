"""Measures a model's answers by the metrics of `evaluation.metrics`, and by functions of the caller's.

Each is computed on the host, of the answers to the whole part: never as a mean over ranks or batches. What
scikit-learn has, it computes: it is here already, is imported in a third of the time that torchmetrics takes
(2.5 s and 7 s, n=3 each), and asks nothing of the device.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import assert_never

import numpy as np
import torch
from torch import Tensor

from trainable.errors import Fault, RecipeError, UserError, listed
from trainable.files.host_memory import available_bytes
from trainable.recipe.metrics import (
    AUROC,
    AveragePrecision,
    CalibrationError,
    Cost,
    MacroF1,
    MetricKind,
    Mode,
    OfLabels,
    RecallAtPrecision,
    cost_faults,
)
from trainable.training.answers import Answers
from trainable.training.evaluate import Array, Scores
from trainable.training.metrics import OBJECTIVES

# Takes the probabilities [N, classes], float64, and the labels [N], int64, of a whole part, on the CPU.
#
# In a segmentation it takes the predicted [H, W] and the true mask [H, W], int64, of one image; the metric is
# the mean over images.
Function = Callable[[Tensor, Tensor], float]

# No function of the caller's may have these names
RESERVED = tuple(dict.fromkeys(("loss", *(name.removeprefix("val_") for name in OBJECTIVES))))
NAME = re.compile(r"[a-z][a-z0-9_]{0,99}")
PROBABILITY_BYTES = 8  # float64
GUESSING = 0.5  # the area under any ROC curve of a model that guesses


@dataclass(frozen=True)
class Metric:
    """A metric of the caller's: a function, the direction in which it is better, and its worst value.

    A run that diverged is given the worst value, so that it ranks behind every other: 0 unless another one is
    given, as for a metric that can be negative. Raises ValueError where it is not finite, or where lower is
    better and none is given.
    """

    compute: Function
    mode: Mode = "max"
    worst: float | None = None

    def __post_init__(self) -> None:
        if self.mode not in ("max", "min"):
            raise ValueError(f"mode must be 'max' or 'min', got {self.mode!r}")
        if self.worst is None and self.mode == "min":
            raise ValueError("a metric of mode 'min' needs its worst finite value: Metric(..., worst=1.0)")
        if self.worst is not None and not math.isfinite(self.worst):
            raise ValueError(f"worst must be finite, got {self.worst}")

    @property
    def worst_value(self) -> float:
        return 0.0 if self.worst is None else self.worst


# The caller's metrics by name, such as `f_beta`; of a function alone, higher is better, and 0 is worst
Own = Mapping[str, Metric | Function]


@dataclass(frozen=True)
class ExtraMetrics:
    """The metrics that answers are measured by beside the usual ones: the `specs`, and the caller's own."""

    specs: Sequence[MetricKind]
    own: Mapping[str, Metric]
    classes: Sequence[str]

    def __bool__(self) -> bool:
        return bool(self.specs or self.own)

    @property
    def of_labels(self) -> tuple[OfLabels, ...]:
        """The specs that are measured of labels of images."""
        return tuple(spec for spec in self.specs if isinstance(spec, OfLabels))

    @property
    def needs_probabilities(self) -> bool:
        """Whether one needs the probabilities of all classes, which take images x classes x 8 bytes."""
        return bool(self.of_probabilities)

    @property
    def of_probabilities(self) -> tuple[str, ...]:
        """The names of the metrics that need the probabilities of all classes."""
        return (*(spec.kind for spec in self.specs if spec.needs_probabilities), *self.own)

    def check_fits(self, images: int, device: torch.device) -> None:
        """Raise UserError where the probabilities of all classes for so many images do not fit in the free
        memory: on the host as logits, as probabilities and as the copy of a caller's function, on a GPU once,
        while the images are scored."""
        if not self.needs_probabilities:
            return
        size = images * len(self.classes) * PROBABILITY_BYTES
        places = {"memory": ((3 if self.own else 2) * size, available_bytes())}
        if device.type == "cuda":
            places["the GPU's memory"] = (size, _free_on(device))
        for place, (needed, free) in places.items():
            if needed > free:
                names = listed(list(self.of_probabilities))
                raise UserError(
                    f"metrics {names}: the probabilities of {len(self.classes):,} classes for {images:,} "
                    f"images take {needed:,} bytes of {place}, and {free:,} are free; leave these metrics "
                    "out (evaluation.metrics, or functions of yours), or score fewer images "
                    "(data.validation_fraction, data.test_fraction)"
                )

    def measure(self, answers: Answers) -> dict[str, float]:
        """Return finite values by name. Raises UserError where a function of the caller's gives none."""
        values = {spec.kind: measured(spec, answers, self.classes) for spec in self.of_labels}
        return values | {name: called(name, metric, answers) for name, metric in self.own.items()}

    def added_to(self, scores: Scores, keep: bool) -> Scores:
        """Return scores that hold these metrics of their answers, and the answers only if `keep`.

        Scores that are not finite, and those without answers, are returned as they are.
        """
        if scores.answers is None or not scores.finite:
            return scores
        extra = self.measure(scores.answers)
        return replace(scores, extra=extra, answers=scores.answers if keep else None)

    def worst_of(self, scores: Scores) -> Scores:
        """Return the scores of a model that is lost, with the worst value of each metric too."""
        values: dict[str, float] = {spec.kind: spec.worst for spec in self.specs}
        own = {name: each.worst_value for name, each in self.own.items()}
        return replace(scores, extra={**scores.extra, **values, **own})


def _free_on(device: torch.device) -> int:
    """Return the free bytes of a GPU, with those that torch holds for tensors to come."""
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(torch.cuda.mem_get_info(device)[0] + unused)


def make_extra_metrics(specs: Sequence[MetricKind], own: Own, classes: Sequence[str]) -> ExtraMetrics:
    """Return the metrics of a run, checked against its classes.

    Raises RecipeError for costs of other classes, UserError for a function's name that cannot be used.
    """
    if faults := [Fault("evaluation.metrics", each) for each in cost_faults(specs, classes)]:
        raise RecipeError(faults)
    for name in own:
        if not NAME.fullmatch(name) or name in RESERVED:
            known = ", ".join(RESERVED)
            raise UserError(
                f"metrics: a function cannot be called {name!r}: expected lower-case letters, digits and _, "
                f"and none of {known}"
            )
    return ExtraMetrics(specs, {name: as_metric(each) for name, each in own.items()}, classes)


def as_metric(given: Metric | Function) -> Metric:
    """Return the metric that a caller's metric or function stands for."""
    return given if isinstance(given, Metric) else Metric(given)


def measured(spec: OfLabels, answers: Answers, classes: Sequence[str]) -> float:
    """Return one metric of the answers to a part. `trainable.recipe.metrics` says what each is."""
    labels, predicted = answers.labels.numpy(), answers.predicted.numpy()
    match spec:
        case MacroF1():
            from sklearn.metrics import f1_score  # 2 s, which other runs need not spend

            there = np.unique(labels)
            return float(f1_score(labels, predicted, labels=there, average="macro", zero_division=0))
        case AUROC():
            from sklearn.metrics import roc_auc_score

            return _mean_of_classes(roc_auc_score, answers, alone=GUESSING)
        case AveragePrecision():
            from sklearn.metrics import average_precision_score

            return _mean_of_classes(average_precision_score, answers)
        case RecallAtPrecision():
            return _mean_of_classes(partial(_recall_at, precision=spec.precision), answers)
        case Cost():
            return float(costs_of(spec, classes)[labels, predicted].mean())
        case CalibrationError():
            return calibration_error(*sureness(answers), spec.bins)
        case _:
            assert_never(spec)


def _mean_of_classes(
    score: Callable[[Array, Array], float], answers: Answers, alone: float | None = None
) -> float:
    """Return the mean of a score over the classes that the part has, one against rest.

    `alone` is the value for a part that has one class alone, where the score needs others.
    """
    labels, probabilities = answers.labels.numpy(), answers.probabilities.numpy()
    there = np.unique(labels)
    if alone is not None and len(there) == 1:
        return alone
    return float(np.mean([score(labels == each, probabilities[:, each]) for each in there]))


def _recall_at(positive: Array, scores: Array, precision: float) -> float:
    from sklearn.metrics import precision_recall_curve

    precisions, recalls, _ = precision_recall_curve(positive, scores)
    return float(recalls[precisions >= precision].max())  # the curve's last point has precision 1, recall 0


def costs_of(spec: Cost, classes: Sequence[str]) -> Array:
    """Return the costs [true, predicted] in the order of the data's classes."""
    costs = np.array(spec.costs)
    order = range(len(classes)) if spec.classes is None else [spec.classes.index(each) for each in classes]
    ordered: Array = costs[np.ix_(order, order)]
    return ordered


def sureness(answers: Answers) -> tuple[Array, Array]:
    """Return the probability [N] of each predicted class, and whether it is right."""
    return answers.sureness.numpy(), (answers.predicted == answers.labels).numpy()


def bin_of(sure: Array, bins: int) -> Array:
    """Return the bin of each probability: they are (0, 1/bins], ..., (1 - 1/bins, 1]."""
    found: Array = np.clip(np.ceil(sure * bins).astype(int) - 1, 0, bins - 1)
    return found


def calibration_error(sure: Array, right: Array, bins: int) -> float:
    """Return the expected calibration error of probabilities [N] that were right or not."""
    gaps = np.bincount(bin_of(sure, bins), weights=right - sure, minlength=bins)
    return float(np.abs(gaps).sum() / len(sure))


def called(name: str, metric: Metric, answers: Answers) -> float:
    """Return what a function of the caller's makes of the answers, on copies that it may change."""
    return called_with(name, metric, answers.probabilities, answers.labels)


def called_with(name: str, metric: Metric, predicted: Tensor, truth: Tensor) -> float:
    """Return what a function of the caller's makes of tensors on the host, on copies that it may change.

    Raises UserError, with the metric's name, where the function fails or returns no finite number.
    """
    try:
        value = float(metric.compute(predicted.clone(), truth.clone()))
    except Exception as error:
        raise UserError(f"metric {name}: your function raised {type(error).__name__}: {error}") from error
    if not math.isfinite(value):
        raise UserError(f"metric {name}: your function returned {value}, expected a finite number")
    return value
