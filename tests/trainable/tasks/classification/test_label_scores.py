"""Tests what is kept of answers that are labels, and the scores of a model that is lost."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from trainable.tasks.classification.task import MATRIX_CLASSES, ClassificationTask, LabelTally
from trainable.training.answers import RankRows

CPU = torch.device("cpu")


def tally_of(logits: Tensor, labels: Tensor) -> LabelTally:
    tally = LabelTally(logits.shape[1], CPU, confusion=True)
    tally.add(logits, labels)
    return tally


def test_lost_scores_are_finite_and_behind_guessing() -> None:
    lost = ClassificationTask(20).worst()
    assert lost.finite
    assert lost.loss > math.log(20)
    assert lost.top5_accuracy == 0.0
    assert ClassificationTask(10).worst().top5_accuracy is None
    assert not tally_of(torch.full((4, 3), torch.nan), torch.zeros(4, dtype=torch.int64)).scores().finite


def test_many_classes_have_no_matrix_which_would_grow_with_their_square() -> None:
    labels = torch.arange(MATRIX_CLASSES + 1)
    assert tally_of(torch.eye(len(labels)).roll(1, 0), labels).scores().confusion is None
    assert tally_of(torch.eye(3), torch.arange(3)).scores().confusion is not None


@pytest.mark.parametrize("logits_too", [False, True])
def test_of_each_answer_a_few_numbers_are_kept_and_all_logits_only_where_a_metric_needs_them(
    logits_too: bool,
) -> None:
    generator = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(4, 10_000, generator=generator), torch.tensor([7, 9_999, 0, 5])
    logits[1, 9_999] = 9.0
    tally = LabelTally(10_000, CPU, rows=RankRows(torch.arange(4), 4, logits_too))
    tally.add(logits[:3], labels[:3])
    tally.add(logits[3:], labels[3:])

    found = tally.scores().answers

    assert found is not None
    assert (found.logits is not None) == logits_too
    probabilities = logits.double().softmax(1)
    assert torch.equal(found.labels, labels)
    assert torch.equal(found.predicted, logits.argmax(1))
    torch.testing.assert_close((-found.losses).exp(), probabilities[range(4), labels])
    torch.testing.assert_close(found.sureness, probabilities.amax(1))
    assert found.in_top.tolist() == [False, True, False, False]
    if logits_too:
        torch.testing.assert_close(found.probabilities, probabilities)
