"""Tests what holds for every rule: recipes accept what it offers, and it changes little with the facts."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spaces.domains import Choice, Value, fraction_of
from spaces.facts import Facts
from spaces.priors import Normal, Weights, density, likeliest, quantile_value
from spaces.rules.rules import RULES
from spaces.rules.rulings import Distribution
from tests.spaces.rules.rule_facts import CASES, any_facts, draws, settled, settled_recipe, shares
from tests.spaces.small_facts import digits_facts, imagenet_facts

fractions = st.fixed_dictionaries({each.name: st.floats(0.0, 0.999) for each in RULES})


@pytest.mark.parametrize("case", CASES)
def test_a_recipe_takes_the_ends_and_the_likeliest_of_every_rule(case: str) -> None:
    facts, pinned = CASES[case]
    recipe, values = settled_recipe(facts, **pinned), settled(facts, **pinned)
    for rule in RULES:
        if (found := rule.of(facts, values)) is None:
            continue
        conditions: list[dict[str, Value]] = [{}]
        if rule.when is not None:
            conditions = [{rule.when.path: met} for met in rule.when.values]
        for condition in conditions:
            for value in (*found.domain.extremes(), likeliest(found.domain, found.prior)):
                changed = recipe.with_values({**condition, rule.path: value})
                assert changed.get(rule.path) == value, rule.name


@pytest.mark.parametrize("case", CASES)
@settings(max_examples=20, deadline=None)
@given(fractions=fractions)
def test_a_recipe_takes_all_that_is_drawn_together(case: str, fractions: dict[str, float]) -> None:
    facts, pinned = CASES[case]
    found = draws(facts, settled(facts, **pinned), fractions)
    recipe = settled_recipe(facts, **pinned).with_values(found)
    assert {path: recipe.get(path) for path in found} == found


@pytest.mark.parametrize("case", CASES)
@settings(max_examples=20, deadline=None)
@given(fractions=fractions)
def test_drawn_values_never_move_a_domain_nor_its_source(case: str, fractions: dict[str, float]) -> None:
    facts, pinned = CASES[case]
    values: dict[str, Any] = settled(facts, **pinned)
    found = draws(facts, values, fractions)
    before: dict[str, Value] = {}
    for rule in RULES:
        first, later = rule.of(facts, values), rule.of(facts, {**values, **before})
        assert (first is None) == (later is None), rule.name
        if first is not None and later is not None:
            assert (first.domain, first.source) == (later.domain, later.source), rule.name
            if rule.path in found:
                before[rule.path] = found[rule.path]


@pytest.mark.parametrize("case", CASES)
def test_the_documents_own_recipe_lies_within_every_domain(case: str) -> None:
    facts, pinned = CASES[case]
    values = settled(facts, **pinned)
    for rule in RULES:
        met = rule.when is None or values.get(rule.when.path) in rule.when.values
        if met and rule.path.replace(".", "__") not in pinned:
            found = rule.of(facts, values)
            assert found is None or values[rule.path] in found.domain, rule.name


@given(facts=any_facts)
@settings(deadline=None)
def test_priors_are_finite_and_centred_within_their_domains(facts: Facts) -> None:
    values = settled(facts)
    for rule in RULES:
        if (found := rule.of(facts, values)) is None:
            continue
        value = likeliest(found.domain, found.prior)
        assert value in found.domain, rule.name
        assert 0.0 < density(found.domain, found.prior, value) < math.inf, rule.name
        for fraction in (0.0, 0.5, 0.999):
            assert quantile_value(found.domain, found.prior, fraction) in found.domain, rule.name


STEPPED = {"loop.batch_size"}  # powers of two: there is no formula between them


@pytest.mark.parametrize("fact", ["parameters", "train_images"])
@given(facts=any_facts)
@settings(deadline=None)
def test_a_little_more_of_a_fact_changes_a_prior_little(fact: str, facts: Facts) -> None:
    number = getattr(facts, fact)
    more = facts.model_copy(update={fact: number + max(1, number // 50)})
    values = settled(facts)
    for rule in RULES:
        one, other = rule.of(facts, values), rule.of(more, values)
        if one is None or other is None or rule.path in STEPPED or number < 50:
            continue
        assert _apart(one, other) < 0.1, rule.name


def _apart(one: Distribution, other: Distribution) -> float:
    """Return how far two centres lie apart, as a share of the first domain; of options, the largest gap."""
    match one.prior, other.prior:
        case Normal(centre=centre), Normal(centre=moved):
            clipped = min(max(moved, _low(one)), _high(one))
            return abs(fraction_of(one.domain, clipped) - fraction_of(one.domain, centre))
        case Weights(weights=weights), Weights(weights=moved_weights) if len(weights) == len(moved_weights):
            pairs = zip(_shares(one), _shares(other), strict=True)  # a decay of averages moves with the steps
            return max(abs(before - after) for before, after in pairs)
        case _:
            before, after = shares(one), shares(other)
            return max(abs(before.get(each, 0.0) - after.get(each, 0.0)) for each in {**before, **after})


def _shares(found: Distribution) -> tuple[float, ...]:
    assert isinstance(found.prior, Weights)
    return found.prior.shares


def _low(found: Distribution) -> float:
    assert not isinstance(found.domain, Choice)
    return found.domain.low


def _high(found: Distribution) -> float:
    assert not isinstance(found.domain, Choice)
    return found.domain.high


@pytest.mark.slow("asks every rule")
def test_every_rule_has_a_text_a_reason_and_a_source() -> None:
    for rule in RULES:
        assert rule.words.summary.endswith("."), rule.name
    for facts, pinned in CASES.values():
        said = [each.of(facts, settled(facts, **pinned)) for each in RULES]
        assert all(each.reason and each.source for each in said if each is not None)


def test_one_rule_speaks_for_one_dimension_at_most() -> None:
    for facts, pinned in CASES.values():
        values = settled(facts, **pinned)
        names = [rule.name for rule in RULES if rule.of(facts, values) is not None]
        assert len(names) == len(set(names))


def test_what_a_rule_depends_on_is_drawn_before_it() -> None:
    paths = [each.path for each in RULES]
    for index, each in enumerate(RULES):
        late = paths[index:]
        assert each.when is None or each.when.path not in late, each.name


def test_what_no_rule_draws_and_others_depend_on_is_a_kind_of_the_base() -> None:
    paths = {each.path for each in RULES}
    assert {each.when.path for each in RULES if each.when is not None} - paths == {"distillation.kind"}


def test_only_shapes_batches_strides_and_the_smoothing_of_small_nets_must_be_asked_for() -> None:
    assert list(dict.fromkeys(each.path for each in RULES if each.optional)) == [
        "schedule.kind",
        "loop.batch_size",
        "regularisation.label_smoothing",
        "model.output_stride",
    ]


@pytest.mark.parametrize("facts", [digits_facts(), imagenet_facts()])
def test_nothing_of_a_pretrained_model_is_tried_on_a_new_one(facts: Facts) -> None:
    values = settled(facts)
    assert not [
        each.name for each in RULES if each.path.startswith("model.freeze") and each.of(facts, values)
    ]
    assert not [each.name for each in RULES if "layer_rates" in each.path and each.of(facts, values)]
