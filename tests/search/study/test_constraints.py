"""Tests constraints: what a study may say, when one is broken, and what no trial could meet."""

from __future__ import annotations

from typing import Any

import pytest

from search.study import Study, StudyError
from search.study.objective import above_limits
from search.study.space import size_faults
from spaces.domains import Choice, Domain, Float
from spaces.facts import NetworkFacts
from spaces.space import Dimension, Space
from tests.spaces.small_facts import digits_facts
from trainable.recipe import Recipe
from trainable.recipe.network_cost import NetworkCost
from trainable.recipe.yamlfile import parse_tree

YAML = """
data: {path: digits}
objective: {constraints: {latency_ms: {max: 20}, parameters: {max: 5e6}}}
"""
STUDY = Study.from_tree(parse_tree(YAML, "study"))
LIMITS = STUDY.objective.constraints
COST = NetworkCost(parameters=6_000_000, latency_ms=10.0, memory_gib=2.0)


def test_constraints_are_read_from_yaml_and_survive_writing() -> None:
    assert LIMITS.limits == {"latency_ms": 20.0, "parameters": 5e6}
    assert str(LIMITS) == "latency_ms at most 20, parameters at most 5,000,000"
    assert Study.from_tree(STUDY.model_dump(mode="json")) == STUDY


@pytest.mark.parametrize(
    ("constraints", "wanted"),
    [
        (
            {"latency": {"max": 20}},
            r"did you mean 'latency_ms'\? \(known: latency_ms, parameters, memory_gib\)",
        ),
        ({"latency_ms": {"max": 0}}, "max: expected greater than 0"),
        ({"latency_ms": {"most": 5}}, r"most: unknown key \(known: max\)"),
        ({"latency_ms": 20}, "objective.constraints.latency_ms: expected"),
        ({"latency_ms": {}}, "objective.constraints.latency_ms.max: is required"),
    ],
)
def test_a_constraint_that_cannot_be_is_refused_with_what_can(constraints: Any, wanted: str) -> None:
    with pytest.raises(StudyError, match=wanted):
        Study.from_tree({"data": {"path": "digits"}, "objective": {"constraints": constraints}})


def test_a_cost_is_compared_with_its_limit_and_a_cost_at_the_limit_is_allowed() -> None:
    assert LIMITS.excesses(COST) == pytest.approx({"latency_ms": -0.5, "parameters": 0.2})
    assert above_limits(LIMITS.excesses(COST)) == pytest.approx(0.2)
    assert LIMITS.broken(COST) == "parameters 6,000,000 is 20% above 5,000,000"
    assert LIMITS.broken(COST.model_copy(update={"parameters": 5_000_000})) is None
    assert LIMITS.broken(COST.model_copy(update={"latency_ms": 20.1})) == (
        "latency_ms 20.1 is 0.5% above 20, parameters 6,000,000 is 20% above 5,000,000"
    )


@pytest.mark.parametrize(
    ("path", "domain", "faults"),
    [
        ("optimizer.lr", Float(0.01, 0.1), 1),
        ("model.dropout", Float(0.0, 0.5), 1),
        ("model.width", Choice((8, 16)), 0),
    ],
)
def test_a_network_that_every_trial_has_is_refused_at_once_where_it_is_too_large(
    path: str, domain: Domain, faults: int
) -> None:
    varied = Dimension(path, domain, "for the test", "none")
    space = Space(Recipe(), (varied,), {path: Recipe().get(path) or domain.extremes()[0]})
    found = list(size_faults(LIMITS, space, digits_facts(parameters=5_000_001)))
    assert [fault.path for fault in found] == ["objective.constraints.parameters.max"] * faults
    assert not list(size_faults(LIMITS, space, digits_facts(parameters=5_000_000)))


@pytest.mark.parametrize(("smallest", "faults"), [(5_000_000, 0), (5_000_001, 1)])
def test_networks_to_choose_between_are_refused_at_once_where_all_are_too_large(
    smallest: int, faults: int
) -> None:
    networks = (NetworkFacts(name="a", parameters=9_000_000), NetworkFacts(name="b", parameters=smallest))
    varied = Dimension("model.name", Choice(("a", "b")), "for the test", "none")
    base = Recipe().with_values({"model.kind": "timm", "model.name": "a"})
    facts = digits_facts(parameters=9_000_000, networks=networks)
    found = list(size_faults(LIMITS, Space(base, (varied,), {"model.name": "a"}), facts))
    assert [fault.path for fault in found] == ["objective.constraints.parameters.max"] * faults
    assert all(
        "5,000,001 parameters of the smallest network that a trial can have, b" in each.message
        for each in found
    )
