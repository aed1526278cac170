"""Tests the verdict on real runs on digits."""

from __future__ import annotations

from typing import Any

import pytest

from tests.trainable.small_runs import finished
from trainable.bench import ON_CPU
from trainable.diagnosis import Diagnosis
from trainable.recipe import Recipe
from trainable.run import make_run
from trainable.train import diagnosed


def trained(values: dict[str, Any]) -> Diagnosis:
    plain = {
        "augmentation.crop.kind": "none",
        "augmentation.flip_probability": 0.0,
        "precision.kind": "fp32",
        "model.width": 8,
    }
    run = make_run(Recipe().with_values({**plain, **values}), bench=ON_CPU)
    finished(run)
    return diagnosed(run)


@pytest.mark.slow("trains networks")
def test_forty_images_learnt_by_heart_are_overfit() -> None:
    found = trained({"data.train_limit": 40, "loop.batch_size": 20, "loop.epochs": 30, "optimizer.lr": 2.0})
    assert found.verdict == "overfit", found
    assert found.figures["clean_train_accuracy"] > 0.9
    assert found.changes[0].path == "data.train_limit"


def test_a_crippled_net_is_underfit_or_still_improving() -> None:
    found = trained({"model.width": 8, "loop.epochs": 1, "optimizer.lr": 1e-4})
    assert found.verdict in ("underfit", "still improving"), found


@pytest.mark.slow("trains networks")
@pytest.mark.parametrize("rate", [30.0, 1e6])
def test_a_huge_rate_is_unstable_or_diverged(rate: float) -> None:
    found = trained({"loop.epochs": 6, "optimizer.lr": rate})
    assert found.verdict in ("unstable", "diverged"), found
    assert found.changes[0].to < rate


@pytest.mark.slow("trains networks")
def test_a_sound_run_on_digits_is_healthy_or_at_its_ceiling() -> None:
    found = trained({"loop.epochs": 15, "optimizer.lr": 0.5})
    assert found.verdict in ("healthy", "at its ceiling"), found
    assert found.changes == ()
