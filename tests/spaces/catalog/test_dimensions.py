"""Tests what a person wrote over the rules: ranges, beliefs and fixed values, of fields or of one variant."""

from typing import Any

import pytest

from spaces.catalog.catalog import make_space
from spaces.domains import Choice, Float, SpaceError
from spaces.facts import Facts
from spaces.priors import Normal, Uniform, Weights
from spaces.space import Dimension, Space, When
from tests.spaces.small_facts import base_recipe, digits_facts, imagenet_facts

RULE = imagenet_facts()
SGD, ADAMW, LAMB, TIMM = (f"optimizer.lr[{kind}]" for kind in ("sgd", "adamw", "lamb", "timm"))
SMOOTHING = "regularisation.label_smoothing"


def written(overrides: dict[str, Any], facts: Facts = RULE, name: str = "document", **pins: Any) -> Space:
    """Return a space with overrides; values by dotted path (`__` for the dot) are pinned."""
    pinned = frozenset(path.replace("__", ".") for path in pins)
    return make_space(name, base_recipe(facts, **pins), pinned, facts, overrides)


def by_name(space: Space) -> dict[str, Dimension]:
    return {each.name: each for each in space.dimensions}


def fault(overrides: dict[str, Any], **changes: Any) -> tuple[str, str]:
    """Return the path of the one fault, and its message."""
    with pytest.raises(SpaceError) as caught:
        written(overrides, **changes)
    (only,) = caught.value.faults
    return only.path, only.message


def test_what_is_believed_follows_what_was_drawn_before() -> None:
    space = written({})
    decay = by_name(space)["optimizer.weight_decay[sgd]"]
    plain = decay.prior({"optimizer.kind": "sgd", "augmentation.mixing.kind": "none"})
    strong = decay.prior({"optimizer.kind": "sgd", "augmentation.mixing.kind": "cutmix"})
    assert isinstance(plain, Normal)
    assert isinstance(strong, Normal)
    assert strong.centre == pytest.approx(0.7 * plain.centre)
    assert "strong augmentation" in decay.reason_for({"augmentation.mixing.kind": "cutmix"})
    assert "strong augmentation" not in decay.reason_for({"augmentation.mixing.kind": "none"})


def test_a_pin_moves_what_is_believed_of_the_rest() -> None:
    """The warm-up's rule depends on the batch, which is settled and never drawn here."""
    large, small = (written({}, loop__batch_size=batch) for batch in (1024, 64))
    centres = [by_name(space)["schedule.warmup_epochs"].prior({}) for space in (large, small)]
    assert centres == [Normal(5.0, "medium"), Normal(1.0, "medium")]


def test_options_that_would_follow_what_is_drawn_stay_the_settled_ones() -> None:
    """Decays of averages are options, counted in steps of the settled batch, whatever batch is drawn."""
    space = written({"loop.batch_size": {"choice": [64, 256]}})
    decay = by_name(space)["regularisation.averaging.decay"]
    priors = [decay.prior({"loop.batch_size": batch}) for batch in (64, 256)]
    assert priors[0] == priors[1]
    assert isinstance(decay.domain, Choice)
    assert 0.999884 in [round(each, 6) for each in decay.domain.options if isinstance(each, float)]


def test_a_belief_keeps_the_rules_range_and_replaces_its_prior() -> None:
    plain, moved = (by_name(written(each)) for each in ({}, {SGD: {"prior": 0.3, "confidence": "low"}}))
    assert moved[SGD].domain == plain[SGD].domain
    assert moved[SGD].prior({}) == Normal(0.3, "low")
    assert {name: each for name, each in moved.items() if name != SGD} == {
        name: each for name, each in plain.items() if name != SGD
    }


def test_a_belief_of_a_path_is_of_every_variant_that_it_fits() -> None:
    plain, moved = (by_name(written(each)) for each in ({}, {"optimizer.lr": {"prior": 1.0}}))
    assert 1.0 not in plain[ADAMW].domain
    assert moved[SGD].prior({}) == Normal(1.0, "medium")
    assert [moved[name] for name in (ADAMW, LAMB)] == [plain[name] for name in (ADAMW, LAMB)]
    assert moved[ADAMW].prior({}) == plain[ADAMW].prior({})


