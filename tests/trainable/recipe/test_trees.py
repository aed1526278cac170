"""Tests trees of plain data, read and edited by dotted path."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainable.recipe.trees import NoSuchPath, leaves, sharing, value_at, with_leaf, with_value, without

TREE: dict[str, Any] = {
    "optimizer": {"kind": "sgd", "lr": 0.1},
    "augmentation.crop": {"kind": "pad"},
    "data.flips": ["horizontal"],
    "name": None,
}

# Some are equal and are written differently
SCALARS = st.sampled_from([None, True, False, 0, 1, 0.0, -0.0, 1.0, "", "a"])
TREES = st.dictionaries(
    st.sampled_from("abc"),
    st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from("abc"), inner)),
)


def never(section: Any) -> bool:
    return False


def always(section: Any) -> bool:
    return True


def test_leaves_are_the_single_values_and_lists_however_their_keys_are_written() -> None:
    assert dict(leaves(TREE)) == {
        "optimizer.kind": "sgd",
        "optimizer.lr": 0.1,
        "augmentation.crop.kind": "pad",
        "data.flips": ["horizontal"],
        "name": None,
    }


def test_a_path_leads_to_a_value_or_to_a_section() -> None:
    assert value_at(TREE, "optimizer.lr") == 0.1
    assert value_at(TREE, "optimizer") == TREE["optimizer"]
    assert value_at(TREE, "name") is None


@pytest.mark.parametrize(
    ("path", "section", "name"),
    [
        ("optimiser.lr", "", "optimiser"),
        ("optimizer.rate", "optimizer", "rate"),
        ("optimizer.lr.low", "optimizer.lr", "low"),
        ("name.first", "name", "first"),
    ],
)
def test_a_path_that_is_not_there_says_how_far_it_leads(path: str, section: str, name: str) -> None:
    with pytest.raises(NoSuchPath) as caught:
        value_at(TREE, path)
    assert (caught.value.section, caught.value.name) == (section, name)


def test_a_value_is_set_in_its_section_and_the_rest_stays() -> None:
    changed = with_value(TREE, ["optimizer", "lr"], 0.2, never)
    assert changed == {**TREE, "optimizer": {"kind": "sgd", "lr": 0.2}}
    assert with_value(TREE, ["optimizer", "momentum"], 0.9, never)["optimizer"]["momentum"] == 0.9


def test_a_name_may_hold_dots() -> None:
    assert with_value({}, ["base", "optimizer.lr"], 0.2, always) == {"base": {"optimizer.lr": 0.2}}


def test_sections_are_added_only_where_they_may_be() -> None:
    assert with_value(TREE, ["model", "layer_rates", "kind"], "uniform", always)["model"] == {
        "layer_rates": {"kind": "uniform"}
    }
    with pytest.raises(NoSuchPath, match="no 'model' in the tree"):
        with_value(TREE, ["model", "width"], 8, never)
    with_kind = with_value(TREE, ["optimizer", "groups", "head"], 1.0, lambda section: "kind" in section)
    assert with_kind["optimizer"] == {"kind": "sgd", "lr": 0.1, "groups": {"head": 1.0}}


@pytest.mark.parametrize("may_add", [never, always])
def test_nothing_is_set_below_a_single_value(may_add: Callable[[Any], bool]) -> None:
    with pytest.raises(NoSuchPath, match=r"no 'low' in optimizer\.lr"):
        with_value(TREE, ["optimizer", "lr", "low"], 0.1, may_add)


def test_a_leaf_is_replaced_in_its_own_notation_and_never_added() -> None:
    assert with_leaf(TREE, "optimizer.lr", 0.3)["optimizer"] == {"kind": "sgd", "lr": 0.3}
    assert with_leaf(TREE, "augmentation.crop.kind", "none")["augmentation.crop"] == {"kind": "none"}
    assert with_leaf(TREE, "optimizer.momentum", 0.9) == TREE


def test_a_leaf_or_a_section_is_left_out() -> None:
    assert without(TREE, "optimizer").keys() == {"augmentation.crop.kind", "data.flips", "name"}
    assert "optimizer.kind" in without(TREE, "optimizer.lr")
    assert without({"lr": 1, "lr_band": 2}, "lr") == {"lr_band": 2}


def test_no_edit_changes_the_tree_itself() -> None:
    before = copy.deepcopy(TREE)
    with_value(TREE, ["optimizer", "lr"], 0.2, never)
    with_value(TREE, ["model", "width"], 8, always)
    with_leaf(TREE, "optimizer.lr", 0.2)
    without(TREE, "optimizer")
    assert before == TREE


def test_what_two_trees_have_in_common_is_shared() -> None:
    like = {"model": {"name": "a", "sizes": [1, 2]}, "optimizer": {"lr": 0.1, "kind": "sgd"}, "task": "x"}
    tree = {"model": {"name": "a", "sizes": [1, 2]}, "optimizer": {"lr": 0.2, "kind": "sgd"}, "task": "x"}
    found = sharing(tree, like)
    assert found == tree
    assert found["model"] is like["model"]
    assert found["optimizer"] is not like["optimizer"]
    assert sharing(like, tree) == like


@given(tree=TREES, like=TREES)
def test_a_shared_tree_is_written_as_before(tree: dict[str, Any], like: dict[str, Any]) -> None:
    before = json.dumps([tree, like])
    assert json.dumps(sharing(tree, like)) == json.dumps(tree)
    assert json.dumps([tree, like]) == before
