"""The metrics and the answers that tests of what a run measures share: three classes, a few images."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from trainable.recipe import Recipe
from trainable.recipe.metrics import OfLabels
from trainable.training.answers import Answers
from trainable.training.extra_metrics import ExtraMetrics

NAMES = ("0", "1", "2")
# A metric of each kind
EVERY: list[Any] = [
    "macro_f1",
    "auroc",
    "average_precision",
    {"kind": "recall_at_precision", "precision": 0.6},
    {"kind": "cost", "costs": [[0, 1, 1], [2, 0, 1], [5, 5, 0]]},
    {"kind": "calibration_error", "bins": 7},
]


def specs(metrics: list[Any]) -> tuple[OfLabels, ...]:
    asked = Recipe().with_values({"evaluation.metrics": metrics}).evaluation.metrics
    return ExtraMetrics(asked, {}, NAMES).of_labels


@st.composite
def answers(draw: st.DrawFn) -> Answers:
    """Draw answers to some images, with many ties; some classes may have no image."""
    count, classes = draw(st.integers(1, 30)), len(NAMES)
    steps = st.lists(st.integers(-3, 3), min_size=classes, max_size=classes)
    logits = draw(st.lists(steps, min_size=count, max_size=count))
    labels = draw(st.lists(st.integers(0, classes - 1), min_size=count, max_size=count))
    return Answers.of_logits(torch.tensor(logits).double(), torch.tensor(labels))


def accuracy(probabilities: Tensor, labels: Tensor) -> float:
    return float((probabilities.argmax(1) == labels).double().mean())
