"""Tests what a study and a person's functions make together: plain data, without code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch import Tensor, nn

from search.record.code import CodeRecord, record_of
from search.study import Study, read_study
from search.study.code import Code, check_code, study_with_code
from search.study.space import build_space
from spaces.domains import Choice, Float, Integer
from spaces.settled import space_from, tree_of
from tests.search.planted_searches import Images
from tests.spaces.small_facts import digits_facts
from trainable.errors import UserError
from trainable.models.own import source_digest

DEPTH, WIDTH, RATE = "model.arguments.depth", "model.arguments.width", "model.arguments.rate"
WORD = "model.arguments.x"


def build_model(classes: int, depth: int = 2, width: int = 99, rate: float = 1, **others: Any) -> Any:
    return None


def agreement(probabilities: Tensor, labels: Tensor) -> float:
    return float((probabilities.argmax(1) == labels).double().mean())


def make_data() -> Any:
    return None


def study_of(ranges: dict[str, Any], **tree: Any) -> Study:
    return study_with_code({"data": {"path": "digits"}, **tree}, Code(build_model), ranges)


def test_a_study_with_functions_is_data_and_survives_its_file(tmp_path: Path) -> None:
    ranges: dict[str, Any] = {DEPTH: Choice((1, 2)), "optimizer.lr": {"log": [0.01, 0.1], "prior": 0.05}}
    study = study_with_code({"name": "mine"}, Code(build_model, make_data), ranges)
    assert study.data.path == "make_data"
    assert study.resolved("mine").data.path == "make_data", "a name is no path"
    assert study.space.overrides[DEPTH] == {"choice": [1, 2]}
    assert dict(study.pinned) == {"model.kind": "own", "model.name": "build_model"}
    study.write(tmp_path)
    assert read_study(tmp_path / "study.yaml") == study
    assert study_with_code(study, Code(build_model, make_data), {}) == study


def test_the_first_trial_has_the_default_where_the_range_holds_it_else_the_likeliest_value() -> None:
    study = study_of(
        {
            DEPTH: Choice((2, 4)),
            WIDTH: Integer(1, 9),
            RATE: Float(0.5, 2.0),
            WORD: Choice(("a", "b")),
        }
    )
    arguments = study.base_recipe().tree()["model"]["arguments"]
    assert arguments == {"depth": 2, "width": 5, "rate": 1.0, "x": "a"}
    assert isinstance(arguments["rate"], float)
    believed = study_of({WIDTH: {"int": [1, 9], "prior": 7}})
    assert believed.base_recipe().get(WIDTH) == 7
    chosen = study_of({WIDTH: Integer(1, 9)}, base={"model.arguments.width": 3})
    assert chosen.base_recipe().get(WIDTH) == 3


def test_arguments_are_dimensions_as_others_are() -> None:
    study = study_of({DEPTH: Choice((1, 2)), WIDTH: Integer(4, 9, log=True)})
    space = build_space(study, digits_facts(epochs=study.budget.epochs), Images().info)
    assert {DEPTH, WIDTH, "optimizer.lr"} <= {each.path for each in space.dimensions}
    assert (space.own[DEPTH], space.own[WIDTH]) == (2, 6)
    drawn = space.sample(lambda dimension: 0.01)
    assert space.recipe(drawn).get(WIDTH) == 4
    assert space_from(tree_of(space)) == space
    assert not space.networks_differ, "what an argument changes is not known"


@pytest.mark.parametrize(
    ("ranges", "tree", "said"),
    [
        ({"depth": Choice((1, 2))}, {}, "is written model.arguments.depth"),
        ({"model.depth": Choice((1, 2))}, {}, "is written model.arguments.depth"),
        ({DEPTH: {"log": [3, 1]}}, {}, "space.overrides.model.arguments.depth: expected low < high"),
        ({DEPTH: {"prior": 3}}, {}, "no rule knows a parameter of your function"),
        ({"model.arguments.kind": Choice((1, 2))}, {}, "cannot be called 'kind'"),
        ({"model.arguments.classes": Choice((1, 2))}, {}, "cannot be called 'classes'"),
        ({DEPTH: Choice((1, 2))}, {"space": {"overrides": {DEPTH: {"choice": [1]}}}}, "keep one"),
        ({}, {"base": {"model": {"kind": "timm", "name": "x"}}}, "is 'timm', and model= is given, too"),
    ],
)
def test_what_does_not_fit_together_is_one_message(
    ranges: dict[str, Any], tree: dict[str, Any], said: str
) -> None:
    with pytest.raises(UserError) as fault:
        study_of(ranges, **tree)
    assert said in str(fault.value)


def test_a_parameter_that_a_function_lacks_is_named() -> None:
    with pytest.raises(UserError, match=r"model=make_data: has no parameter 'depth'; it has: none"):
        study_with_code({"data": {"path": "digits"}}, Code(make_data), {DEPTH: Choice((1, 2))})


def test_a_path_and_a_function_for_images_are_refused_together() -> None:
    with pytest.raises(UserError, match=r"data.path: is 'digits', and data= is given, too: keep one"):
        study_with_code({"data": {"path": "digits"}}, Code(None, make_data), {})


@pytest.mark.parametrize("given", ["resnet18", nn.Linear(2, 2)])
def test_what_is_no_function_is_refused(given: Any) -> None:
    with pytest.raises(
        UserError, match=f"model: expected a function that makes it, got {type(given).__name__}"
    ):
        study_with_code({}, Code(given), {})


def test_an_objective_that_is_no_metric_is_answered_with_those_that_are() -> None:
    code = Code(metrics={"f_beta": agreement, "accuracy": agreement})
    with pytest.raises(UserError, match=r"'val_fbeta' is none of yours, val_f_beta, val_accuracy, and none"):
        study_with_code({"objective": {"metric": "val_fbeta"}}, code, {})
    with pytest.raises(
        UserError, match=r"val_accuracy is one of ours: give a function of yours another name"
    ):
        study_with_code({"objective": {"metric": "val_accuracy"}}, code, {})


def test_a_study_that_needs_a_function_says_which() -> None:
    study = study_of({})
    with pytest.raises(UserError, match=r"model=build_model, which no file names: call search"):
        check_code(study, Code())
    with pytest.raises(UserError, match=r"data=make_data, which no file names: run it"):
        check_code(study_with_code({}, Code(None, make_data), {}), Code(), "run it")


def test_a_comment_is_no_change_of_a_function_and_another_number_is_one() -> None:
    def first(width: int = 1) -> Any:
        return width + 1  # one more

    with_comments = first

    def changed(width: int = 1) -> Any:
        return width + 2

    def first(width: int = 1) -> Any:  # type: ignore[no-redef]
        # a comment
        return width + 1

    assert source_digest(with_comments) == source_digest(first)
    changed.__name__ = "first"
    record = record_of(Code(with_comments))
    assert list(record.changes(Code(first))) == []
    assert len(list(record.changes(Code(changed)))) == 1
    assert CodeRecord.from_tree(record.tree()) == record


@pytest.mark.parametrize("tree", [{"script": 3, "sources": {}}, {"sources": {"model": 1}}, {"sources": []}])
def test_a_damaged_record_of_code_is_refused(tree: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expected the code of a search"):
        CodeRecord.from_tree(tree)
