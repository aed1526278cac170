from pathlib import Path

import pytest

from spaces.catalog import make_space
from spaces.explain import Row, leaves, reasons, recipe_rows, space_rows
from spaces.fields import PURPOSES
from tests.spaces.small_facts import base_recipe, digits_facts, imagenet_facts
from trainable.recipe import Recipe
from trainable.yamlfile import read_recipe, write_recipe

KINDS = {
    "model.kind": ["resnet_small"],
    "optimizer.kind": ["sgd", "adamw"],
    "schedule.kind": ["constant", "cosine", "step", "poly", "exp"],
    "augmentation.crop.kind": ["none", "pad", "resized"],
    "augmentation.policy.kind": ["none", "randaugment"],
    "augmentation.mixing.kind": ["none", "mixup", "cutmix"],
    "evaluation.resize.kind": ["stretch", "center_crop"],
}
NAMED_MODELS = [
    Recipe().with_values({"model.kind": kind, "model.name": "x"}) for kind in ("torchvision", "timm")
]
ALL_KINDS = [
    Recipe().with_values({path: kind}) for path, kinds in KINDS.items() for kind in kinds
] + NAMED_MODELS


def row(rows: list[Row], path: str) -> Row:
    (found,) = (each for each in rows if each.path == path)
    return found


def test_the_purpose_of_every_field_of_every_kind_is_known_and_no_other() -> None:
    assert {path for recipe in ALL_KINDS for path, _ in leaves(recipe)} == PURPOSES.keys()


@pytest.mark.parametrize("recipe", ALL_KINDS, ids=lambda recipe: recipe.digest())
def test_every_value_of_a_recipe_has_a_row_with_reason_and_source(recipe: Recipe) -> None:
    for rows in (recipe_rows(recipe), recipe_rows(recipe, digits_facts())):
        assert [each.path for each in rows] == [path for path, _ in leaves(recipe)]
        assert all(each.what and each.reason and each.source for each in rows)


def test_a_space_explains_what_varies_and_what_is_fixed() -> None:
    facts = imagenet_facts()
    base = base_recipe(facts, optimizer__weight_decay=0.003)
    overrides = {"loop.batch_size": {"choice": [128, 512]}}
    space = make_space("document", base, frozenset({"optimizer.weight_decay"}), facts, overrides)
    rows = space_rows(space, facts)
    assert row(rows, "optimizer.lr[sgd]").what == "0.02 to 0.5, log; when optimizer.kind is sgd"
    assert row(rows, "optimizer.lr[sgd]").source.startswith("003:13")
    assert row(rows, "loop.batch_size").what == "one of 128, 512"
    assert row(rows, "loop.batch_size").source == "space.overrides"
    assert row(rows, "optimizer.weight_decay").what == "0.003"
    assert row(rows, "optimizer.weight_decay").source == "written in the study"
    assert row(rows, "schedule.kind").source.startswith("003:13")
    assert row(rows, "precision.kind").what == "auto"


def test_every_field_of_the_base_is_in_a_spaces_rows() -> None:
    facts = imagenet_facts()
    space = make_space("document", base_recipe(facts), frozenset(), facts, {})
    explained = {each.path.partition("[")[0] for each in space_rows(space, facts)}
    assert {path for path, _ in leaves(space.base)} <= explained


def test_a_value_is_explained_by_its_rule_its_range_or_its_field() -> None:
    facts = imagenet_facts()
    space = make_space("document", base_recipe(facts), frozenset(), facts, {})
    drawn = space.recipe({**space.own, "optimizer.lr": 0.3}).with_values({"loop.batch_size": 64})
    rows = recipe_rows(drawn, facts)
    assert row(rows, "optimizer.momentum").reason.startswith("SGD with momentum")
    assert row(rows, "optimizer.lr").reason.startswith("from 0.02 to 0.5, log: a factor 5 either side of 0.1")
    assert row(rows, "loop.batch_size").reason.startswith("written by hand; the rule gives 256")
    assert row(rows, "loop.seed").reason == PURPOSES["loop.seed"].reason


def test_the_ranges_of_the_other_optimizer_explain_nothing() -> None:
    facts = imagenet_facts()
    adam = base_recipe(facts, optimizer__kind="adamw", optimizer__lr=0.1)
    assert row(recipe_rows(adam, facts), "optimizer.lr").reason.startswith("written by hand")
    assert row(recipe_rows(adam, facts), "optimizer.kind").reason.startswith("from one of sgd, adamw")


def test_reasons_are_comments_that_leave_the_recipe_as_it_is(tmp_path: Path) -> None:
    facts = imagenet_facts()
    recipe = base_recipe(facts, optimizer__lr=0.3, data__flips=["horizontal", "vertical"])
    write_recipe(tmp_path / "best.yaml", recipe, reasons(recipe, facts))
    assert read_recipe(tmp_path / "best.yaml") == recipe
    text = (tmp_path / "best.yaml").read_text()
    assert "a factor 5 either side of 0.1" in text
    assert all(reasons(recipe, facts)[path] in text for path, _ in leaves(recipe))


def test_provenance_is_not_explained() -> None:
    tree = {**Recipe().tree(), "provenance": {"search": "digits"}}
    assert not [path for path in reasons(Recipe.from_tree(tree), digits_facts()) if "provenance" in path]
