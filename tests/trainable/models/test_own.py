"""Tests what functions of a person's own receive, and what is said of their faults."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from trainable.bench import Bench
from trainable.data.assembly import from_arrays, make_own
from trainable.errors import DataError, ModelError
from trainable.models.groups import rate_factors
from trainable.models.make import NetworkEnds, make_model
from trainable.recipe import Recipe
from trainable.recipe.data import Data
from trainable.recipe.models import GeometricRates, OwnModel
from trainable.run import make_run
from trainable.train import train

SMALL: dict[str, Any] = {"loop.epochs": 2, "loop.batch_size": 16, "precision.kind": "fp32"}


def perceptron(classes: int, image_size: int, *, width: int = 8, deep: bool = False) -> nn.Module:
    layers = [nn.Linear(image_size**2, width), nn.ReLU()]
    layers += [nn.Linear(width, width), nn.ReLU()] if deep else []
    return nn.Sequential(nn.Flatten(), *layers, nn.Linear(width, classes))


def images() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    random = np.random.default_rng(0)
    return random.integers(0, 255, (80, 8, 8), dtype=np.uint8), np.arange(80) % 4


def recipe(**arguments: Any) -> Recipe:
    own = OwnModel(name="perceptron", arguments=arguments)
    return Recipe().with_values(SMALL).model_copy(update={"model": own})


def made(build: Any, **arguments: Any) -> nn.Module:
    own = OwnModel(name="mine", arguments=arguments)
    return make_model(own, NetworkEnds(classes=4, channels=1, image_size=8), build=build)


def test_a_function_receives_the_arguments_of_the_recipe_and_what_it_asks_of_the_data() -> None:
    network = made(perceptron, width=5, deep=True)
    assert [each.out_features for each in network.modules() if isinstance(each, nn.Linear)] == [5, 5, 4]
    everything: dict[str, Any] = {}

    def greedy(**given: Any) -> nn.Module:
        everything.update(given)
        return perceptron(4, 8)

    made(greedy, a=1, b="x", c=None)
    assert everything == {"classes": 4, "channels": 1, "image_size": 8, "a": 1, "b": "x", "c": None}


def test_a_class_and_a_partial_function_are_functions_too() -> None:
    class Mine(nn.Module):
        def __init__(self, classes: int) -> None:
            super().__init__()
            self.head = nn.LazyLinear(classes)

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            logits: torch.Tensor = self.head(images.flatten(1))
            return logits

    network = made(Mine)
    assert all(not each.is_inference() for each in network.parameters()), "a lazy layer can be trained"
    network(torch.zeros(2, 1, 8, 8)).sum().backward()
    assert isinstance(made(partial(perceptron, width=3)), nn.Module)


def test_a_run_of_a_function_is_that_of_the_network_it_builds_and_follows_the_seed() -> None:
    data = from_arrays(images())
    first, again = (make_run(recipe(width=6), data=data, model=perceptron) for _ in range(2))
    other = make_run(recipe(width=6).with_values({"loop.seed": 1}), data=data, model=perceptron)
    assert first.step() == first.history[0]
    again.step()
    for one, two in zip(first.weights().values(), again.weights().values(), strict=True):
        assert torch.equal(one, two)
    assert not torch.equal(next(iter(first.weights().values())), next(iter(other.weights().values())))
    for run in (first, again, other):
        run.close()


def test_train_takes_both_functions_and_its_recipe_trains_again() -> None:
    outcome = train(recipe(width=6), model=perceptron, data=images)
    again = train(outcome.recipe, model=perceptron, data=images)
    assert outcome.recipe.data.own
    assert [each.val_loss for each in again.history] == [each.val_loss for each in outcome.history]


def test_a_recipe_says_that_a_function_is_not_the_one_that_it_was_found_with() -> None:
    outcome = train(recipe(width=6), model=perceptron, data=images)
    said: list[str] = []
    train(outcome.recipe, model=perceptron, data=images, bench=Bench(say=said.append))
    assert not [line for line in said if "source" in line]

    def other(classes: int, width: int) -> nn.Module:
        return perceptron(classes, 8, width=width)

    train(outcome.recipe, model=other, data=images, bench=Bench(say=said.append))
    (line,) = [line for line in said if "source" in line]
    assert line.startswith("model: the source of this function is not that of the one")


def fails(classes: int) -> nn.Module:
    raise KeyError("sad")


def fails_later(classes: int) -> nn.Module:
    class Fails(nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            raise TypeError("not this image")

    return Fails()


@pytest.mark.parametrize(
    ("build", "arguments", "said"),
    [
        (None, {}, "a file names no code: give it from Python"),
        (perceptron, {"widht": 3}, "has no parameter 'widht'; it has: width, deep"),
        (lambda classes, depth: perceptron(4, 8), {}, "its parameter 'depth' has no default"),
        (lambda classes, /: perceptron(4, 8), {}, "its parameter 'classes' has no default"),
        (lambda: 3, {}, "expected it to return a torch.nn.Module, got int"),
        (fails, {}, "model=mine: KeyError: 'sad' (test_own.py, line "),
        (fails_later, {}, "model=mine: TypeError: not this image (test_own.py, line "),
        (lambda: perceptron(5, 8), {}, "your mine: expected logits of shape (1, 4) for one image, got"),
        (lambda: perceptron(4, 9), {}, "model=mine: RuntimeError: "),
    ],
)
def test_what_is_wrong_with_a_function_is_one_message(
    build: Callable[..., Any] | None, arguments: dict[str, Any], said: str
) -> None:
    with pytest.raises(ModelError) as fault:
        made(build, **arguments)
    assert said in str(fault.value)
    assert "\n" not in str(fault.value)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("stochastic_depth", 0.1, "your mine has no blocks that can be dropped"),
        ("zero_init_residual", True, "your mine has no residual blocks"),
    ],
)
def test_what_only_known_networks_have_is_refused(field: str, value: object, said: str) -> None:
    own = OwnModel.model_validate({"name": "mine", field: value})
    with pytest.raises(ModelError, match=said):
        make_model(own, NetworkEnds(classes=4, channels=1, image_size=8), build=perceptron)


def test_dropout_and_rates_by_layer_act_on_a_network_of_ones_own() -> None:
    own = OwnModel(name="mine", dropout=0.5)
    network = make_model(own, NetworkEnds(classes=4, channels=1, image_size=8), build=perceptron)
    network.train()
    assert len(torch.unique(network(torch.ones(64, 1, 8, 8)), dim=0)) > 1
    factors = rate_factors(GeometricRates(lowest=0.1), network)
    assert (factors["1.weight"], factors["3.weight"]) == (pytest.approx(0.1), 1.0)


def test_own_images_are_split_as_the_recipe_says_and_a_data_set_stays_as_it_is() -> None:
    spec = Data(path="images", format="own", validation_fraction=0.5, test_fraction=0.0)
    data = make_own(spec, images)
    assert (data.info.train_images, data.info.validation_images) == (40, 40)
    assert (data.info.path, data.info.format) == ("images", "own")
    given = make_own(spec, lambda: from_arrays(images()))
    assert given.info.digest == from_arrays(images()).info.digest
    assert given.info.format == "own"


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"exclude": "copies.csv"}, "data.exclude"),
        ({"min_images": 3, "train_limit": 40}, "data.min_images, data.train_limit"),
        ({"validation_seed": 1}, "data.validation_seed"),
        ({"validation": "none", "test": "none"}, "data.validation: none, data.test: none"),
    ],
)
def test_a_field_that_would_do_nothing_to_a_data_set_of_ones_own_is_refused(
    fields: dict[str, object], named: str
) -> None:
    spec = Data.model_validate({"path": "mine", "format": "own", **fields})
    with pytest.raises(DataError) as caught:
        make_own(spec, lambda: from_arrays(images()))
    assert str(caught.value).startswith(f"{named}: the DataSet that data=mine returns stays as it is; ")
    assert "from_arrays(..., spec=Data(...))" in str(caught.value)


def test_what_is_wrong_with_own_images_is_one_message() -> None:
    spec = Data(path="mine", format="own")
    with pytest.raises(DataError, match="data=mine: expected a DataSet, or images and labels"):
        make_own(spec, lambda: 3)
    with pytest.raises(DataError, match=r"data=mine: ZeroDivisionError: .*\(test_own.py, line"):
        make_own(spec, lambda: 1 / 0)
    with pytest.raises(DataError, match="images must be uint8"):
        make_own(spec, lambda: (np.zeros((4, 8, 8)), np.arange(4)))
    with pytest.raises(DataError, match="a file names no code"):
        make_run(Recipe().model_copy(update={"data": spec}))


def test_beside_weights_the_head_begins_small_whatever_the_function_draws(tmp_path: Path) -> None:
    def wide_head(classes: int) -> nn.Module:
        network = perceptron(classes, 8)
        nn.init.uniform_(network.get_parameter("3.weight"), -9.0, 9.0)
        return network

    file = tmp_path / "body.safetensors"
    save_file(wide_head(4).state_dict(), file)
    assert head_of(made(wide_head)).abs().max() > 1.0
    own = OwnModel(name="mine", weights=str(file))
    network = make_model(own, NetworkEnds(classes=4, channels=1, image_size=8), build=wide_head)
    assert head_of(network).abs().max() <= 8**-0.5


def head_of(network: nn.Module) -> torch.Tensor:
    return network.get_parameter("3.weight")
