"""Tests the recipe of a fine-tuning, and that a network trained by it is scored for each seed."""

from __future__ import annotations

import copy

import pytest
import torch

from tests.trainable.small_runs import data_set, small_recipe
from trainable.bench import ON_CPU, Bench
from trainable.errors import RecipeError, RunError
from trainable.recipe.provenance import Provenance
from trainable.run import make_run
from trainable.shrinking.fine_tuning import SeededRuns, fine_tuning, scores_of, seeds_of
from trainable.training.network import make_network
from trainable.training.pixels import resolved

CPU = torch.device("cpu")


def test_it_is_the_training_with_fewer_epochs_and_a_rate_that_falls_to_zero() -> None:
    recipe = small_recipe(
        {
            "loop.epochs": 40,
            "optimizer.lr": 0.4,
            "optimizer.weight_decay": 0.01,
            "schedule": {"kind": "step", "warmup_epochs": 3.0},
            "model.freeze_epochs": 2,
        }
    ).model_copy(update={"provenance": Provenance(search="mine")})
    found = fine_tuning(recipe, lr_factor=0.5)
    assert (found.loop.epochs, found.optimizer.lr, found.model.freeze_epochs) == (8, 0.2, 0)
    assert found.get("schedule") == {"kind": "cosine", "warmup_epochs": 0.0, "final_factor": 0.0}
    assert found.get("optimizer.weight_decay") == 0.01
    assert found.provenance is None
    assert fine_tuning(recipe).optimizer.lr == 0.4
    assert fine_tuning(recipe, epochs=3).loop.epochs == 3
    assert fine_tuning(small_recipe({"loop.epochs": 1})).loop.epochs == 1


def test_both_rates_of_an_optimizer_with_two_are_lowered() -> None:
    recipe = small_recipe({"optimizer.kind": "adam_then_sgd"})
    found = fine_tuning(recipe, lr_factor=0.5)
    for path in ("optimizer.lr", "optimizer.sgd_lr"):
        assert found.get(path) == 0.5 * recipe.get(path)


def test_a_factor_that_no_rate_may_have_is_refused() -> None:
    with pytest.raises(RecipeError, match=r"optimizer\.lr"):
        fine_tuning(small_recipe(), lr_factor=-1.0)


def test_seeds_are_others_than_that_of_the_training() -> None:
    assert seeds_of(small_recipe({"loop.seed": 5}), 3) == [6, 7, 8]
    assert seeds_of(small_recipe({"loop.seed": 2**32 - 1}), 2) == [0, 1]


def test_each_seed_starts_from_what_is_made_for_it_and_is_scored() -> None:
    data = data_set()
    recipe = resolved(small_recipe({"loop.epochs": 1, "optimizer.lr": 0.5}), data)
    torch.manual_seed(0)
    network = make_network(recipe.model, data.info)
    said: list[str] = []
    found = list(
        SeededRuns(
            data,
            seeds=(1, 2),
            parts=("validation", "test"),
            metric="val_balanced_accuracy",
            bench=Bench(device_name="cpu", say=said.append),
        ).of(recipe, lambda _: copy.deepcopy(network), "tuned")
    )
    assert [each.seed for each in found] == [1, 2]
    assert [line.partition(" 0.")[0] for line in said] == [
        f"tuned, seed {seed}: val_balanced_accuracy" for seed in (1, 2)
    ]
    run = make_run(
        recipe.with_values({"loop.seed": 2}), data=data, model=copy.deepcopy(network), bench=ON_CPU
    )
    run.step()
    assert found[1].scores["test"] == run.score("test")
    assert found[1].scores["test"].answers is not None
    weights = {name: each for name, each in run.weights().items() if each.is_floating_point()}  # not counts
    assert all(torch.equal(each, found[1].weights[name]) for name, each in weights.items())
    run.close()


def test_a_network_is_scored_as_it_is() -> None:
    data = data_set()
    recipe = resolved(small_recipe(), data)
    network = make_network(recipe.model, data.info)
    before = {name: each.clone() for name, each in network.state_dict().items()}
    first = scores_of(network, recipe, data, ("validation",), ON_CPU)["validation"]
    assert first == scores_of(network, recipe, data, ("validation",), ON_CPU)["validation"]
    assert all(torch.equal(each, before[name]) for name, each in network.state_dict().items())


def test_a_run_that_diverges_is_an_error_that_names_the_seed() -> None:
    data = data_set()
    recipe = resolved(small_recipe({"optimizer.lr": 1e30}), data)
    runs = SeededRuns(data, (7,), ("validation",), "val_accuracy", Bench(device_name="cpu", say=print))
    trained = runs.of(recipe, lambda _: make_network(recipe.model, data.info), "tuned")
    with pytest.raises(RunError, match=r"^tuned, seed 7: diverged; a lower --lr-factor may help"):
        next(trained)
