"""Tests what a study leaves to the rules when its space is built."""

from __future__ import annotations

from typing import Any

import pytest

from search.study import Study, StudyError
from search.study.space import build_space
from tests.search.commands.test_explain_command import INFO
from tests.spaces.small_facts import digits_facts
from trainable.recipe.network_cost import Speed

USUAL = Speed(number_format="fp32", channels_last=True, images_per_second=100.0)
COMPILED = USUAL.model_copy(
    update={"images_per_second": 300.0, "compile_seconds": 9.0, "again_seconds": 1.0, "by_blocks": True}
)


def a_study(**sections: Any) -> Study:
    return Study.from_tree({"data": {"path": "digits"}, **sections})


@pytest.mark.parametrize(("speeds", "value"), [((), False), ((USUAL, COMPILED), "blocks")])
def test_a_choice_to_compile_is_settled_before_any_trial(speeds: tuple[Speed, ...], value: object) -> None:
    study = a_study(base={"loop": {"compile": "auto"}})
    space = build_space(study, digits_facts(speeds=speeds, trials=16), INFO)
    assert space.recipe(space.own).loop.compile == value


def test_a_trial_does_not_choose_whether_to_compile() -> None:
    study = a_study(space={"overrides": {"loop.compile": {"choice": [False, "auto"]}}})
    with pytest.raises(StudyError, match=r"overrides\.loop\.compile: .* expected false, true or blocks"):
        build_space(study, digits_facts(), INFO)
