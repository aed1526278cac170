import re
from typing import Any

import pytest

from spaces.catalog.overrides import Fixed, Varying, WrittenPrior, in_study, parse, parse_all, path_of
from spaces.domains import Choice, Domain, Float, Integer, SpaceError
from spaces.priors import Normal, Prior, Uniform, Weights
from spaces.rules.rules import RULES
from trainable.errors import Fault
from trainable.recipe import Recipe

NAMES = [rule.name for rule in RULES]


@pytest.mark.parametrize(
    ("written", "domain"),
    [
        ({"uniform": [0, 1]}, Float(0.0, 1.0)),
        ({"log": [0.01, 1.0]}, Float(0.01, 1.0, log=True)),
        ({"int": [1, 3]}, Integer(1, 3)),
        ({"int_log": [16, 256]}, Integer(16, 256, log=True)),
        ({"choice": ["none", None, 0.5, True]}, Choice(("none", None, 0.5, True))),
    ],
)
def test_a_domain_alone_is_drawn_from_evenly(written: dict[str, Any], domain: Domain) -> None:
    assert parse(written) == Varying(domain)
    assert Varying(domain).prior_in(domain) == Uniform()


@pytest.mark.parametrize("value", [0.1, None, "sgd", True])
def test_a_value_is_fixed(value: Any) -> None:
    assert parse({"fixed": value}) == Fixed(value)


@pytest.mark.parametrize(
    ("written", "varying"),
    [
        ({"prior": 0.1}, Varying(None, WrittenPrior(0.1, "medium"))),
        ({"prior": 0.1, "confidence": "high"}, Varying(None, WrittenPrior(0.1, "high"))),
        ({"prior": None}, Varying(None, WrittenPrior(None, "medium"))),
        (
            {"log": [0.01, 1.0], "prior": 0.1, "confidence": "low"},
            Varying(Float(0.01, 1.0, log=True), WrittenPrior(0.1, "low")),
        ),
        ({"choice": ["sgd", "adamw"], "weights": [3, 1]}, Varying(Choice(("sgd", "adamw")), Weights((3, 1)))),
        (
            {"choice": ["sgd", "adamw"], "prior": "adamw"},
            Varying(Choice(("sgd", "adamw")), WrittenPrior("adamw")),
        ),
    ],
)
def test_what_is_believed_stands_beside_a_domain_or_alone(written: dict[str, Any], varying: Varying) -> None:
    assert parse(written) == varying


@pytest.mark.parametrize(
    ("varying", "domain", "prior"),
    [
        (Varying(None, WrittenPrior(0.1, "high")), Float(0.01, 1.0, log=True), Normal(0.1, "high")),
        (Varying(None, WrittenPrior(3)), Integer(1, 9), Normal(3.0, "medium")),
        (Varying(None, WrittenPrior("b", "low")), Choice(("a", "b", "c")), Weights((1.0, 2.0, 1.0))),
        (Varying(None, Weights((3, 1))), Choice(("a", "b")), Weights((3, 1))),
    ],
)
def test_a_belief_becomes_a_prior_of_the_fields_domain(
    varying: Varying, domain: Domain, prior: Prior
) -> None:
    assert varying.prior_in(domain) == prior


