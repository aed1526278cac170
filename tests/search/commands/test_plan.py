"""Tests the plan of a search in words: which recipe the first trial has, and how each sampler draws."""

from __future__ import annotations

from typing import Any

import pytest

from search.commands.plan import OWN, Plan, first_trial, plan_rows
from search.deciding.finalists import choose_final
from search.deciding.pruning import choose_pruning
from search.study import Study
from spaces.catalog.catalog import NAMES, make_space
from spaces.facts import Facts
from tests.search.small_studies import study_of
from tests.spaces.small_facts import digits_facts, imagenet_facts


def first_of(study: Study, facts: Facts, *, begun: bool = False) -> str:
    space = make_space(
        study.space.name or "document",
        study.base_recipe(),
        frozenset(study.pinned),
        facts,
        study.space.overrides,
    )
    return first_trial(study, space, begun=begun)


def rows_of(study: Study) -> dict[str, str]:
    facts = digits_facts(epochs=study.budget.epochs)
    space = make_space(
        study.space.name or "document",
        study.base_recipe(),
        frozenset(study.pinned),
        facts,
        study.space.overrides,
    )
    pruning = choose_pruning(study, space)
    final = choose_final(study, pruning)
    return dict(plan_rows(Plan(study=study, space=space, pruning=pruning, final=final, facts=facts)))


def sampler_of(study: Study) -> str:
    return rows_of(study)["sampler"]


def test_constraints_are_in_the_plan_where_there_are_any() -> None:
    limited = study_of(objective__constraints={"latency_ms": {"max": 20}, "parameters": {"max": 1e6}})
    assert "constraints" not in rows_of(study_of())
    assert rows_of(limited)["constraints"].startswith("latency_ms at most 20, parameters at most 1,000,000;")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("attention", [False, True])
def test_without_a_sweep_the_first_trial_is_the_documents_own_recipe(name: str, attention: bool) -> None:
    weights: dict[str, Any] = {"base__model.weights": "learnt.safetensors"} if name == "finetune" else {}
    for make in (digits_facts, imagenet_facts):
        facts = make(epochs=20, attention=attention, pretrained=bool(weights))
        assert first_of(study_of(space__name=name, **weights), facts) == OWN


@pytest.mark.parametrize("name", ["document", "quick", "wide"])
def test_a_rate_that_a_sweep_moves_is_shown_with_the_documents(name: str) -> None:
    facts = digits_facts(epochs=20, lr_band=(0.3, 2.0))
    moved = f"{OWN}, with optimizer.lr 0.3 instead of 0.1: as a sweep recommends"
    assert first_of(study_of(space__name=name), facts) == moved
    assert first_of(study_of(space__name=name, **{"base__optimizer.lr": 0.1}), facts) == OWN
    for other in ({"lr_band": (0.01, 2.0)}, {"lr_band_kind": "adamw"}):
        assert first_of(study_of(space__name=name), facts.model_copy(update=other)) == OWN


def test_a_sweep_to_come_is_mentioned_until_it_has_run() -> None:
    study = study_of(space__probes=["lr-find"])
    assert first_of(study, digits_facts(epochs=20)) == f"{OWN}, with a rate that lr-find will recommend"
    assert first_of(study, digits_facts(epochs=20), begun=True) == OWN


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        (
            {"optimizer.kind": {"choice": ["adamw", "lamb"]}},
            ", with optimizer.kind adamw instead of sgd: the first of the study's options",
        ),
        (
            {"optimizer.lr": {"choice": [0.5, 1.0]}},
            ", with optimizer.lr 0.5 instead of 0.1: the first of the study's options",
        ),
        ({"optimizer.lr": {"log": [0.5, 1.0]}}, ""),  # a baseline outside of the range
        ({"optimizer.lr": {"fixed": 0.5}}, ""),
    ],
)
def test_options_without_the_documents_own_are_reported(values: dict[str, Any], wanted: str) -> None:
    assert first_of(study_of(space__overrides=values), digits_facts(epochs=20)) == f"{OWN}{wanted}"


@pytest.mark.parametrize(
    ("kind", "space", "wanted"),
    [
        (
            "auto",
            "document",
            "auto, seed 0: evenly and from the priors, then more and more where a model of all rungs expects "
            "the largest gain, or near the best trials",
        ),
        (
            "mutation",
            "wide",
            "mutation, seed 0: evenly at first, then near the best trials; every fifth trial evenly",
        ),
        (
            "prior-tpe",
            "document",
            "prior-tpe, seed 0: from the priors, then more and more by TPE; every fifth trial evenly",
        ),
        ("tpe", "document", "tpe, seed 0: priors are not used"),
        ("random", "document", "random, seed 0: from the priors"),
        ("qmc", "document", "qmc, seed 0: from the priors, spread by a Sobol sequence"),
        ("prior-tpe", "wide", "prior-tpe, seed 0: by TPE, since there are no priors"),
        ("tpe", "wide", "tpe, seed 0: priors are not used"),
        ("random", "wide", "random, seed 0: evenly, since there are no priors"),
        ("qmc", "wide", "qmc, seed 0: spread by a Sobol sequence, since there are no priors"),
    ],
)
def test_each_sampler_says_what_it_draws_from(kind: str, space: str, wanted: str) -> None:
    assert sampler_of(study_of(sampler__kind=kind, space__name=space)) == wanted
