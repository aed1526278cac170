"""Tests the checks of single steps: gradients, the first steps, and the wait for images."""

from __future__ import annotations

import math

import pytest
import torch

from tests.trainable.small_runs import data_set, plain_net, small_recipe
from tests.trainable.small_subjects import small_subject
from trainable.bench import ON_CPU
from trainable.checks.steps import (
    FirstSteps,
    check_first_steps,
    check_loader,
    check_step,
    first_steps,
    waited_share,
    wanted_workers,
)
from trainable.run import make_run

OPTIMIZERS = ["sgd", "rmsprop", "adam", "adamw", "adadelta", "lars", "lamb", "adam_then_sgd"]


def steps(*losses: float) -> FirstSteps:
    return FirstSteps(losses, 0.001, 0.1)


@pytest.mark.parametrize(
    "values", [*({"optimizer.kind": kind} for kind in OPTIMIZERS), {"optimizer.lr": 1e-12}]
)
def test_a_step_of_every_optimizer_and_at_a_tiny_rate_is_a_step(values: dict[str, object]) -> None:
    run = small_subject(small_recipe(values)).plain_run(16)
    with run.probing():
        assert [each.level for each in check_step(run)] == ["passed"]


def test_a_run_is_afterwards_as_it_was() -> None:
    run = small_subject(small_recipe()).plain_run(16)
    before = {name: value.clone() for name, value in run.model.state_dict().items()}
    with run.probing():
        list(check_step(run))
    assert all(torch.equal(value, before[name]) for name, value in run.model.state_dict().items())


@pytest.mark.parametrize(
    ("losses", "level"),
    [
        ((2.3, 2.2, 2.0), "passed"),
        ((2.3, 6.0, 3.0), "passed"),
        ((2.3, 12.0, 3.0), "warning"),
        ((2.3, math.inf), "warning"),
        ((2.3, math.nan), "warning"),
    ],
)
def test_a_loss_that_explodes_in_the_first_steps_is_a_warning(losses: tuple[float, ...], level: str) -> None:
    assert check_first_steps(steps(*losses)).level == level


def test_the_first_steps_are_taken_as_the_schedule_has_them() -> None:
    """A rate that would explode at once does not while the warm-up holds it down."""
    values = {"optimizer.lr": 30.0, "schedule.kind": "cosine"}
    recipes = [
        small_recipe({**values, "loop.epochs": 90, "schedule.warmup_epochs": each}) for each in (0.0, 80.0)
    ]
    levels = []
    for recipe in recipes:
        run = make_run(recipe, data=data_set(), model=plain_net(), bench=ON_CPU)
        with run.probing():
            taken = first_steps(run, 10.0)
        assert isinstance(taken, FirstSteps)
        levels.append(check_first_steps(taken).level)
    assert levels == ["warning", "passed"]


def test_a_batch_that_does_not_fit_into_memory_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> torch.Tensor:
        raise torch.OutOfMemoryError("full")

    run = make_run(small_recipe(), data=data_set(), bench=ON_CPU)
    monkeypatch.setattr(run, "train_on", full)
    with run.probing():
        found = first_steps(run, 10.0)
    assert not isinstance(found, FirstSteps)
    assert found.level == "warning"
    assert "batch-find" in found.do


# --- waiting for images -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "step", "cpus", "workers"),
    [(0.1, 0.1, 8, 1), (0.35, 0.1, 8, 4), (3.0, 0.1, 8, 7), (3.0, 0.1, 1, 1), (0.001, 0.1, 8, 1)],
)
def test_workers_are_as_many_as_read_a_batch_in_a_step_and_leave_a_processor(
    data: float, step: float, cpus: int, workers: int
) -> None:
    assert wanted_workers(data, step, cpus) == workers


def test_the_time_waited_is_all_of_the_reading_without_workers_and_what_they_are_behind_with_some() -> None:
    assert waited_share(0.3, 0.1, 0) == pytest.approx(0.75)
    assert waited_share(0.3, 0.1, 1) == pytest.approx(2 / 3)
    assert waited_share(0.3, 0.1, 3) == pytest.approx(0.0)


def test_a_slow_loader_is_a_warning_with_a_number_of_workers() -> None:
    slow = FirstSteps((1.0,), data_seconds=0.35, step_seconds=0.1)
    found = check_loader(slow, workers=0, in_memory=False, cpus=8)
    assert found.level == "warning"
    assert "loop.workers: 4" in found.do
    assert check_loader(slow, workers=4, in_memory=False, cpus=8).level == "passed"


def test_files_that_are_decoded_before_a_run_need_no_more_workers() -> None:
    slow = FirstSteps((1.0,), data_seconds=0.35, step_seconds=0.1)

    found = check_loader(slow, workers=0, in_memory=False, cached=True, cpus=8)

    assert found.level == "passed"
    assert "data.cache" in found.what


def test_a_loader_that_no_worker_would_help_is_no_warning() -> None:
    slow = FirstSteps((1.0,), data_seconds=0.35, step_seconds=0.1)
    assert check_loader(slow, workers=1, in_memory=False, cpus=2).level == "passed"


def test_images_in_memory_are_a_note_at_most() -> None:
    slow = FirstSteps((1.0,), data_seconds=0.35, step_seconds=0.1)
    assert check_loader(slow, workers=0, in_memory=True).level == "note"
    assert check_loader(steps(1.0), workers=0, in_memory=True).level == "passed"