def test_a_belief_that_fits_no_variant_is_refused_with_the_range_of_each() -> None:
    path, message = fault({"optimizer.lr": {"prior": 1e-9}})
    assert path == "space.overrides.optimizer.lr"
    ranges = "; ".join(f"{name}: {by_name(written({}))[name].domain}" for name in (SGD, ADAMW, LAMB, TIMM))
    advice = "a range of your own may hold it: {log: [low, high], prior: 1e-09}"
    assert message == f"expected a prior within {ranges}; got 1e-09; {advice}"


@pytest.mark.parametrize(("name", "pins"), [(SGD, {}), ("optimizer.lr", {"optimizer__kind": "sgd"})])
def test_a_belief_that_does_not_fit_is_refused_with_the_range(name: str, pins: dict[str, str]) -> None:
    domain = by_name(written({}))[SGD].domain
    assert fault({name: {"prior": 100.0}}, **pins) == (
        f"space.overrides.{name}",
        f"expected a prior within {domain}; got 100; "
        "a range of your own may hold it: {log: [low, high], prior: 100}",
    )


def test_a_belief_of_a_kind_weighs_its_options() -> None:
    kinds = by_name(written({"optimizer.kind": {"prior": "adamw", "confidence": "high"}}))["optimizer.kind"]
    assert kinds.prior({}) == Weights((1.0, 8.0, 1.0, 1.0))


def test_a_belief_lets_a_silent_rule_speak() -> None:
    """The documents saw label smoothing harm small nets: nothing is tried there, unless a person asks."""
    assert SMOOTHING not in by_name(written({}, digits_facts()))
    asked = by_name(written({SMOOTHING: {"prior": 0.1}}, digits_facts()))[SMOOTHING]
    assert 0.1 in asked.domain
    prior = asked.prior({})
    assert isinstance(prior, Weights)
    assert isinstance(asked.domain, Choice)
    assert prior.weights[asked.domain.options.index(0.1)] == max(prior.weights)


def test_a_belief_of_what_quick_fixes_brings_the_rules_of_document() -> None:
    overrides = {"optimizer.weight_decay": {"prior": 1e-4, "confidence": "high"}}
    decay = by_name(written(overrides, name="quick"))["optimizer.weight_decay"]
    assert decay.domain == by_name(written({}))["optimizer.weight_decay[sgd]"].domain


def test_the_first_trial_stays_the_documents_own_whatever_is_believed() -> None:
    beliefs = {
        SGD: {"prior": 0.5, "confidence": "high"},
        "optimizer.kind": {"prior": "adamw"},
        "augmentation.mixing.kind": {"choice": ["none", "cutmix"], "weights": [1, 9]},
        "optimizer.momentum": {"uniform": [0.95, 0.99], "prior": 0.97},
    }
    assert written(beliefs).own == written({}).own


def test_a_range_of_one_variant_leaves_the_others_to_their_rules() -> None:
    plain, moved = (by_name(written(each)) for each in ({}, {SGD: {"log": [0.05, 0.5], "prior": 0.2}}))
    assert list(moved) == list(plain)
    assert moved[SGD].domain == Float(0.05, 0.5, log=True)
    assert moved[SGD].when == When("optimizer.kind", ("sgd",))
    assert moved[SGD].prior({}) == Normal(0.2, "medium")
    assert moved[ADAMW] == plain[ADAMW]


def test_a_range_without_a_belief_is_drawn_from_evenly() -> None:
    assert by_name(written({SGD: {"log": [0.05, 0.5]}}))[SGD].prior({}) == Uniform()


def test_a_fixed_variant_has_one_value_in_every_trial_of_its_kind() -> None:
    space = written({SGD: {"fixed": 0.07}})
    assert by_name(space)[SGD].domain == Choice((0.07,))
    assert space.own["optimizer.lr"] == 0.07
    adam = space.sample(lambda dimension: 0.99 if dimension.path == "optimizer.kind" else 0.5)
    assert adam["optimizer.kind"] != "sgd"
    assert adam["optimizer.lr"] != 0.07


