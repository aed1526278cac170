"""Tests what a run is said to take: by its steps, less where a frozen body's features are remembered."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.trainable.small_runs import data_set, small_recipe
from trainable.bench import ON_CPU
from trainable.data.batch import Batch
from trainable.probes import run_cost
from trainable.probes.run_cost import HEAD, measure_run_cost
from trainable.recipe.network_cost import RunCost
from trainable.run import make_run

DATA = data_set(240)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_cost, "LEAST_SECONDS", 0.02)


def cost_of(**values: Any) -> RunCost:
    recipe = small_recipe({path.replace("__", "."): value for path, value in values.items()})
    return measure_run_cost(partial(make_run, recipe, data=DATA, bench=ON_CPU))


def test_a_run_takes_the_same_in_each_epoch_where_nothing_changes() -> None:
    found = cost_of(loop__epochs=4)
    assert len(set(found.training_seconds)) == 1
    assert min(found.training_seconds[0], found.scoring_seconds, found.checkpoint_seconds) > 0.0
    assert found.checkpoint_bytes > 1_000
    each = found.training_seconds[0] + found.scoring_seconds + found.checkpoint_seconds
    assert found.seconds(1, 3) == pytest.approx(2 * each)


def test_an_epoch_with_remembered_features_takes_a_part_of_a_step() -> None:
    frozen = {"model__freeze_epochs": 3, "model__frozen_views": 1}
    first, *remembered, last = cost_of(loop__epochs=4, **frozen).training_seconds
    assert remembered == pytest.approx([HEAD * first] * 2)
    assert last > remembered[0]


def test_a_step_that_takes_longer_makes_the_epoch_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    from trainable.training.run import Run

    train_on = Run.train_on

    def slowly(self: Run, *window: Any, **options: Any) -> Any:
        time.sleep(0.02)
        return train_on(self, *window, **options)

    monkeypatch.setattr(Run, "train_on", slowly)
    steps = 240 // small_recipe().loop.batch_size
    assert cost_of().training_seconds[0] >= 0.02 * steps


def test_what_augments_a_portion_of_images_is_shared_by_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    from trainable.training.run import Run

    windows = Run.windows

    def slowly(self: Run, epoch: int = 0) -> Iterator[list[Batch]]:
        assert self.steps_of_a_portion >= self.steps_of_an_epoch
        for step, window in enumerate(windows(self, epoch)):
            time.sleep(0.0 if step else 1.0)  # much more than a busy machine adds
            yield window

    before = cost_of().training_seconds[0]
    monkeypatch.setattr(Run, "windows", slowly)
    assert cost_of().training_seconds[0] - before == pytest.approx(1.0, abs=0.5)


def test_a_large_validation_part_is_not_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_cost, "MOST_SCORING_SECONDS", 0.0)
    found = cost_of()
    image = found.training_seconds[0] / 240
    assert found.scoring_seconds == pytest.approx(20 * image / 3, rel=0.2)
