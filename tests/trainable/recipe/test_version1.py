"""Tests that recipes that tunebook 0.1.0 exported are read, and train as they did there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainable.small_runs import data_set, finished, small_recipe
from trainable.errors import RecipeError
from trainable.recipe import Recipe
from trainable.recipe.trees import leaves
from trainable.recipe.version1 import INSTEAD, converted
from trainable.recipe.yamlfile import read_recipe, read_tree
from trainable.run import make_run

torch.set_num_threads(1)

EXPORTED = Path(__file__).parent / "exported_by_0_1"
# Those of training and validation, of two epochs of `small_runs` in tunebook 0.1.0
LOSSES = json.loads((EXPORTED / "losses.json").read_text())
# What `small_runs` was then; in channels_last, torch 2.15 writes past the end of a gradient of 4 channels on
# processors with AVX2 and no AVX-512
THEN = {"model.width": 4, "precision.channels_last": False}
NONE = {"kind": "none"}
ADAPTIVE = {"kind": "adaptive", "factor": 0.01}
# What each exported file's clipping and averaging are in version 2
FILES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": (NONE, NONE),
    "averaged": (NONE, {"kind": "ema", "decay": 0.92862}),
    "clipped": ({"kind": "norm", "max_norm": 0.1}, NONE),
    "clipped_and_averaged": ({"kind": "norm", "max_norm": 0.1}, {"kind": "ema", "decay": 0.999}),
    "adaptive_and_averaged": (ADAPTIVE, {"kind": "ema", "decay": 0.9}),
    "adaptive_with_an_average_that_is_not_scored": (ADAPTIVE, NONE),
}


def message_of(tree: dict[str, Any]) -> str:
    with pytest.raises(RecipeError) as caught:
        Recipe.from_tree(tree)
    return str(caught.value)


def test_every_exported_file_is_tested() -> None:
    assert {file.stem for file in EXPORTED.glob("*.yaml")} == FILES.keys()


@pytest.mark.parametrize("name", FILES)
def test_a_recipe_of_version_1_keeps_its_clipping_its_averaging_and_all_the_rest(name: str) -> None:
    written, read = read_tree(EXPORTED / f"{name}.yaml"), read_recipe(EXPORTED / f"{name}.yaml").tree()
    clipping, averaging = FILES[name]
    assert read["version"] == 2
    assert read["regularisation"]["clipping"] == clipping
    assert read["regularisation"]["averaging"] == averaging
    others = {path: value for path, value in leaves(written) if path not in INSTEAD and path != "version"}
    assert others.items() <= dict(leaves(read)).items()


@pytest.mark.parametrize("name", FILES)
def test_a_recipe_of_version_1_trains_to_the_losses_that_it_had(name: str) -> None:
    """On the machine that recorded them they were equal to the last bit; another's arithmetic may differ."""
    recipe, small = read_recipe(EXPORTED / f"{name}.yaml"), small_recipe({"loop.epochs": 2, **THEN})
    sections = {each: getattr(small, each) for each in ("data", "model", "precision", "loop")}
    run = make_run(recipe.model_copy(update=sections), data=data_set())
    finished(run)
    losses = [[each.train_loss, each.val_loss] for each in run.history]
    assert losses == [pytest.approx(each, rel=1e-4) for each in LOSSES[f"{name}.yaml"]]


def test_a_short_recipe_of_version_1_takes_the_defaults() -> None:
    assert Recipe.from_tree({"version": 1}) == Recipe()
    short = Recipe.from_tree({"version": 1, "regularisation": {"clip_norm": 2.0}})
    assert short == Recipe().with_values(
        {"regularisation.clipping.kind": "norm", "regularisation.clipping.max_norm": 2.0}
    )


@pytest.mark.parametrize(
    "tree", [{}, {"version": 2}, {"version": 3, "regularisation": {"clip_norm": 1.0}}, Recipe().tree()]
)
def test_what_is_not_of_version_1_stays_as_it_is(tree: dict[str, Any]) -> None:
    assert converted(tree) == tree


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"regularisation": {"clip_norm": 1.0, "clip_factor": 0.01}}, "or by clip_factor, not both"),
        ({"evaluation": {"weights": "ema"}}, "regularisation.ema_decay must be a number"),
        ({"evaluation": {"weights": "mean"}}, "evaluation.weights: expected 'raw' or 'ema', got 'mean'"),
        ({"regularisation": {"clip_norm": -1.0}}, "regularisation.clip_norm: expected greater than 0"),
        ({"regularisation": {"ema_decay": "abc"}}, "regularisation.ema_decay: expected"),
        (
            {"regularisation": {"ema_decay": 9.0}, "evaluation": {"weights": "ema"}},
            "regularisation.ema_decay: expected",
        ),
        ({"regularisation": {"clipping": NONE}}, "regularisation.clipping: version 1 of recipes has no such"),
        ({"regularisation": 3}, "regularisation: expected"),
        ({"evaluation": {"flop": True}}, "evaluation.flop: unknown key; did you mean 'flip'?"),
    ],
)
def test_what_version_1_refuses_is_still_refused(sections: dict[str, Any], message: str) -> None:
    assert message in message_of({"version": 1, **sections})


@pytest.mark.parametrize("path", INSTEAD)
def test_a_field_of_version_1_in_a_recipe_of_version_2_is_refused_with_what_to_write(path: str) -> None:
    section, name = path.split(".")
    assert f"{path}: only recipes of version 1 have it; write regularisation." in message_of(
        {"version": 2, section: {name: 0.5}}
    )
    for action in (Recipe().get, lambda path: Recipe().with_values({path: 0.5})):
        with pytest.raises(RecipeError, match="only recipes of version 1 have it"):
            action(path)


@pytest.mark.parametrize("path", INSTEAD)
def test_what_is_advised_in_its_stead_is_there(path: str) -> None:
    fields = [word.strip(":,") for word in INSTEAD[path].split() if word.startswith("regularisation.")]
    kind = INSTEAD[path].split(": ")[1].split()[0].strip(",")
    recipe = Recipe().with_values({fields[0]: kind})
    assert all(recipe.get(field) is not None for field in fields)
