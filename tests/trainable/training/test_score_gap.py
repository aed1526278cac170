"""Tests when validation and test scores are said to differ: against scipy, and how often by mistake."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import bootstrap

from trainable.recipe.provenance import ExplainedGap
from trainable.training.score_gap import LEVEL, ScoredPart, ScoreGaps, score_gaps

RESAMPLES = 1_000


def part(right: NDArray[Any], seed: int, resamples: int = RESAMPLES) -> ScoredPart:
    """Return the accuracy of a part in which these images are right, [N] of 0 and 1."""
    drawn = np.random.default_rng(seed).binomial(len(right), right.mean(), resamples) / len(right)
    return ScoredPart(
        {"accuracy": float(right.mean())}, {"accuracy": drawn}, len(right), {"accuracy": len(right)}
    )


def drawn(images: int, accuracy: float, seed: int) -> NDArray[Any]:
    return np.random.default_rng([seed, images]).random(images) < accuracy


def gaps(validation: NDArray[Any], test: NDArray[Any], seed: int = 0) -> ScoreGaps:
    return score_gaps(part(validation, 2 * seed), part(test, 2 * seed + 1), ["accuracy"])


def test_the_interval_of_the_difference_is_scipys_bootstrap_of_two_samples() -> None:
    validation, test = drawn(300, 0.9, 0), drawn(400, 0.7, 1)
    theirs = bootstrap(
        (test.astype(float), validation.astype(float)),
        lambda first, second, axis: first.mean(axis) - second.mean(axis),
        confidence_level=LEVEL,
        method="percentile",
        n_resamples=8_000,
        rng=0,
    ).confidence_interval
    (ours,) = score_gaps(part(validation, 0, 8_000), part(test, 1, 8_000), ["accuracy"]).gaps
    width = theirs.high - theirs.low
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=width / 20)
    assert ours.difference == pytest.approx(test.mean() - validation.mean())


@pytest.mark.slow("draws many parts")
def test_of_parts_of_one_kind_about_one_in_a_hundred_are_said_to_differ() -> None:
    differing = sum(
        bool(gaps(drawn(200, 0.9, seed), drawn(300, 0.9, seed + 5_000), seed).differing)
        for seed in range(1_000)
    )
    assert differing < 25  # 0.01, and what small samples add: 0.011 to 0.015 of 4,000


def test_a_fall_of_ten_points_on_300_images_is_always_said_with_its_figures() -> None:
    for seed in range(50):
        assert gaps(drawn(300, 0.95, seed), drawn(300, 0.8, seed + 5_000), seed).differing
    found = gaps(np.arange(300) < 285, np.arange(300) < 228)
    words = str(found.explained)
    assert words.startswith("test_accuracy 0.7600 is 0.1900 below val_accuracy 0.9500 (99 % interval of ")
    assert "data.group" in words
    assert "take validation images from the test's kind" in words
    assert "\n" not in words


def test_better_test_scores_are_said_too() -> None:
    words = str(gaps(np.arange(300) < 228, np.arange(300) < 285).explained)
    assert "test_accuracy 0.9500 is 0.1900 above val_accuracy 0.7600" in words


def test_scores_of_one_kind_bring_no_word_but_their_figures() -> None:
    found = gaps(np.arange(300) < 270, np.arange(400) < 352)
    assert (found.differing, found.explained) == ((), None)
    tree = found.tree()
    assert (tree["level"], tree["resamples"], tree["differ"], tree["words"]) == (0.99, RESAMPLES, False, "")
    figures = tree["metrics"]["accuracy"]
    assert figures["difference"] == pytest.approx(-0.02)
    assert figures["interval"][0] < -0.02 < figures["interval"][1]


def test_nothing_is_told_of_a_few_images() -> None:
    """Their bootstrap promises more than it holds."""
    few = gaps(np.ones(200), np.zeros(29))
    assert few.gaps[0].differ
    assert (few.differing, few.explained, few.tree()["differ"]) == ((), None, False)
    assert gaps(np.ones(200), np.zeros(30)).differing


def test_a_metric_that_one_part_has_no_resamples_of_is_left_out() -> None:
    whole = part(drawn(50, 0.9, 0), 0)
    assert score_gaps(whole, ScoredPart({"accuracy": 0.9}, {}, 50), ["accuracy"]).gaps == ()


def test_every_metric_has_its_gap_and_the_line_is_of_those_alone_that_are_spoken_of() -> None:
    validation, test = part(drawn(300, 0.95, 0), 0), part(drawn(300, 0.5, 1), 1)
    found = score_gaps(validation, test, ["macro_f1"])
    assert [(gap.metric, gap.differ) for gap in found.gaps] == [("accuracy", True)]
    assert (found.differing, found.explained, found.tree()["differ"]) == ((), None, False)
    assert found.tree()["metrics"]["accuracy"]["differ"]


def test_a_part_that_is_all_right_is_not_believed_to_score_so_for_ever() -> None:
    """Of 25 of 30 against 30 of 30 Fisher's exact test gives p = 0.05, not below 0.01."""
    validation, test = part(np.arange(30) < 25, 0), part(np.ones(30), 1)
    shares = {"accuracy": 30}

    found = score_gaps(replace(validation, shares=shares), replace(test, shares=shares), ["accuracy"])

    assert not found.differing
    assert found.gaps[0].low < 0.0 < found.gaps[0].high


@pytest.mark.parametrize("spread", [0.0, 1.0])
def test_what_is_no_share_has_no_gap_where_a_part_shows_no_spread(spread: float) -> None:
    """A cost of 0 on every validation image says nothing of what other images cost."""
    validation = ScoredPart({"cost": 0.0}, {"cost": np.zeros(100)}, 50)
    test = ScoredPart({"cost": 2.0}, {"cost": 2.0 + spread * np.linspace(-1, 1, 100)}, 50)
    assert score_gaps(validation, test, ["cost"]).gaps == ()


KIND, COPIES = "test images are from another camera", "the test score rewards memory"


def test_what_was_found_about_the_parts_is_said_in_the_place_of_what_the_cause_may_be() -> None:
    validation, test = part(drawn(300, 0.95, 0), 0), part(drawn(300, 0.5, 1), 1)
    unknown, known = (score_gaps(validation, test, ["accuracy"], causes) for causes in ((), (KIND, COPIES)))
    assert "perhaps the test images are of another kind" in str(unknown.explained)
    assert str(known.explained).endswith(
        f"more than chance allows: {KIND}; {COPIES} (found in these images); `tunebook check DATA` says "
        "more, and what to do"
    )
    assert known.tree()["words"].endswith("more than chance allows")
    assert known.tree()["causes"] == [KIND, COPIES]
    alike = score_gaps(validation, validation, ["accuracy"], (KIND, COPIES))
    assert (alike.tree()["words"], alike.tree()["causes"]) == ("", [])


@pytest.mark.parametrize(
    ("causes", "said", "left"),
    [
        ((), (), ()),
        ((), (KIND,), None),
        ((KIND,), (), (KIND,)),
        ((KIND,), (KIND, COPIES), None),
        ((KIND, COPIES), (KIND,), (COPIES,)),
        (None, (), None),
    ],
)
def test_causes_that_are_said_already_are_left_out(
    causes: tuple[str, ...] | None, said: tuple[str, ...], left: tuple[str, ...] | None
) -> None:
    assert ExplainedGap("b", causes).without(said) == ExplainedGap("b", left)