def test_whole_numbers_become_real_ones_in_a_real_range() -> None:
    parsed = parse({"uniform": [0, 1]})
    assert isinstance(parsed, Varying)
    assert isinstance(parsed.domain, Float)
    assert [type(end) for end in parsed.domain.extremes()] == [float, float]


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (0.1, "got 0.1; a single value is written {fixed: value}"),
        ({}, "got {}"),
        ({"log": [0.1, 1.0], "int": [1, 2]}, "got log and int together"),
        ({"fixed": 0.1, "prior": 0.1}, "got fixed and prior together"),
        ({"confidence": "high"}, "confidence needs a prior"),
        ({"prior": 0.1, "confidence": "sure"}, "confidence to be one of low, medium, high, got 'sure'"),
        ({"prior": 0.1, "confidence": ["high"]}, "to be one of low, medium, high, got ['high']"),
        ({"lg": [0.1, 1.0]}, "expected {uniform|log|int|int_log: [low, high]}, {choice: [option"),
        ({"lg": [0.1, 1.0]}, "got 'lg'; did you mean log?"),
        ({"chioce": ["a"]}, "got 'chioce'; did you mean choice?"),
        ({"prior": [0.1]}, "expected numbers, words, true, false or null as options, got [0.1]"),
        ({"log": [0.01, 1.0], "prior": 2.0}, "expected a prior within 0.01 to 1, log, got 2"),
        ({"choice": ["a", "b"], "prior": "c"}, "expected a prior within one of a, b, got c"),
        ({"choice": ["a", "b"], "weights": [1]}, "expected a weight for each of the 2 options, got 1"),
        ({"choice": ["a", "b"], "weights": [1, 0]}, "expected weights above 0, got 0"),
        ({"choice": ["a", "b"], "weights": "ab"}, "expected weights: [number, ...], got 'ab'"),
        ({"choice": ["a", "b"], "weights": [1, 2], "prior": "a"}, "weights stand beside choice"),
        ({"weights": [1, 2]}, "weights stand beside choice: [option, ...], and without a prior"),
        ({"lr": {"log": [0.1, 1.0]}}, "got 'lr'; fields of a section are written with dots, as optimizer.lr"),
        ({"log": 0.1}, "expected log: [low, high], got 0.1"),
        ({"int": [1, 2, 3]}, "expected int: [low, high], got [1, 2, 3]"),
        ({"uniform": "ab"}, "expected uniform: [low, high], got 'ab'"),
        ({"log": ["1e-3", 1.0]}, "expected two finite numbers, got '1e-3'"),
        ({"int": [1, 2.5]}, "expected whole numbers, got 2.5"),
        ({"choice": "sgd"}, "expected choice: [option, ...], got 'sgd'"),
        ({"choice": []}, "expected at least one option, got none"),
        ({"fixed": [1, 2]}, "expected numbers, words, true, false or null as options, got [1, 2]"),
        ({"log": [0.1, 0.01]}, "expected low < high, got low 0.1, high 0.01"),
    ],
)
def test_what_is_no_domain_is_refused(written: Any, message: str) -> None:
    with pytest.raises(SpaceError, match=re.escape(message)):
        parse(written)


def test_what_varies_and_what_is_fixed_are_separated() -> None:
    overrides = {"optimizer.lr": {"log": [0.01, 1.0]}, "optimizer.momentum": {"fixed": 0.8}}
    varying, fixed = parse_all(overrides, Recipe(), frozenset(), NAMES)
    assert varying == {"optimizer.lr": Varying(Float(0.01, 1.0, log=True))}
    assert fixed == {"optimizer.momentum": 0.8}


def test_a_variant_may_be_named_and_fixed_by_itself() -> None:
    overrides = {"optimizer.lr[sgd]": {"fixed": 0.1}, "optimizer.lr[adamw]": {"prior": 0.001}}
    varying, fixed = parse_all(overrides, Recipe(), frozenset(), NAMES)
    assert varying["optimizer.lr[sgd]"] == Varying(Choice((0.1,)))
    assert varying["optimizer.lr[adamw]"] == Varying(None, WrittenPrior(0.001))
    assert not fixed
    assert [path_of(name) for name in varying] == ["optimizer.lr", "optimizer.lr"]


def test_a_variant_and_its_whole_path_are_not_both_written() -> None:
    overrides = {"optimizer.lr[sgd]": {"prior": 0.1}, "optimizer.lr": {"log": [0.01, 1.0]}}
    with pytest.raises(SpaceError, match=r"overrides\.optimizer\.lr\[sgd\]: optimizer\.lr is written too"):
        parse_all(overrides, Recipe(), frozenset(), NAMES)


@pytest.mark.parametrize(
    ("fault", "overridden", "path"),
    [
        ("optimizer.lr", {"optimizer.lr"}, "space.overrides.optimizer.lr"),
        ("optimizer.lr[sgd]", {"optimizer.lr"}, "space.overrides.optimizer.lr"),
        ("optimizer.lr[sgd]", {"optimizer.lr[sgd]", "optimizer.kind"}, "space.overrides.optimizer.lr[sgd]"),
        ("optimizer.lr", {"optimizer.lr[sgd]"}, "space.overrides.optimizer.lr[sgd]"),
        ("optimizer.lr", {"optimizer.lr[sgd]", "optimizer.lr[adamw]"}, "optimizer.lr"),
        ("optimizer.kind", {"optimizer.lr"}, "optimizer.kind"),
    ],
)
def test_a_fault_is_reported_at_its_path_in_the_study(fault: str, overridden: set[str], path: str) -> None:
    with pytest.raises(SpaceError) as caught, in_study(overridden):
        raise SpaceError([Fault(fault, "is wrong")])
    assert caught.value.faults == (Fault(path, "is wrong"),)


