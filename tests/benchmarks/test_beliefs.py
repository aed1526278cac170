"""Priors of known worth: around the best draw, ten times off it, or around the worst."""

from __future__ import annotations

import math

import numpy as np
import pytest

from offline.beliefs import DRAWS, believing, displaced
from spaces.domains import Choice, Float, Integer, Value, fraction_of
from spaces.priors import Normal, Uniform, Weights
from tests.benchmarks.small_tasks import bowl, sgd, straight, task_of


def test_a_right_prior_is_centred_on_the_best_draw_and_starts_there() -> None:
    task = bowl()
    best = max(task.even_draws(DRAWS, seed=0), key=task.final)
    space = believing(task, "right", seed=0)
    beliefs = space.priors(best.values)
    assert beliefs["optimizer.kind"] == Weights((4.0, 1.0))
    assert beliefs["optimizer.lr[sgd]"] == Normal(float(str(best.values["optimizer.lr"])), "medium")
    assert space.own == pytest.approx(best.values)


def test_an_adversarial_prior_starts_where_a_draw_diverged() -> None:
    task = bowl()
    own = believing(task, "adversarial", seed=0).own
    assert own["optimizer.kind"] == "sgd"
    assert float(str(own["optimizer.lr"])) > 0.1


def test_a_prior_off_by_ten_is_off_in_every_dimension() -> None:
    task = bowl()
    right, off = (believing(task, worth, seed=1).own for worth in ("right", "off"))
    assert right["optimizer.kind"] != off["optimizer.kind"]


def test_of_a_dimension_that_no_draw_has_nothing_is_believed() -> None:
    task = task_of([straight(sgd(0.01), 0.5)])
    rates = [each for each in believing(task, "right", seed=0).dimensions if each.path == "optimizer.lr"]
    assert [type(each.prior({})) for each in rates] == [Normal, Uniform]


def test_priors_differ_from_seed_to_seed_and_repeat() -> None:
    task = bowl()
    owns = [believing(task, "right", seed).own for seed in (0, 0, 1)]
    assert owns[0] == owns[1] != owns[2]


@pytest.mark.parametrize(
    ("domain", "value", "expected"),
    [
        (Float(1e-4, 1.0, log=True), 1e-2, (1e-3, 1e-1)),
        (Float(1e-4, 1.0, log=True), 1.0, (1e-1,)),
        (Float(1e-4, 1.0, log=True), 0.5, (0.05, 1.0)),
        (Float(0.0, 0.9), 0.4, (0.1, 0.7)),
        (Integer(1, 4), 1, (2,)),
        (Choice(("a", "b")), "a", ("b",)),
        (Choice(("a", "b", "c")), "a", ("b", "c")),
    ],
)
def test_what_is_displaced_lands_ten_times_off_or_at_the_ranges_end(
    domain: Float | Integer | Choice, value: Value, expected: tuple[Value, ...]
) -> None:
    reached = {displaced(domain, value, np.random.default_rng(seed)) for seed in range(20)}
    places = sorted(fraction_of(domain, each) for each in reached)
    assert places == pytest.approx([fraction_of(domain, each) for each in expected])


def test_displacement_on_a_logarithmic_range_is_a_factor_of_ten() -> None:
    moved = displaced(Float(1e-6, 1e2, log=True), 0.03, np.random.default_rng(0))
    assert isinstance(moved, float)
    assert abs(math.log10(moved / 0.03)) == pytest.approx(1.0)
