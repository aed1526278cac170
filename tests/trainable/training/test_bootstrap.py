"""Tests the intervals of scores against resampling by hand, and how often they hold the truth."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from scipy.stats import binomtest, bootstrap
from torch import Tensor

from tests.trainable.training.small_metrics import EVERY, NAMES, accuracy, answers, specs
from trainable.training.answers import Answers
from trainable.training.bootstrap import (
    PERCENTS,
    RESAMPLES,
    Intervals,
    Resampled,
    bounds_of,
    images_behind,
    resampled,
    resampled_metrics,
)
from trainable.training.extra_metrics import ExtraMetrics, Metric, measured
from trainable.training.metrics import wilson_interval

NONE = ExtraMetrics((), {}, NAMES)


def intervals(found: Answers, extra: ExtraMetrics, seed: int, resamples: int = RESAMPLES) -> Intervals:
    metrics = resampled_metrics(found, extra, seed, resamples)
    return Resampled(metrics, len(found.labels), np.bincount(found.labels.numpy())).intervals()


def random_answers(count: int, seed: int, sure: float = 1.0) -> Answers:
    """Answer to images whose classes are about equally many, right more often the larger `sure` is."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 3, (count,), generator=generator)
    logits = torch.randn(count, 3, generator=generator, dtype=torch.float64)
    logits[torch.arange(count), labels] += sure
    return Answers.of_logits((logits * 3).round() / 3, labels)  # with ties


@pytest.mark.slow("draws many resamples")
@given(answers())
@settings(max_examples=60)
def test_each_metric_of_a_resample_is_that_of_the_images_drawn(found: Answers) -> None:
    images, random = len(found.labels), np.random.default_rng(0)
    counts = random.multinomial(images, np.full(images, 1 / images), size=4).T
    for spec in specs(EVERY):
        together = resampled(spec, found, NAMES, counts.astype(np.float32))
        one_by_one = [
            measured(spec, found.of(np.repeat(np.arange(images), each)), NAMES) for each in counts.T
        ]
        assert together == pytest.approx(one_by_one, abs=1e-9), spec.kind


def test_the_intervals_of_loss_and_accuracies_are_those_of_a_loop_over_resamples() -> None:
    found, resamples = random_answers(60, 0), 50
    bounds = intervals(found, ExtraMetrics((), {"mine": Metric(accuracy)}, NAMES), 3, resamples).bounds
    random = np.random.default_rng(3)
    values: dict[str, list[float]] = {"loss": [], "accuracy": [], "balanced_accuracy": []}
    for drawn in random.integers(0, 60, (resamples, 60)):
        sample = found.of(drawn)
        assert sample.logits is not None
        right = (sample.predicted == sample.labels).double()
        losses = torch.nn.functional.cross_entropy(sample.logits, sample.labels)
        recalls = [right[sample.labels == each].mean().item() for each in sample.labels.unique()]
        values["loss"].append(losses.item())
        values["accuracy"].append(right.mean().item())
        values["balanced_accuracy"].append(float(np.mean(recalls)))
    for name, each in {**values, "mine": values["accuracy"]}.items():
        assert bounds[name] == pytest.approx(np.percentile(each, PERCENTS), abs=1e-9), name


def test_the_interval_of_the_accuracy_is_scipys() -> None:
    found = random_answers(400, 1)
    right = (found.predicted == found.labels).double().numpy()
    theirs = bootstrap((right,), np.mean, n_resamples=4_000, method="percentile", rng=0).confidence_interval
    ours = intervals(found, NONE, 0, 4_000).bounds["accuracy"]
    width = theirs.high - theirs.low
    assert ours == pytest.approx((theirs.low, theirs.high), abs=width / 20)


@pytest.mark.slow("draws many resamples")
def test_nineteen_of_twenty_intervals_hold_the_truth() -> None:
    truth, tests = random_answers(200_000, 99), 300
    extra = ExtraMetrics(specs(["macro_f1", "auroc"]), {}, NAMES)
    exact = {spec.kind: measured(spec, truth, NAMES) for spec in extra.of_labels}
    exact["accuracy"] = (truth.predicted == truth.labels).double().mean().item()
    held = dict.fromkeys(exact, 0)
    for seed in range(tests):
        bounds = intervals(random_answers(150, seed), extra, seed, 300).bounds
        for name, value in exact.items():
            held[name] += bounds[name][0] <= value <= bounds[name][1]
    for name, count in held.items():  # 0.95 by 3.5 standard errors of 300 tests: 0.044
        assert count / tests == pytest.approx(0.95, abs=0.044), name


def test_the_same_seed_gives_the_same_intervals_and_another_one_others(monkeypatch: Any) -> None:
    found, extra = random_answers(50, 2), ExtraMetrics(specs(EVERY), {}, NAMES)
    first = intervals(found, extra, 5)
    assert intervals(found, extra, 5) == first
    assert intervals(found, extra, 6) != first
    monkeypatch.setattr("trainable.training.bootstrap.AT_ONCE", 50 * 7)
    some_at_a_time = intervals(found, extra, 5).bounds
    for name, bounds in first.bounds.items():
        assert some_at_a_time[name] == pytest.approx(bounds, abs=1e-9)


