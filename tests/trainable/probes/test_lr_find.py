"""Tests the learning-rate finder against hand cases, a known stable rate, and a run without any probe."""

from __future__ import annotations

import copy
import json
import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.trainable.small_runs import CLASSES, SIZE, data_set, numbers, small_recipe
from trainable.bench import ON_CPU
from trainable.errors import UserError
from trainable.probes.lr_find import Suggestions, geometric, lr_find, sweep, valley
from trainable.run import make_run
from trainable.training.run import Run

STEPS = 40


def small_run(model: nn.Module | None = None, **values: Any) -> Run:
    recipe = small_recipe({path.replace("__", "."): value for path, value in values.items()})
    return make_run(recipe, data=data_set(), model=model, bench=ON_CPU)


# --- reading a curve ------------------------------------------------------------------------------------


def falling_subsequence(losses: Sequence[float]) -> tuple[int, int]:
    """Return where the first of the longest ends, and its length, found by trying every pair."""
    lengths: list[int] = []
    for loss in losses:
        before = [length for other, length in zip(losses, lengths, strict=False) if other > loss]
        lengths.append(1 + max(before, default=0))
    return lengths.index(max(lengths)), max(lengths)


@pytest.mark.parametrize(
    ("losses", "position"),
    [
        ([9, 8, 7, 6, 5, 4, 3, 2, 1], 3),  # ends at 8 after 9 points: -1 + 3 + 1
        ([3, 2, 1], 0),
        ([5, 5, 5, 5, 9, 8, 7, 6, 5, 4, 3, 2, 1, 20, 30], 7),  # ends at 12 after 9 points: 3 + 3 + 1
        ([9, 8, 50, 7, 6, 60, 5, 4, 3, 70, 2, 1], 6),  # rises in between do not end a fall: 2 + 3 + 1
        ([1, 2, 3, 4], None),
        ([4, 4, 4, 4], None),
        ([2, 1], None),
        ([], None),
    ],
)
def test_the_valley_lies_in_the_middle_of_the_longest_fall(losses: list[float], position: int | None) -> None:
    assert valley(losses) == position


def test_the_valley_is_that_of_a_search_over_every_pair() -> None:
    draw = random.Random(0)
    for count in [3, 5, 20, 60] * 20:
        losses = [draw.choice([draw.random(), round(draw.random(), 1)]) - 0.02 * at for at in range(count)]
        end, length = falling_subsequence(losses)
        third = length / 3
        expected = end - length + int(third) + int(third / 2) if length >= 3 else None
        assert valley(losses) == expected


def test_the_smoothed_loss_is_the_average_that_forgets_two_parts_in_a_hundred() -> None:
    losses = np.random.default_rng(0).uniform(1, 2, STEPS)
    curve = sweep(played(losses), geometric(1e-3, 1, STEPS))
    for count in range(1, STEPS + 1):
        weights = 0.98 ** np.arange(count)[::-1]
        assert curve.smoothed[count - 1] == pytest.approx(np.average(losses[:count], weights=weights))
    assert curve.losses == tuple(losses)


def played(losses: Iterable[float]) -> Callable[[float], float]:
    each = iter(losses)
    return lambda rate: float(next(each))


@pytest.mark.parametrize("last", [math.nan, math.inf, 1e9])
def test_a_sweep_ends_before_the_loss_that_explodes(last: float) -> None:
    losses = [2.0] * 20 + [1.0] * 15 + [last]
    curve = sweep(played(losses), geometric(1e-4, 1, STEPS))
    assert curve.exploded
    assert curve.losses == tuple(losses[:-1])
    assert len(curve.rates) == len(curve.smoothed) == 35


def test_a_sweep_ends_at_four_times_the_best_and_not_before() -> None:
    levels = [1.0] * 20 + [20.0] * 20
    curve = sweep(played(levels), geometric(1e-4, 1, STEPS))
    average, smoothed = 0.0, []
    for count, loss in enumerate(levels, start=1):
        average = 0.98 * average + 0.02 * loss
        smoothed.append(average / (1 - 0.98**count))
    allowed = [value <= 4.0 for value in smoothed].index(False)
    assert len(curve.losses) == allowed > 20


def test_what_can_be_read_off_a_curve_is_read_by_its_definition() -> None:
    rates = geometric(1e-5, 10, 100)
    losses = [2.0 - 1.5 / (1 + math.exp(-(at - 50) / 5)) + max(0, at - 75) ** 2 / 50 for at in range(100)]
    curve = sweep(played(losses), rates)
    assert curve.suggestions is not None
    smoothed = np.array(curve.smoothed)
    assert curve.suggestions.minimum_tenth == pytest.approx(rates[int(smoothed.argmin())] / 10)
    slopes = np.gradient(smoothed)
    slopes[:11] = 0.0
    assert curve.suggestions.steepest == pytest.approx(rates[int(slopes.argmin())])
    index = valley(curve.smoothed[10:])
    assert index is not None
    assert curve.suggestions.valley == rates[10 + index]


