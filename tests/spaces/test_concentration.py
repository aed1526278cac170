"""Tests how far priors narrow a space down, in bits."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest

from spaces.domains import Choice, Domain, Float, Value
from spaces.priors import Normal, Prior, Uniform, Weights, density
from spaces.space import Believed, Dimension, Space, When, concentration
from trainable.recipe import Recipe

RATE = Float(1e-3, 10.0, log=True)
KINDS = Choice(("sgd", "adamw"))


def dimension(path: str, domain: Domain, prior: Prior, when: When | None = None) -> Dimension:
    return Dimension(path, domain, "for the test", "none", when, beliefs=Believed(prior))


def space_of(*dimensions: Dimension) -> Space:
    own: Mapping[str, Value] = {
        each.path: Recipe().get(each.path)
        for each in dimensions
        if each.when is None or Recipe().get(each.when.path) in each.when.values
    }
    return Space(Recipe(), dimensions, own)


def test_nothing_believed_is_no_bit() -> None:
    assert concentration(space_of(dimension("optimizer.lr", RATE, Uniform()))) == 0.0
    assert concentration(space_of()) == 0.0


@pytest.mark.parametrize("weights", [(1.0, 1.0), (3.0, 1.0), (9.0, 1.0)])
def test_of_options_it_is_their_relative_entropy(weights: tuple[float, float]) -> None:
    prior = Weights(weights)
    exact = sum(share * math.log2(2 * share) for share in prior.shares)
    assert concentration(space_of(dimension("optimizer.kind", KINDS, prior))) == pytest.approx(exact)


@pytest.mark.parametrize("confidence", ["low", "medium", "high"])
def test_of_a_range_it_is_the_integral_over_it(confidence: str) -> None:
    prior = Normal(0.1, confidence)  # type: ignore[arg-type]
    steps = [10 ** (-3 + 4 * (step + 0.5) / 2000) for step in range(2000)]
    each = [density(RATE, prior, value) for value in steps]
    exact = sum(height * math.log2(height) for height in each) / 2000
    assert concentration(space_of(dimension("optimizer.lr", RATE, prior))) == pytest.approx(exact, abs=0.02)


def test_dimensions_add_up_and_count_only_where_they_exist() -> None:
    rate = dimension("optimizer.lr", RATE, Normal(0.1, "high"))
    alone = concentration(space_of(rate))
    momentum = Float(0.5, 0.99)
    sometimes = dimension(
        "optimizer.momentum", momentum, Normal(0.9, "high"), When("optimizer.kind", ("sgd",))
    )
    kinds = dimension("optimizer.kind", KINDS, Uniform())
    whole = concentration(space_of(dimension("optimizer.momentum", momentum, Normal(0.9, "high"))))
    both = concentration(space_of(kinds, rate, sometimes))
    assert both == pytest.approx(alone + whole / 2, abs=0.15)


def test_it_is_the_same_every_time() -> None:
    space = space_of(dimension("optimizer.lr", RATE, Normal(0.1, "medium")))
    assert concentration(space) == concentration(space)
