import re
from typing import Any

import pytest

from spaces.domains import Choice, Domain, Float, Integer, SpaceError
from spaces.overrides import Fixed, parse, parse_all
from trainable.recipe import Recipe


@pytest.mark.parametrize(
    ("written", "parsed"),
    [
        ({"uniform": [0, 1]}, Float(0.0, 1.0)),
        ({"log": [0.01, 1.0]}, Float(0.01, 1.0, log=True)),
        ({"int": [1, 3]}, Integer(1, 3)),
        ({"int_log": [16, 256]}, Integer(16, 256, log=True)),
        ({"choice": ["none", None, 0.5, True]}, Choice(("none", None, 0.5, True))),
        ({"fixed": 0.1}, Fixed(0.1)),
        ({"fixed": None}, Fixed(None)),
    ],
)
def test_each_form_is_parsed(written: dict[str, Any], parsed: Domain | Fixed) -> None:
    assert parse(written) == parsed


def test_whole_numbers_become_real_ones_in_a_real_range() -> None:
    domain = parse({"uniform": [0, 1]})
    assert isinstance(domain, Float)
    assert [type(end) for end in domain.extremes()] == [float, float]


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (0.1, "got 0.1; a single value is written {fixed: value}"),
        ({}, "got {}"),
        ({"log": [0.1, 1.0], "int": [1, 2]}, "a single value is written"),
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


def test_domains_and_fixed_values_are_told_apart() -> None:
    overrides = {"optimizer.lr": {"log": [0.01, 1.0]}, "optimizer.momentum": {"fixed": 0.8}}
    domains, fixed = parse_all(overrides, Recipe(), frozenset())
    assert domains == {"optimizer.lr": Float(0.01, 1.0, log=True)}
    assert fixed == {"optimizer.momentum": 0.8}


def test_all_faults_come_at_once_each_at_its_place_in_the_study() -> None:
    overrides = {
        "optimizer.weight_decay": {"log": [0.1, 0.01]},
        "optimizer.lr": {"log": [0.01, 1.0]},
        "loop.batch_size": {"pow": [4, 6]},
    }
    with pytest.raises(SpaceError) as caught:
        parse_all(overrides, Recipe(), frozenset({"optimizer.lr"}))
    faults = {fault.path: fault.message for fault in caught.value.faults}
    assert faults["space.overrides.optimizer.weight_decay"] == "expected low < high, got low 0.1, high 0.01"
    assert "is pinned to 0.1 in base and overridden here" in faults["space.overrides.optimizer.lr"]
    assert "got 'pow'" in faults["space.overrides.loop.batch_size"]


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
@pytest.mark.parametrize("written", [{"int": [1, 2]}, {"fixed": 1}])
def test_what_makes_trials_incomparable_can_never_vary(path: str, why: str, written: dict[str, Any]) -> None:
    with pytest.raises(SpaceError, match=rf"space\.overrides\.{path}: can never vary: .*{why}"):
        parse_all({path: written}, Recipe(), frozenset())


def test_other_fields_of_the_loop_may_vary() -> None:
    domains, _ = parse_all({"loop.batch_size": {"int_log": [16, 64]}}, Recipe(), frozenset())
    assert domains == {"loop.batch_size": Integer(16, 64, log=True)}
