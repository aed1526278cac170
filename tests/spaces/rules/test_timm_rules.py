"""Tests which of timm's optimizers are tried, and what is believed of their rates and decays."""

from typing import Any

import pytest

from spaces.catalog.catalog import make_space
from spaces.facts import Facts
from spaces.priors import Normal
from spaces.rules.rules import RULES
from tests.spaces.rules.rule_facts import asked, centre, settled, shares, silent
from tests.spaces.small_facts import base_recipe, digits_facts, imagenet_facts

TIMM = {"optimizer__kind": "timm"}


def short_facts(**changes: Any) -> Facts:
    """Return the facts of a run that sees 30,000 images, with changes."""
    return imagenet_facts(train_images=3_000, epochs=10, **changes)


def test_short_runs_of_convolutional_nets_from_scratch_often_take_an_optimizer_of_timms() -> None:
    assert shares(asked("optimizer.kind", short_facts()))["timm"] == 0.4
    for facts in (imagenet_facts(), short_facts(attention=True), short_facts(pretrained=True)):
        found = shares(asked("optimizer.kind", facts))
        assert found["timm"] == pytest.approx(0.125)
        assert min(found.values()) > 0.0


def test_muon_leads_in_short_runs_and_is_tried_from_scratch_only() -> None:
    assert shares(asked("optimizer.name", short_facts())) == pytest.approx({"nadamw": 0.2, "muon": 0.8})
    for facts in (imagenet_facts(), short_facts(attention=True)):
        assert shares(asked("optimizer.name", facts)) == pytest.approx({"nadamw": 0.5, "muon": 0.5})
    facts = imagenet_facts(train_images=5_000, pretrained=True)
    assert silent("optimizer.name", facts)
    base = base_recipe(facts, model__weights="net.safetensors")
    space = make_space("document", base, frozenset({"model.weights"}), facts, {})
    drawn = space.sample(lambda dimension: 0.99 if dimension.path == "optimizer.kind" else 0.5)
    assert drawn["optimizer.kind"] == "timm"
    assert space.recipe(drawn).get("optimizer.name") == "nadamw"


def test_a_person_may_still_fine_tune_with_muon() -> None:
    facts = imagenet_facts(train_images=5_000, pretrained=True)
    pins = {"optimizer__kind": "timm", "optimizer__name": "muon", "model__weights": "net.safetensors"}
    pinned = frozenset(path.replace("__", ".") for path in pins)
    space = make_space("document", base_recipe(facts, **pins), pinned, facts, {})
    assert space.recipe(space.own).get("optimizer.name") == "muon"


@pytest.mark.parametrize(
    ("facts", "factor"),
    [
        (digits_facts(), 2.0),
        (imagenet_facts(), 1.0),
        (digits_facts(attention=True), 1.0),
        (digits_facts(pretrained=True), 1.0),
    ],
)
def test_rates_are_adamws_but_muons_in_short_runs(facts: Facts, factor: float) -> None:
    for name, times in (("nadamw", 1.0), ("muon", factor)):
        found = asked("optimizer.lr[timm]", facts, **TIMM, optimizer__name=name)
        assert centre(found) == pytest.approx(times * centre(asked("optimizer.lr[adamw]", facts)))


def test_a_sweep_with_an_optimizer_of_timms_says_what_its_rate_is() -> None:
    facts = digits_facts(lr_band=(0.01, 0.04), lr_band_kind="timm")
    assert centre(asked("optimizer.lr[timm]", facts, **TIMM, optimizer__name="muon")) == pytest.approx(0.02)


def test_muons_decay_is_its_papers() -> None:
    for name, decay in (("nadamw", 0.02), ("muon", 0.1)):
        values = {**TIMM, "optimizer__name": name}
        assert centre(asked("optimizer.weight_decay[timm]", digits_facts(), **values)) == decay


def test_a_space_holds_each_names_beliefs() -> None:
    facts = digits_facts()
    space = make_space("document", base_recipe(facts), frozenset(), facts, {})
    (decay,) = [each for each in space.dimensions if each.name == "optimizer.weight_decay[timm]"]
    for name, expected in (("nadamw", 0.02), ("muon", 0.1)):
        prior = decay.prior({"optimizer.kind": "timm", "optimizer.name": name})
        assert isinstance(prior, Normal)
        assert prior.centre == expected


def test_an_optimizer_that_no_rule_knows_gets_adams_rate() -> None:
    recipe = settled(digits_facts(), **TIMM, optimizer__name="lion")
    assert recipe["optimizer.lr"] == 1e-3
    assert sum(rule.name == "optimizer.lr[timm]" for rule in RULES) == 1
