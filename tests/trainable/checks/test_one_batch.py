"""Tests that one batch is learnt by heart, and what is said where it is not."""

from __future__ import annotations

import pytest

from tests.trainable.small_runs import small_recipe
from tests.trainable.small_subjects import small_subject
from trainable.checks.one_batch import BatchAttempt, check_one_batch, finding_after_failure
from trainable.tasks.classification.checks.label_checks import LabelChecks

OPTIMIZERS = ["sgd", "rmsprop", "adam", "adamw", "adadelta", "lars", "lamb", "adam_then_sgd"]


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_every_optimizer_learns_one_batch_at_its_usual_rate(kind: str) -> None:
    recipe = small_recipe({"optimizer.kind": kind, "model.dropout": 0.5, "augmentation.crop.kind": "pad"})
    found = check_one_batch(small_subject(recipe), 16, 3600.0)
    assert found.level == "passed", found


@pytest.mark.parametrize("seconds", [0.0, 0.01])
def test_no_time_makes_no_error(seconds: float) -> None:
    found = check_one_batch(small_subject(small_recipe()), 16, seconds)
    assert found.level == "note"
    assert "not checked" in found.what


def attempt(
    first: float, last: float, accuracy: float, in_time: bool = True, steps: int = 100
) -> BatchAttempt:
    return BatchAttempt(
        (first, *[last] * (steps - 1)), accuracy, in_time, constant=False, checks=LabelChecks()
    )


@pytest.mark.parametrize(
    ("own", "easy", "level", "words"),
    [
        (attempt(2.3, 0.5, 0.9), attempt(2.3, 0.1, 1.0), "passed", "more slowly"),
        (attempt(2.3, 2.2, 0.2), attempt(2.3, 0.1, 1.0), "warning", "too low"),
        (attempt(2.3, 9.0, 0.2), attempt(2.3, 0.1, 1.0), "warning", "too high"),
        (attempt(2.3, 2.0, 0.2, in_time=False), attempt(2.3, 0.1, 1.0), "note", "not enough time"),
        (attempt(2.3, 2.2, 0.2), attempt(2.3, 2.2, 0.2), "error", "cannot learn"),
        (attempt(2.3, 2.2, 0.2), attempt(2.3, 1.0, 0.6, in_time=False), "note", "not enough time"),
        (attempt(2.3, 2.3, 0.1), attempt(2.3, 2.3, 0.1, in_time=False), "error", "cannot learn"),
        (attempt(2.3, 2.3, 0.1), attempt(2.3, 2.3, 0.1, in_time=False, steps=9), "note", "not enough time"),
    ],
)
def test_a_slow_rate_a_rate_that_is_off_and_a_net_that_cannot_learn_are_distinguished(
    own: BatchAttempt, easy: BatchAttempt, level: str, words: str
) -> None:
    found = finding_after_failure([own], easy, 16)
    assert found.level == level
    assert words in found.what + found.means
