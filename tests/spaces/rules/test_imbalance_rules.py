"""Tests when a space corrects for unequal classes, and that a person's own values stand."""

from typing import Any

import pytest

from spaces.catalog.catalog import make_space
from spaces.facts import Facts
from spaces.space import Space
from tests.spaces.rules.rule_facts import asked, shares, silent
from tests.spaces.small_facts import base_recipe, digits_facts

RULES = ("loop.sampling", "regularisation.class_weights.kind", "regularisation.logit_adjustment")
UNEQUAL = digits_facts(class_balance=0.1, classes_count_alike=True)


def space(
    facts: Facts, name: str = "document", overrides: dict[str, Any] | None = None, **pins: Any
) -> Space:
    pinned = frozenset(path.replace("__", ".") for path in pins)
    return make_space(name, base_recipe(facts, **pins), pinned, facts, overrides or {})


@pytest.mark.parametrize("name", RULES)
def test_nothing_is_corrected_below_a_ratio_of_ten_nor_for_scores_that_count_images(name: str) -> None:
    assert not silent(name, UNEQUAL)
    assert silent(name, digits_facts(class_balance=0.11, classes_count_alike=True))
    assert silent(name, digits_facts(class_balance=0.001))


def test_the_first_trial_adjusts_logits_and_the_others_vary_all_three() -> None:
    found = space(UNEQUAL)
    assert found.base.regularisation.logit_adjustment == 1.0
    assert found.base.loop.sampling == "sqrt"
    assert set(RULES) <= {each.path for each in found.dimensions}
    even = space(digits_facts(classes_count_alike=True))
    assert even.base.regularisation.logit_adjustment == 0.0
    assert not set(RULES) & {each.path for each in even.dimensions}


def test_every_correction_is_left_out_in_some_trials() -> None:
    for name, none in zip(RULES, ("natural", "none", 0.0), strict=True):
        assert shares(asked(name, UNEQUAL))[none] >= 0.25


def test_what_a_person_fixes_or_overrides_stands() -> None:
    found = space(UNEQUAL, regularisation__logit_adjustment=0.0)
    assert found.base.regularisation.logit_adjustment == 0.0
    assert "regularisation.logit_adjustment" not in {each.path for each in found.dimensions}
    asked_for = space(digits_facts(), overrides={"loop.sampling": {"choice": ["natural", "balanced"]}})
    assert "loop.sampling" in {each.path for each in asked_for.dimensions}


def test_the_space_to_fine_tune_corrects_too() -> None:
    facts = UNEQUAL.model_copy(update={"pretrained": True})
    found = space(facts, "finetune", model__weights="net.safetensors")
    assert {"loop.sampling", "regularisation.logit_adjustment"} <= {each.path for each in found.dimensions}
