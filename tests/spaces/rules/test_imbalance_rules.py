"""Tests when a space corrects for unequal classes, and that a person's own values stand."""

from typing import Any

import pytest

from spaces.catalog.catalog import just_missed, make_space
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


# --- rules that just miss -------------------------------------------------------------------------------


def missed(facts: Facts, name: str = "document", **pins: Any) -> dict[str, list[str]]:
    """Return what is fixed since a fact just misses a threshold, by the threshold in words."""
    found = space(facts, name, **pins)
    return {str(each): paths for each, paths in just_missed(name, found, facts).items()}


def test_a_rule_that_just_misses_says_by_which_fact() -> None:
    near = digits_facts(class_balance=1 / 9, classes_count_alike=True)
    words = "largest class over smallest: 9 < 10"
    assert set(missed(near)[words]) == set(RULES)
    assert set(missed(near, loop__sampling="natural")[words]) == set(RULES) - {"loop.sampling"}


@pytest.mark.parametrize(
    "facts",
    [
        UNEQUAL,  # the rule holds
        digits_facts(class_balance=1 / 7, classes_count_alike=True),  # it is far from holding
        digits_facts(class_balance=1 / 9),  # the score counts images: another reason
    ],
)
def test_a_rule_that_holds_or_is_far_from_holding_has_not_just_missed(facts: Facts) -> None:
    assert not any("largest class" in each for each in missed(facts))


def test_of_two_thresholds_the_farther_one_decides_whether_a_rule_just_misses() -> None:
    policy = "augmentation.policy.kind"
    assert policy in missed(digits_facts(epochs=8, image_size=32))["epochs: 8 < 10"]
    assert policy in missed(digits_facts(epochs=20, image_size=20))["side of an image in px: 20 < 24"]
    assert not any(policy in paths for paths in missed(digits_facts(epochs=8, image_size=8)).values())


def test_what_a_space_never_varies_has_not_just_missed() -> None:
    assert missed(digits_facts(epochs=8, image_size=32), "quick") == {}
    assert missed(digits_facts(epochs=8, image_size=32), "wide") == {}


def test_the_threshold_is_that_of_the_rule() -> None:
    for ratio in (9.99, 10.0):
        facts = digits_facts(class_balance=1 / ratio, classes_count_alike=True)
        varies = {"loop.sampling"} <= {each.path for each in space(facts).dimensions}
        assert varies == (not any("largest class" in each for each in missed(facts)))
