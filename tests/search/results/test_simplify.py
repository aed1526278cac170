"""Tests which techniques are left out of a recipe, with scores that are made up for each variant."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest
from scipy import stats

from search.record.finals import SeedScores
from search.results.simplify import simpler_by
from search.retraining.luck import half_width
from trainable.errors import UserError
from trainable.recipe import Recipe
from trainable.recipe.provenance import AGREE
from trainable.recipe.techniques import techniques_of

SEEDS = (1, 2, 3)
RECIPE = Recipe().with_values(
    {
        "regularisation.label_smoothing": 0.1,
        "regularisation.averaging.kind": "ema",
        "augmentation.crop.kind": "none",
        "optimizer.nesterov": False,
        "optimizer.weight_decay": 0.0,
        "schedule.kind": "constant",
        "evaluation.norm_batches": 0,
    }
)
SMOOTHING, AVERAGING = "regularisation.label_smoothing", "regularisation.averaging.kind"
Train = Callable[[Mapping[str, Recipe]], dict[str, SeedScores | None]]


def worth(gains: Mapping[str, float], together: float = 0.0, metric_sign: float = 1.0) -> Train:
    """Return what trains a recipe to 0.9 less the gains of what it lacks, with a little luck of each run.

    `together` is lost as well where it lacks all.
    """
    luck = np.random.default_rng(0)

    def train(recipes: Mapping[str, Recipe]) -> dict[str, SeedScores | None]:
        return {name: scores(each) for name, each in recipes.items()}

    def scores(recipe: Recipe) -> SeedScores:
        present = dict(techniques_of(recipe))
        lost = sum(gain for path, gain in gains.items() if path not in present)
        lost += together if not present.keys() & gains.keys() else 0.0
        return metric_sign * (0.9 - lost + 0.001 * luck.standard_normal(len(SEEDS)))

    return train


def left_out(train: Train) -> list[str]:
    return [each.field for each in simpler_by(train, RECIPE, "val_accuracy", SEEDS).record.dropped]


def test_the_recipe_of_these_tests_has_two_techniques() -> None:
    assert [path for path, _ in techniques_of(RECIPE)] == [SMOOTHING, AVERAGING]


def test_what_gains_nothing_is_left_out_and_what_gains_stays() -> None:
    found = simpler_by(worth({SMOOTHING: 0.0, AVERAGING: 0.05}), RECIPE, "val_accuracy", SEEDS)
    assert [each.field for each in found.record.dropped] == [SMOOTHING]
    assert found.recipe == RECIPE.with_values({SMOOTHING: 0.0})
    effects = {each.field: each.gain for each in found.effects}
    assert effects == {SMOOTHING: pytest.approx(0.0, abs=0.005), AVERAGING: pytest.approx(0.05, abs=0.005)}


def test_what_harms_is_left_out() -> None:
    assert left_out(worth({SMOOTHING: -0.05, AVERAGING: 0.05})) == [SMOOTHING]


def test_two_that_matter_together_are_not_both_left_out() -> None:
    assert len(left_out(worth({SMOOTHING: 0.0, AVERAGING: 0.0}, together=0.1))) == 1


def test_where_everything_gains_nothing_is_left_out_and_the_recipe_stays() -> None:
    found = simpler_by(worth({SMOOTHING: 0.05, AVERAGING: 0.05}), RECIPE, "val_accuracy", SEEDS)
    assert found.record.dropped == ()
    assert found.recipe == RECIPE
    assert found.record.after == found.record.before


def test_a_technique_without_which_runs_fail_stays() -> None:
    def train(recipes: Mapping[str, Recipe]) -> dict[str, SeedScores | None]:
        found = worth({SMOOTHING: 0.0, AVERAGING: 0.0})(recipes)
        return {name: None if AVERAGING in name else scores for name, scores in found.items()}

    assert left_out(train) == [SMOOTHING]


def test_a_recipe_that_does_not_finish_is_refused() -> None:
    with pytest.raises(UserError, match="does not finish with each seed"):
        simpler_by(lambda recipes: dict.fromkeys(recipes), RECIPE, "val_accuracy", SEEDS)


def test_the_record_has_scores_in_the_metrics_own_direction() -> None:
    train = worth({SMOOTHING: 0.0, AVERAGING: 0.05})
    found = simpler_by(train, RECIPE, "val_loss", SEEDS)
    assert found.record.before == pytest.approx(-0.9, abs=0.005)


def test_the_table_has_a_row_for_each_technique_the_best_first() -> None:
    table = simpler_by(worth({SMOOTHING: 0.0, AVERAGING: 0.05}), RECIPE, "val_accuracy", SEEDS).table()
    assert [(row[0], row[1], row[4]) for row in table.rows] == [
        (AVERAGING, "ema", "kept"),
        (SMOOTHING, "0.1", "dropped"),
    ]


def gains_of(values: Sequence[Sequence[float]]) -> list[SeedScores]:
    return [np.array(each) for each in values]


def test_the_half_width_of_one_change_is_that_of_a_paired_t_test() -> None:
    gains = [0.01, 0.03, 0.02, 0.05]
    low, high = stats.ttest_1samp(gains, 0.0).confidence_interval(0.95)
    assert half_width(gains_of([gains])) == pytest.approx((high - low) / 2)


def test_the_deviation_is_pooled_over_changes() -> None:
    first, second = [0.0, 0.02], [0.5, 0.52]
    pooled = half_width(gains_of([first, second]))
    assert pooled == pytest.approx(stats.t.ppf(0.975, 2) * np.std(first, ddof=1) / np.sqrt(2))
    assert half_width([]) == 0.0


def test_gains_that_agree_for_all_seeds_have_no_interval() -> None:
    def train(recipes: Mapping[str, Recipe]) -> dict[str, SeedScores | None]:
        return {name: np.full(len(SEEDS), 0.9 if AVERAGING not in name else 0.875) for name in recipes}

    found = simpler_by(train, RECIPE, "val_accuracy", SEEDS)

    assert [row[3] for row in found.table().rows] == [AGREE] * 2
    assert [each.field for each in found.record.dropped] == [SMOOTHING]
