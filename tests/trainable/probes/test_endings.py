"""Tests that one training gives the scores of each way to use its network."""

import pytest

from tests.trainable.small_runs import finished
from trainable.bench import ON_CPU, Bench
from trainable.probes.endings import FLIP, SCALES, endings_of, measure_endings
from trainable.recipe import Recipe
from trainable.recipe.training import AVERAGING
from trainable.run import make_run
from trainable.tasks.kits import load_for

SMALL = Recipe().with_values(
    {"loop.epochs": 2, "model.width": 4, "precision.kind": "fp32", "data.flips": ["horizontal"]}
)


@pytest.mark.slow("trains for a probe")
@pytest.mark.parametrize("averaging", ["none", "ema"])
def test_each_ending_scores_as_a_run_of_a_recipe_that_says_so(averaging: str) -> None:
    data = load_for(SMALL, ON_CPU)
    one_size = [each for each in measure_endings(SMALL, data=data) if each.values[SCALES] == [1.0]]
    found = {(each.values[AVERAGING], each.values[FLIP]): each for each in one_size}
    assert set(found) == {("none", False), ("none", True), ("ema", False), ("ema", True)}
    for flip in (False, True):
        run = make_run(SMALL.with_values({AVERAGING: averaging, FLIP: flip}))
        finished(run)
        wanted = run.evaluate("validation")
        run.close()
        ending = found[averaging, flip]
        assert ending.scores["val_accuracy"] == wanted["val_accuracy"]
        assert ending.scores["val_loss"] == pytest.approx(wanted["val_loss"], rel=1e-5)
        assert ending.latency_ms > 0.0


def test_a_recipes_own_way_is_among_its_endings() -> None:
    recipe = SMALL.with_values({"evaluation.scales": [0.5, 1.0], "data.flips": []})
    found = endings_of(recipe)
    assert [each[SCALES] for each in found[:3]] == [[1.0], [1.0, 1.25], [0.5, 1.0]]
    assert {each[FLIP] for each in found} == {False}
    assert len(found) == 6


@pytest.mark.slow("trains for a probe")
def test_a_size_that_the_network_does_not_take_is_left_out_and_said_before_any_training() -> None:
    vit = {"model.kind": "timm", "model.name": "vit_tiny_patch16_224", "data.image_size": 32}
    said: list[str] = []
    recipe = SMALL.with_values({**vit, "loop.epochs": 1})
    endings = measure_endings(recipe, data=load_for(recipe, ON_CPU), bench=Bench(say=said.append))
    assert next(endings).values[SCALES] == [1.0]
    assert {tuple(each.values[SCALES]) for each in endings} == {(1.0,)}
    (line,) = said
    assert line.startswith(f"left out: {SCALES} [1.0, 1.25]: the model does not take images of 40 px")
