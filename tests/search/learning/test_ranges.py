"""Tests which ranges the next study widens, cuts or leaves."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from search.learning.proposals import below, wider, written
from search.learning.refine import Draft, refine
from search.learning.search import Search
from search.record.folder import read_facts
from search.record.home import EVENTS_FILE
from search.record.journal import Journal, TrialEvent, read
from search.study import read_study
from spaces.domains import Choice, Float, Integer, fraction_of
from tests.search.learning.landscapes import DECAY, RANGES, RATE, SMALL, At, after, left, towards
from tests.search.planted_searches import Landscape, Run, planted
from tests.search.small_events import replace_journal
from trainable.recipe import Recipe


@pytest.mark.slow("draws many trials")
def test_a_variant_s_range_replaces_what_was_believed_of_all(tmp_path: Path) -> None:
    kinds = {"optimizer.kind": {"choice": ["sgd", "adamw"]}, RATE: {"prior": 0.3, "confidence": "low"}}
    name = f"{RATE}[sgd]"
    folder = planted(tmp_path, towards(1.3, name), trials=40, space__name="quick", space__overrides=kinds)
    found = refine(Search(folder))
    assert found.study is not None
    overrides = found.study.space.overrides
    assert list(overrides) == ["optimizer.kind", name, f"{RATE}[adamw]"]
    assert overrides[name]["log"][1] > 47.0
    assert overrides[f"{RATE}[adamw]"] == kinds[RATE]


def test_a_variant_s_own_range_is_replaced_and_its_neighbours_stay(tmp_path: Path) -> None:
    sgd, adamw = (f"{RATE}[{kind}]" for kind in ("sgd", "adamw"))
    kinds = {
        sgd: {"log": [0.01, 1.0]},
        "optimizer.kind": {"choice": ["sgd", "adamw"]},
        adamw: {"log": [0.001, 0.1]},
    }
    folder = planted(tmp_path, towards(1.3, sgd), trials=32, space__name="quick", space__overrides=kinds)
    found = refine(Search(folder))
    assert [each.field for each in found.edits] == [sgd]
    assert found.study is not None
    overrides = found.study.space.overrides
    assert list(overrides) == list(kinds)
    assert overrides[sgd]["log"] == [0.01, 10.0]
    assert {name: overrides[name] for name in kinds if name != sgd} == {
        name: kinds[name] for name in kinds if name != sgd
    }


def test_the_rules_of_the_other_variants_stay_where_one_variant_gets_a_range(tmp_path: Path) -> None:
    kinds: dict[str, Any] = {"optimizer.kind": {"choice": ["sgd", "adamw", "lamb"]}, DECAY: {"rule": True}}
    name = f"{DECAY}[sgd]"
    folder = planted(tmp_path, towards(0.5), trials=4, space__name="quick", space__overrides=kinds)
    facts, info = read_facts(folder)
    draft = Draft(read_study(folder / "study.yaml"), facts, info)
    changed = draft.changed(f"space.overrides.{name}", {"log": [1e-6, 1e-2]})
    overrides = changed.study.space.overrides
    assert overrides == {
        "optimizer.kind": kinds["optimizer.kind"],
        name: {"log": [1e-6, 1e-2]},
        f"{DECAY}[adamw]": {"rule": True},
        f"{DECAY}[lamb]": {"rule": True},
    }
    assert {each.name for each in changed.space.dimensions} == {each.name for each in draft.space.dimensions}


# Even draws come near a range's end and never reach it: the documented recipe alone does here
EVEN: dict[str, Any] = {**SMALL, "sampler__kind": "random"}


def beyond(rate: float) -> Landscape:
    """Make trials the better, the nearer they come to the upper end, and the first one best of all."""

    def landscape(at: At, luck: random.Random) -> Run:
        run = towards(1.3)(at, luck)
        best = at[RATE] >= 1.0 - 1e-9
        return Run(run.accuracy + 0.02 * best, run.train + 0.02 * best)

    return landscape


@pytest.mark.parametrize(
    ("own", "expected"), [(0.29, [0.001, 1.0]), (3.0, [0.001, 3.0]), (0.123456, [0.001, 1.0])]
)
def test_a_best_value_beyond_an_end_counts_as_at_that_end_and_is_included(
    tmp_path: Path, own: float, expected: list[float]
) -> None:
    study = {**EVEN, "space__overrides": {RATE: {"log": [0.001, 0.1]}}}
    folder = planted(tmp_path, beyond(own), **study)
    moved(folder, own)
    found = refine(Search(folder))
    assert found.summary.best is not None
    assert (found.summary.best.id, found.summary.best.values[RATE]) == (0, own)
    assert [(each.kind, each.about) for each in found.findings] == [("edge", RATE)]
    assert "outside of 0.001 to 0.1" in found.findings[0].seen
    assert found.study is not None
    assert found.study.space.overrides[RATE]["log"] == expected
    assert found.study.space.overrides[RATE]["prior"] == float(f"{own:.3g}")


def moved(folder: Path, own: float) -> None:
    """Rewrite the journal with another rate in the documented recipe."""
    events = read(folder / EVENTS_FILE)
    replace_journal(folder)
    with Journal(folder) as journal:
        for event in events:
            journal.append(with_rate(event, own) if isinstance(event, TrialEvent) and event.own else event)


def with_rate(event: TrialEvent, rate: float) -> TrialEvent:
    recipe = Recipe.from_tree(event.recipe or {}).with_values({RATE: rate})
    values = {**event.values, RATE: rate}
    return event.model_copy(update={"values": values, "recipe": recipe.tree(), "digest": recipe.digest()})


def test_a_best_value_beyond_an_end_without_a_trend_towards_it_is_left(tmp_path: Path) -> None:
    study = {**EVEN, "space__overrides": {RATE: {"log": [0.001, 0.1]}}}

    def landscape(at: At, luck: random.Random) -> Run:
        best = at[RATE] >= 1.0 - 1e-9
        return Run(0.8 + 0.05 * best + luck.gauss(0.0, 0.002), 0.85)

    found = refine(Search(planted(tmp_path, landscape, **study)))
    assert found.edits == ()
    assert "may be luck" in left(found)[RATE]


def test_a_rule_that_the_trials_contradict_is_named_where_nothing_is_changed_for_it(tmp_path: Path) -> None:
    wrong = {"log": [0.01, 1.0], "prior": 0.01, "confidence": "medium"}
    study = {**SMALL, "space__overrides": {**RANGES, RATE: wrong}}
    found = refine(Search(planted(tmp_path, towards(0.6), trials=40, sampler__kind="qmc", **study)))
    assert f"space.overrides.{RATE}" not in after(found)
    assert "contradict the rule (around 0.01" in left(found)[RATE]


def test_a_loss_is_better_towards_the_end_where_it_is_lower(tmp_path: Path) -> None:
    found = refine(Search(planted(tmp_path, towards(1.3), objective__metric="val_loss", **SMALL)))
    assert [(each.kind, each.about) for each in found.findings] == [("edge", RATE)]
    assert "upper end" in found.findings[0].seen


def test_a_range_grows_only_as_far_as_a_recipe_allows(tmp_path: Path) -> None:
    momentum = "optimizer.momentum"
    study = {**SMALL, "space__overrides": {**RANGES, momentum: {"uniform": [0.8, 0.98]}}}
    found = refine(Search(planted(tmp_path, towards(1.3, momentum), **study)))
    assert found.study is not None
    assert found.study.space.overrides[momentum]["uniform"] == [0.8, 0.991]


def test_a_range_that_no_recipe_lets_grow_is_left(tmp_path: Path) -> None:
    smoothing = "regularisation.label_smoothing"
    study = {**SMALL, "space__overrides": {**RANGES, smoothing: {"uniform": [0.0, 0.2]}}}
    found = refine(Search(planted(tmp_path, towards(-0.3, smoothing), **study)))
    assert found.findings == ()
    assert found.study is None
    assert "is refused" in left(found)[smoothing]


def test_two_findings_on_one_range_make_one_change(tmp_path: Path) -> None:
    def landscape(at: At, luck: random.Random) -> Run:
        run = towards(-0.3)(at, luck)
        return Run(run.accuracy, run.train, diverges=at[RATE] > 0.6)

    # A sampler that leaves what diverges has too few such trials for a finding.
    found = refine(Search(planted(tmp_path, landscape, **SMALL, sampler__kind="prior-tpe")))
    assert [each.kind for each in found.findings] == ["diverged", "edge"]
    (edit,) = found.edits
    assert edit.before == "0.01 to 1, log"
    assert found.study is not None
    low, high = found.study.space.overrides[RATE]["log"]
    assert 0.001 <= low < 0.005
    assert 0.05 < high < 0.2


def test_good_trials_among_those_that_diverged_keep_their_rates(tmp_path: Path) -> None:
    def landscape(at: At, luck: random.Random) -> Run:
        run = towards(0.95)(at, luck)
        return Run(run.accuracy, run.train, diverges=at[RATE] > 0.6 and luck.random() < 0.6)

    found = refine(Search(planted(tmp_path, landscape, trials=32, **SMALL)))
    assert [(each.kind, each.about) for each in found.findings] == [("diverged", "trials")]
    assert "regularisation.clipping.kind" in {each.field for each in found.edits}


def test_the_winner_s_own_recipe_is_mended_where_it_lies_outside_the_space(tmp_path: Path) -> None:
    first = {RATE: 0.2, "regularisation.clipping.kind": "norm", "schedule.warmup_epochs": 2.0}

    place = fraction_of(Float(0.01, 1.0, log=True), 0.2)

    def landscape(at: At, luck: random.Random) -> Run:
        accuracy = 0.9 if at[RATE] == pytest.approx(place) else 0.8 + luck.gauss(0.0, 0.002)
        return Run(accuracy, accuracy + 0.03, diverges=accuracy < 0.9 and luck.random() < 0.4)

    folder = planted(tmp_path, landscape, trials=32, first=[first], finalists="none", **SMALL)
    best = Search(folder).best
    assert best is not None
    assert best.first is not None
    assert "regularisation.clipping.kind" in best.first.outside
    found = refine(Search(folder))
    assert ("diverged", "trials") in [(each.kind, each.about) for each in found.findings]
    assert "regularisation.clipping.kind" not in {each.field for each in found.edits}
    assert "regularisation.clipping.kind" not in {each.about for each in found.left_alone}


@pytest.mark.parametrize(
    ("domain", "end", "expected"),
    [
        (Float(0.01, 1.0, log=True), "upper", [10.0, 3.16, 1.78, 1.33]),
        (Float(0.01, 1.0, log=True), "lower", [0.001, 0.00316, 0.00562, 0.0075]),
        (Float(1e-6, 1.0, log=True), "upper", [10.0, 3.16, 1.78, 1.33]),
        (Float(0.0, 0.2), "upper", [0.3, 0.25, 0.225, 0.213]),
        (Float(0.0, 0.2), "lower", [-0.1, -0.05, -0.025, -0.0125]),
        (Integer(5, 15), "upper", [20, 18, 17, 16]),
        (Integer(1, 3, log=True), "lower", []),
        (Integer(32, 256, log=True), "upper", [725, 431, 332, 292]),
    ],
)
def test_a_range_grows_at_one_end_by_half_its_length_at_most(
    domain: Float | Integer, end: Any, expected: list[float]
) -> None:
    grown = wider(domain, end)
    moved = [each.high if end == "upper" else each.low for each in grown]
    others = {each.low if end == "upper" else each.high for each in grown}
    assert moved == expected
    assert others <= {domain.low if end == "upper" else domain.high}


def test_a_cut_range_keeps_the_value_that_it_is_cut_at() -> None:
    assert below(Float(0.001, 1.0, log=True), 0.12345).high == 0.124
    assert below(Float(0.001, 0.1234, log=True), 0.12335).high == 0.1234


@pytest.mark.parametrize(
    ("domain", "value", "expected"),
    [
        (Float(0.1, 1.0, log=True), 0.2, {"log": [0.1, 1.0], "prior": 0.2, "confidence": "medium"}),
        (Float(0.1, 1.0), 2.0, {"uniform": [0.1, 1.0]}),
        (Integer(1, 9), 3, {"int": [1, 9], "prior": 3, "confidence": "medium"}),
        (Choice((None, 0.5)), None, {"choice": [None, 0.5], "prior": None, "confidence": "medium"}),
    ],
)
def test_a_range_is_written_with_what_is_believed_within_it(
    domain: Any, value: Any, expected: dict[str, Any]
) -> None:
    assert written(domain, value) == expected