@pytest.mark.parametrize(
    ("loss_at", "message"),
    [
        (lambda at: 2.0, "hardly fell"),
        (lambda at: 2.0 + at / 50, "hardly fell"),
        (lambda at: 2.0 + math.sin(37.0 * at) / 5, "hardly fell"),  # noise is no fall
        (lambda at: 2.0 if at < 2 else 1e3, "exploded"),
        (lambda at: math.nan, "exploded"),
        (lambda at: 2.0 - at / 60, "still falling"),
        (lambda at: 2.0 if at < 40 else 0.0, "learnt before"),
    ],
)
def test_a_curve_that_says_nothing_is_reported_as_such(loss_at: Callable[[int], float], message: str) -> None:
    curve = sweep(played([loss_at(at) for at in range(100)]), geometric(1e-5, 1, 100))
    assert curve.suggestions is None
    assert curve.reason is not None
    assert message in curve.reason


# --- a loss whose stable rate is known ------------------------------------------------------------------


def quadratic(curvature: float) -> Callable[[float], float]:
    """Return noisy gradient descent on curvature * w^2 / 2, which is stable up to 2 / curvature."""
    noise = np.random.default_rng(0)
    weight = 3.0 / math.sqrt(curvature)

    def loss_at(rate: float) -> float:
        nonlocal weight
        loss = curvature * weight**2 / 2 + 0.1
        weight -= rate * (curvature * weight + math.sqrt(curvature) * noise.normal(0, 0.1))
        return loss

    return loss_at


@pytest.mark.parametrize("curvature", [0.01, 1.0, 400.0])
def test_on_a_quadratic_every_suggestion_is_below_the_stable_rate(curvature: float) -> None:
    stable = 2 / curvature
    curve = sweep(quadratic(curvature), geometric(stable * 1e-4, stable * 1e3, 100))
    assert curve.exploded
    assert curve.suggestions is not None
    for name, rate in asdict(curve.suggestions).items():
        assert stable / 500 < rate < stable * 1.05, name


def test_ten_times_the_curvature_makes_every_suggestion_a_tenth() -> None:
    one = sweep(quadratic(1.0), geometric(1e-4, 1e3, 100)).suggestions
    ten = sweep(quadratic(10.0), geometric(1e-5, 1e2, 100)).suggestions
    assert one is not None
    assert ten is not None
    for name, rate in asdict(one).items():
        assert getattr(ten, name) == pytest.approx(rate / 10)


def test_where_the_sweep_begins_moves_no_suggestion_by_more_than_three_steps() -> None:
    """It is not the same number: the smoothed loss remembers how long the low rates were."""
    ratio = 10 ** (1 / 14)
    whole = sweep(quadratic(1.0), [1e-4 * ratio**at for at in range(100)]).suggestions
    late = sweep(quadratic(1.0), [1e-4 * ratio ** (at + 5) for at in range(95)]).suggestions
    assert whole is not None
    assert late is not None
    for name, rate in asdict(whole).items():
        assert abs(math.log(getattr(late, name) / rate, ratio)) < 3.01, name


# --- a run ----------------------------------------------------------------------------------------------


def with_everything() -> Run:
    """Return a run with statistics, momentum, an average and dropout, one epoch in."""
    run = small_run(
        model__dropout=0.3,
        regularisation__averaging__kind="ema",
        augmentation__flip_probability=0.5,
        loop__micro_batch=8,
    )
    run.step()
    return run


@pytest.mark.slow("trains for a probe")
def test_a_run_is_bit_for_bit_what_it_was() -> None:
    run, twin = with_everything(), with_everything()
    before = copy.deepcopy(run.state_dict())
    drawn = torch.get_rng_state()
    lr_find(run, steps=STEPS, sweeps=2)
    assert torch.equal(drawn, torch.get_rng_state())
    assert_same(before, run.state_dict())
    assert numbers((run.step(),)) == numbers((twin.step(),))
    assert_same(run.state_dict()["model"], twin.state_dict()["model"])


def test_a_run_is_what_it_was_after_a_sweep_that_ran_into_infinity() -> None:
    run = with_everything()
    before = copy.deepcopy(run.state_dict())
    lr_find(run, lowest=1e-2, highest=1e30, steps=STEPS, sweeps=1)
    assert_same(before, run.state_dict())