def test_a_field_that_some_kinds_lack_is_fixed_by_a_single_choice() -> None:
    expected = (
        r"overrides\.optimizer\.momentum: is pinned, .* or give it the override {choice: \[0\.8\]} instead"
    )
    with pytest.raises(SpaceError, match=expected):
        written({"optimizer.momentum": {"fixed": 0.8}})
    space = written({"optimizer.momentum": {"choice": [0.8]}})
    assert space.own["optimizer.momentum"] == 0.8
    assert by_name(space)["optimizer.momentum"].when == When("optimizer.kind", ("sgd",))


def test_a_fixed_variant_of_another_kind_leaves_the_first_trial_alone() -> None:
    assert written({ADAMW: {"fixed": 0.07}}).own == written({}).own


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"optimizer.lr[lion]": {"prior": 0.1}}, "no such variant of optimizer.lr; known: "),
        ({"optimizer.momentum[sgd]": {"log": [0.1, 0.9]}}, "known: none"),
        ({"optimizer.lr[lars]": {"prior": 0.3}}, "exists when optimizer.kind is lars"),
        ({"optimizer.lr[lars]": {"log": [0.1, 1]}}, "exists when optimizer.kind is lars"),
        ({"optimizer.sgd_lr": {"prior": 0.1}}, "is adam_then_sgd, which no trial of this"),
        ({"optimizer.eps": {"prior": 1e-8}}, "beside the prior: {log: [low, high], prior: 1e-08}"),
        ({"optimizer": {"prior": 1}}, "is a section; name one of its fields: optimizer.kind"),
        ({"optimizer.kind": {"prior": "lion"}}, "within one of sgd, adamw, lamb, timm; got lion"),
        ({"schedule.gamma": {"log": [0.1, 0.9]}}, "is step or exp or cyclic, which no trial"),
        ({"schedule.gamma": {"fixed": 0.9}}, "fix schedule.kind too, or write {choice: [0.9]}"),
        ({"schedule.gamma": {"fixed": 0.9}, "schedule.kind": {"fixed": "poly"}}, "fixed to poly"),
        ({"model.depth": {"rule": True}}, "write a range: {choice: [8, 14, 20, 32, 44, 56]}"),
        ({"model.depth": {"prior": 14}}, "beside the prior: {choice: [8, 14, 20, 32, 44, 56], prior"),
        ({"loop.workers": {"rule": True}}, "write a range: {int: [low, high]} or {int_log: [low, "),
        ({"evaluation.scales": {"rule": True}}, "it is a list, and cannot vary: write it under"),
        ({"model.freeze_norm": {"rule": True}}, "without BatchNorm, or with attention; write"),
    ],
)
def test_what_cannot_be_placed_is_refused_where_it_is_written(
    overrides: dict[str, Any], message: str
) -> None:
    path = next(iter(overrides))
    found, says = fault(overrides, **({"optimizer__kind": "adamw"} if "eps" in path else {}))
    assert found == f"space.overrides.{path}"
    assert message in says


def test_a_rule_that_is_silent_says_why_and_which_options_there_are() -> None:
    path, message = fault({"augmentation.policy.kind": {"rule": True}}, facts=digits_facts())
    assert path == "space.overrides.augmentation.policy.kind"
    assert "in runs of under 10 epochs, and under 24 px" in message
    assert message.endswith("{choice: [none, randaugment, trivialaugment, autoaugment]}")


def test_a_range_of_ones_own_takes_a_belief_where_no_rule_speaks() -> None:
    space = written({"optimizer.beta2": {"uniform": [0.9, 0.9999], "prior": 0.99, "confidence": "high"}})
    beta = by_name(space)["optimizer.beta2"]
    assert beta.prior({}) == Normal(0.99, "high")
    assert beta.when == When("optimizer.kind", ("adamw", "lamb"))


def test_a_variant_of_a_pinned_kind_may_still_be_named() -> None:
    space = written({SGD: {"prior": 0.3}}, optimizer__kind="sgd")
    assert by_name(space)["optimizer.lr"].prior({}) == Normal(0.3, "medium")