def test_a_class_without_images_leaves_every_interval_finite() -> None:
    found = Answers.of_logits(torch.randn(4, 12, dtype=torch.float64), torch.tensor([0, 0, 0, 11]))
    names = tuple(map(str, range(12)))
    bounds = intervals(found, ExtraMetrics(specs(["auroc", "macro_f1"]), {}, names), 0).bounds
    assert np.isfinite(list(bounds.values())).all()
    assert "top5_accuracy" in bounds


def test_a_function_that_fails_on_a_resample_has_no_interval() -> None:
    def picky(probabilities: Tensor, labels: Tensor) -> float:
        if len(labels.unique()) < 3:
            raise ValueError("a class is missing")
        return 1.0

    found = Answers.of_logits(torch.eye(3, dtype=torch.float64), torch.tensor([0, 1, 2]))
    extra = ExtraMetrics((), {"picky": Metric(picky), "mine": Metric(accuracy)}, NAMES)
    assert set(intervals(found, extra, 0).bounds) == {"accuracy", "balanced_accuracy"}


@pytest.mark.parametrize("level", [0.5, 0.95, 0.999])
@pytest.mark.parametrize(("right", "images"), [(0, 1), (1, 1), (0, 40), (37, 40), (9_999, 10_000)])
def test_wilsons_interval_ends_where_the_share_would_be_just_as_likely(
    right: int, images: int, level: float
) -> None:
    deviations = NormalDist().inv_cdf(0.5 + level / 2)
    for end in wilson_interval(right, images, level):
        off = deviations * math.sqrt(end * (1 - end) / images)
        assert abs(right / images - end) == pytest.approx(off, abs=1e-9)


@pytest.mark.parametrize("right", [True, False])
def test_where_all_answers_are_right_or_wrong_the_interval_is_wilsons(right: bool) -> None:
    labels = torch.arange(9) % 3
    logits = torch.nn.functional.one_hot(labels if right else (labels + 1) % 3, 3).double() * 5
    extra = ExtraMetrics(specs(["macro_f1", "auroc", "calibration_error"]), {}, NAMES)

    bounds = intervals(Answers.of_logits(logits, labels), extra, 0).bounds

    theirs = binomtest(9 * right, 9).proportion_ci(0.95, method="wilson")
    expected = (0.7009, 1.0) if right else (0.0, 0.2991)
    for name in ("accuracy", "balanced_accuracy", "macro_f1"):
        assert bounds[name] == pytest.approx((theirs.low, theirs.high), abs=1e-12), name
        assert bounds[name] == pytest.approx(expected, abs=1e-4), name
    if right:
        assert bounds["auroc"] == pytest.approx(expected, abs=1e-4)


def test_a_mean_over_classes_counts_few_images_where_a_class_is_rare() -> None:
    assert images_behind(["accuracy", "balanced_accuracy", "loss"], 9, np.array([3, 3, 3])) == {
        "accuracy": 9,
        "balanced_accuracy": 9,
    }
    assert images_behind(["accuracy", "macro_f1"], 1_003, np.array([1_000, 3, 0])) == {
        "accuracy": 1_003,
        "macro_f1": 11,
    }


def test_an_interval_with_spread_is_left_to_its_resamples() -> None:
    values = np.linspace(0.5, 1.0, 1_001)
    assert bounds_of(values, 9) == pytest.approx(tuple(np.percentile(values, PERCENTS)))


@pytest.mark.parametrize("value", [0.0, 1.0, 3.5])
def test_what_is_no_share_has_no_interval_where_its_resamples_have_no_spread(value: float) -> None:
    assert bounds_of(np.full(10, value)) is None


def test_functions_of_the_callers_are_no_shares_of_images_whatever_their_values() -> None:
    labels = torch.arange(9) % 3
    found = Answers.of_logits(torch.nn.functional.one_hot(labels, 3).double() * 5, labels)
    own = {"missed": Metric(lambda _, truth: float(len(truth) == 0)), "mine": Metric(accuracy)}

    bounds = intervals(found, ExtraMetrics((), own, NAMES), 0).bounds

    assert bounds.keys() == {"accuracy", "balanced_accuracy"}


def test_percentiles_that_meet_are_no_interval_though_some_resamples_differ() -> None:
    values = np.array([0.0] + [1.0] * 999)
    assert bounds_of(values) is None
    assert bounds_of(values, 9) == pytest.approx((0.7009, 1.0), abs=1e-4)


def test_metrics_over_many_images_and_classes_have_no_interval_and_it_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    found = random_answers(60, 0)
    extra = ExtraMetrics(specs(EVERY), {"mine": Metric(accuracy)}, NAMES)
    monkeypatch.setattr("trainable.training.bootstrap.MOST_PROBABILITIES", 180)
    assert {"auroc", "mine"} < intervals(found, extra, 0, 10).bounds.keys()
    assert not caplog.text
    monkeypatch.setattr("trainable.training.bootstrap.MOST_PROBABILITIES", 179)
    bounds = intervals(found, extra, 0, 10).bounds
    assert {"accuracy", "macro_f1"} < bounds.keys()
    assert not {"auroc", "average_precision", "recall_at_precision", "mine"} & bounds.keys()
    assert "mine: no interval is given: resamples of 60 images" in caplog.text