def assert_same(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    match one:
        case dict():
            assert one.keys() == other.keys()
            for key in one:
                if not str(key).endswith("_seconds"):
                    assert_same(one[key], other[key])
        case list() | tuple():
            assert len(one) == len(other)
            for each, twin in zip(one, other, strict=True):
                assert_same(each, twin)
        case Tensor():
            assert torch.equal(one, other)
        case _:
            assert one == other


@pytest.mark.slow("trains for a probe")
def test_a_band_spans_the_medians_of_three_sweeps_over_different_batches() -> None:
    band = lr_find(small_run(), steps=60)
    assert len(band.sweeps) == 3
    assert len({sweep.losses[0] for sweep in band.sweeps}) == 3
    assert band.suggestions is not None
    for name, value in asdict(band.suggestions).items():
        rates = sorted(getattr(each.suggestions, name) for each in band.sweeps)
        assert value == pytest.approx(rates[1])
    values = asdict(band.suggestions).values()
    assert band.band == (min(values), max(values))


@pytest.mark.slow("trains for a probe")
def test_a_rate_in_the_band_trains_better_than_a_hundredth_of_it() -> None:
    band = lr_find(small_run(), steps=60).band
    assert band is not None
    rate = math.sqrt(band[0] * band[1])
    better, worse = (small_run(optimizer__lr=lr).step().train_loss for lr in (rate, rate / 100))
    assert better < worse


def test_the_recipes_own_rate_moves_no_suggestion() -> None:
    one, ten = (lr_find(small_run(optimizer__lr=lr), steps=STEPS, sweeps=1) for lr in (0.05, 0.5))
    assert one.band == ten.band
    assert one.band is not None


def test_rates_are_reported_as_applied_and_at_256() -> None:
    plain, scaled = (
        lr_find(small_run(optimizer__scaling=scaling), lowest=1e-3, highest=1e2, steps=STEPS, sweeps=1)
        for scaling in ("none", "linear")
    )
    assert plain.band is not None
    assert plain.band == plain.band_at_256
    assert scaled.band == plain.band
    assert scaled.band_at_256 == pytest.approx([rate * 256 / 16 for rate in plain.band])


def test_of_two_optimizers_the_first_is_swept() -> None:
    same: dict[str, Any] = {"optimizer__weight_decay": 0.02, "optimizer__scaling": "sqrt"}
    both, adamw = (
        lr_find(small_run(optimizer__kind=kind, **same), steps=STEPS, sweeps=1)
        for kind in ("adam_then_sgd", "adamw")
    )
    assert both.sweeps == adamw.sweeps


def test_a_model_that_cannot_learn_has_no_band() -> None:
    class Deaf(nn.Module):
        """A network that gives the same answer for every image and every weight."""

        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1))

        def forward(self, images: Tensor) -> Tensor:
            return images.flatten(1)[:, :CLASSES] * 0.0 * self.weight

    band = lr_find(small_run(Deaf()), steps=STEPS)
    assert not band.found
    assert band.band is band.suggestions is band.band_at_256 is None
    assert band.reason is not None
    assert "hardly fell" in band.reason
    assert json.loads(json.dumps(band.tree(), allow_nan=False))["found"] is False


def test_a_band_is_plain_finite_data() -> None:
    band = lr_find(small_run(), steps=STEPS, sweeps=1)
    tree = json.loads(json.dumps(band.tree(), allow_nan=False))
    assert isinstance(band.suggestions, Suggestions)
    assert tree["suggestions"] == asdict(band.suggestions)
    assert len(tree["sweeps"][0]["rates"]) == len(tree["sweeps"][0]["losses"])


def test_memory_that_runs_out_is_reported_with_the_field_to_change() -> None:
    class Greedy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(SIZE * SIZE, CLASSES)

        def forward(self, images: Tensor) -> Tensor:
            if self.training and len(images) > 8:
                raise torch.OutOfMemoryError("CUDA out of memory")
            answer: Tensor = self.head(images.flatten(1))
            return answer

    with pytest.raises(UserError, match=r"loop\.micro_batch.*16 images"):
        lr_find(small_run(Greedy()), steps=STEPS)


def test_a_body_that_is_frozen_at_first_is_mentioned() -> None:
    band = lr_find(small_run(model__freeze_epochs=1), steps=STEPS, sweeps=1)
    assert "model.freeze_epochs" in band.notes[0]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"steps": 5}, "--steps: expected at least"),
        ({"sweeps": 0}, "sweeps: expected at least"),
        ({"lowest": 1.0, "highest": 0.1}, "lowest < highest"),
        ({"lowest": 0.0}, "lowest"),
        ({"highest": math.inf}, "highest"),
        ({"lowest": math.nan}, "lowest"),
    ],
)
def test_what_cannot_be_swept_is_refused(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        lr_find(small_run(), **asked)


@pytest.mark.parametrize("kind", ["sgd", "rmsprop", "adam", "adamw", "adadelta", "lars", "lamb"])
def test_every_optimizer_is_swept_around_its_kinds_usual_rate(kind: str) -> None:
    run = small_run(optimizer__kind=kind)
    usual = type(run.recipe.optimizer)().lr
    band = lr_find(run, steps=STEPS, sweeps=1)
    assert band.sweeps[0].rates[0] < usual / 100
    assert band.found, band.reason
