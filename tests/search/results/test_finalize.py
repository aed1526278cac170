"""Tests which way to use a network is chosen, by made-up scores."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from search.results.finalize import ScoringWay, _measured, chosen_of
from search.retraining.luck import half_width
from trainable.bench import HERE
from trainable.origins import Origins
from trainable.recipe import Recipe
from trainable.recipe.provenance import AGREE, Provenance
from trainable.train import train

AVERAGING, FLIP, SCALES = "regularisation.averaging.kind", "evaluation.flip", "evaluation.scales"


def way(averaging: str, flip: bool, *scores: float) -> ScoringWay:
    values: dict[str, Any] = {AVERAGING: averaging, FLIP: flip, SCALES: [1.0]}
    return ScoringWay(values, scores, 1.0)


def test_a_way_that_is_clearly_better_is_chosen() -> None:
    ways = [way("none", False, 0.90, 0.91), way("ema", False, 0.95, 0.961), way("none", True, 0.90, 0.909)]
    found = chosen_of(Recipe(), ways, "val_accuracy")
    assert found.chosen == ways[1]
    assert found.recipe == Recipe().with_values({AVERAGING: "ema"})
    assert found.ways[0] == ways[0]


def test_within_noise_the_recipes_own_way_stays() -> None:
    ways = [way("ema", False, 0.92, 0.90), way("none", False, 0.90, 0.91)]
    found = chosen_of(Recipe(), ways, "val_accuracy")
    assert found.chosen == ways[1]
    assert found.recipe == Recipe()


def test_a_lower_loss_is_better() -> None:
    ways = [way("none", False, 0.5, 0.51), way("ema", False, 0.3, 0.311), way("none", True, 0.9, 0.911)]
    assert chosen_of(Recipe(), ways, "val_loss").chosen == ways[1]


def test_the_table_says_what_each_way_costs() -> None:
    ways = [way("none", False, 0.90, 0.91), way("ema", True, 0.95, 0.961)]
    table = chosen_of(Recipe(), ways, "val_accuracy").table()
    assert table.rows[0] == ("averaging none, flip false, scales [1.0]", "0.9050", "+0.0000", "1", "")
    assert table.rows[1][-1] == "chosen"


def test_the_noise_is_that_of_all_comparisons_together() -> None:
    ways = [way("none", False, 0.9, 0.9), way("ema", False, 0.9, 0.92), way("ema", True, 0.94, 0.9)]
    gains = [np.array([0.0, 0.02]), np.array([0.04, 0.0])]
    wanted = stats.t.ppf(1 - 0.05 / 2 / 2, 2) * np.sqrt((0.02**2 / 2 + 0.04**2 / 2) / 2 / 2)
    found = chosen_of(Recipe(), ways, "val_accuracy")
    assert found.noise == pytest.approx(wanted)
    assert found.noise == pytest.approx(half_width(gains, 0.975))


@pytest.mark.slow("trains networks")
def test_a_recipe_is_finalized_with_its_own_threads_and_scores_as_it_does_when_it_is_trained() -> None:
    tiny = {"model": {"kind": "resnet_small", "depth": 8, "width": 8}, "loop.epochs": 1}
    known = {"provenance": Provenance(threads=1)}
    recipe = Recipe().with_values({**tiny, "precision.kind": "fp32"}).model_copy(update=known)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        (ways, _), origins = _measured(recipe, False, HERE)
    finally:
        torch.set_num_threads(before)
    own = next(each for each in ways if each["values"][AVERAGING] == "none")
    trained = train(recipe)
    assert own["scores"]["val_loss"] == trained.history[-1].val_loss
    assert origins == Origins.of(trained.recipe.provenance)


def test_where_the_seeds_agree_on_every_difference_the_recipes_own_way_stays() -> None:
    ways = [way("none", False, 0.90, 0.90), way("ema", False, 0.91, 0.91)]
    found = chosen_of(Recipe(), ways, "val_accuracy")
    assert found.chosen == ways[0]
    assert (found.table().caption or "").startswith(AGREE)