def test_all_faults_come_at_once_each_at_its_path_in_the_study() -> None:
    overrides = {
        "optimizer.weight_decay": {"log": [0.1, 0.01]},
        "optimizer.lr": {"log": [0.01, 1.0]},
        "loop.batch_size": {"pow": [4, 6]},
    }
    with pytest.raises(SpaceError) as caught:
        parse_all(overrides, Recipe(), frozenset({"optimizer.lr"}), NAMES)
    faults = {fault.path: fault.message for fault in caught.value.faults}
    assert faults["space.overrides.optimizer.weight_decay"] == "expected low < high, got low 0.1, high 0.01"
    assert "is pinned to 0.1 in base and overridden here" in faults["space.overrides.optimizer.lr"]
    assert "got 'pow'" in faults["space.overrides.loop.batch_size"]


def test_unknown_names_are_reported_beside_all_other_faults() -> None:
    overrides = {
        "optimizer.lr": {"lg": [0.1, 1.0]},
        "optimizer.momentumm": {"prior": 0.9},
        "augmentation.mixng.alpha": {"log": [0.1, 1.0]},
        "optimizer.weight_decay[lion]": {"prior": 0.1},
        "augmentation.crop": {"choice": ["none", "pad"]},
        "regularisation.clip_norm": {"log": [0.1, 10.0]},
        "loop.batch_size": {"choice": [64, 128]},
    }
    with pytest.raises(SpaceError) as caught:
        parse_all(overrides, Recipe(), frozenset({"loop.batch_size"}), NAMES)
    faults = [(fault.path.removeprefix("space.overrides."), fault.message) for fault in caught.value.faults]
    assert [path for path, _ in faults] == list(overrides)
    messages = dict(faults)
    assert messages["optimizer.momentumm"].startswith("no field 'momentumm' in optimizer; known: kind, lr")
    assert messages["augmentation.mixng.alpha"].startswith("no field 'mixng' in augmentation; known: crop")
    assert "write regularisation.clipping.kind: norm" in messages["regularisation.clip_norm"]
    assert messages["optimizer.weight_decay[lion]"].startswith("no such variant of optimizer.weight_decay")


def test_options_of_a_section_are_written_at_its_kind() -> None:
    with pytest.raises(SpaceError, match=r"augmentation\.crop: is a section: write augmentation\.crop\.kind"):
        parse_all({"augmentation.crop": {"choice": ["none", "pad"]}}, Recipe(), frozenset(), NAMES)


def test_a_field_of_any_kind_may_be_written() -> None:
    overrides = {"schedule.gamma": {"log": [0.1, 0.9]}, "model.layer_rates.lowest": {"prior": 0.1}}
    varying, _ = parse_all(overrides, Recipe(), frozenset(), NAMES)
    assert set(varying) == set(overrides)


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("data.image_size", "cannot be compared"),
        ("data", "cannot be compared"),
        ("task.kind", "cannot be compared"),
        ("loop.epochs", "budget.epochs"),
        ("loop.seed", "a seed is luck"),
        ("provenance.trial", "changes no run"),
        ("version", "changes no run"),
    ],
)
@pytest.mark.parametrize("written", [{"int": [1, 2]}, {"fixed": 1}, {"prior": 1}])
def test_what_makes_trials_incomparable_can_never_vary(path: str, why: str, written: dict[str, Any]) -> None:
    with pytest.raises(SpaceError, match=rf"space\.overrides\.{path}: can never vary: .*{why}"):
        parse_all({path: written}, Recipe(), frozenset(), NAMES)


def test_other_fields_of_the_loop_may_vary() -> None:
    varying, _ = parse_all({"loop.batch_size": {"int_log": [16, 64]}}, Recipe(), frozenset(), NAMES)
    assert varying == {"loop.batch_size": Varying(Integer(16, 64, log=True))}
