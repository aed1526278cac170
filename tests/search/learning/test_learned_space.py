"""Tests what a study learns from earlier searches, what it leaves as it was, and what is refused."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from search.learning.learned_space import earlier_searches, learned_space, space_of
from search.record.home import EVENTS_FILE, FACTS_FILE
from search.study import Study, StudyError
from search.study.space import LearnedSpace, build_space
from spaces.facts import Facts
from spaces.priors import Normal
from spaces.settled import space_from, tree_of
from spaces.space import Dimension, Space
from tests.search.learning.landscapes import RATE, towards
from tests.search.planted_searches import Images, planted
from tests.spaces.small_facts import digits_facts

SGD: dict[str, Any] = {"base": {"optimizer.kind": "sgd"}}
SAME = digits_facts(train_images=Images().train)  # the facts of the earlier searches


def study_of(earlier: Sequence[Path | str], **values: Any) -> Study:
    tree = {"data": {"path": "digits"}, "space": {"learn_from": list(map(str, earlier))}, **SGD}
    return Study.from_tree(tree).with_values(
        {path.replace("__", "."): value for path, value in values.items()}
    )


def learned(study: Study, facts: Facts | None = None) -> LearnedSpace:
    return space_of(study, SAME if facts is None else facts, Images().info)


def plain(study: Study) -> Space:
    return build_space(study, SAME, Images().info)


def rate_of(space: Space) -> Dimension:
    (found,) = (each for each in space.dimensions if each.path == RATE)
    return found


def centre(space: Space) -> float:
    prior = rate_of(space).prior(space.own)
    assert isinstance(prior, Normal)
    return prior.centre


def faults_of(study: Study) -> list[tuple[str, str]]:
    with pytest.raises(StudyError) as refused:
        earlier_searches(study)
    return [(fault.path, fault.message) for fault in refused.value.faults]


@pytest.fixture(scope="module")
def high(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A search in which rates near the upper end of the rule's range were the best."""
    return planted(tmp_path_factory.mktemp("high"), towards(0.85), trials=40, space__name="quick", **SGD)


@pytest.fixture(scope="module")
def low(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A search in which rates near the lower end of the rule's range were the best."""
    return planted(tmp_path_factory.mktemp("low"), towards(0.15), trials=40, space__name="quick", **SGD)


def test_the_belief_moves_to_where_an_earlier_search_was_best_and_says_why(high: Path, low: Path) -> None:
    study = study_of([high])
    found = learned(study)
    assert centre(found.space) > 1.3 * centre(plain(study)) > 1.3 * centre(learned(study_of([low])).space)
    reason = rate_of(found.space).reason_for(found.space.own)
    assert reason.startswith("learned from 1 of space.learn_from: planted expects ")
    assert reason.endswith(rate_of(plain(study)).reason_for(found.space.own))
    (line,) = found.lines
    assert line.startswith(f"{high}: 40 trials teach 1 of 1 field that both vary (weight 100%")


def test_ranges_the_documented_recipe_and_fields_that_it_did_not_vary_stay(high: Path) -> None:
    study = study_of([high])
    before, after = plain(study), learned(study).space
    assert after.own == before.own
    assert [each.domain for each in after.dimensions] == [each.domain for each in before.dimensions]
    assert [each for each in after.dimensions if each.path != RATE] == [
        each for each in before.dimensions if each.path != RATE
    ]


def test_what_moves_is_the_distance_from_the_rule_so_other_lengths_are_accounted_for(high: Path) -> None:
    study = study_of([high], budget__epochs=200)
    facts = SAME.model_copy(update={"epochs": 200})
    before = centre(build_space(study, facts, Images().info))
    short = study_of([high])
    shift = centre(learned(short).space) / centre(plain(short))
    assert before < centre(plain(short))
    assert 1.1 < centre(learned(study, facts).space) / before < shift


def test_a_search_that_is_less_alike_moves_the_belief_less(high: Path) -> None:
    study = study_of([high])
    far = SAME.model_copy(update={"classes": 10_000})
    assert rate_of(build_space(study, far, Images().info)) == rate_of(plain(study))
    assert centre(plain(study)) < centre(learned(study, far).space) < centre(learned(study).space)


@pytest.mark.slow("learns from many searches")
def test_searches_that_differ_leave_a_wide_belief_between_them(high: Path, low: Path) -> None:
    both = learned(study_of([high, low])).space
    assert centre(learned(study_of([low])).space) < centre(both) < centre(learned(study_of([high])).space)
    assert "they differ by ±" in rate_of(both).reason_for(both.own)


@pytest.mark.parametrize(
    "written", [{"log": [0.1, 10.0], "prior": 0.2}, {"prior": 0.5, "confidence": "high"}, {"fixed": 0.3}]
)
def test_what_a_person_believes_always_wins(high: Path, written: dict[str, Any]) -> None:
    study = study_of([high], space__overrides={RATE: written})
    assert learned(study).space == plain(study)


def test_a_range_that_a_person_wrote_without_a_belief_gets_one(high: Path) -> None:
    study = study_of([high], space__overrides={RATE: {"log": [0.1, 100.0]}})
    space = learned(study).space
    assert rate_of(space).domain == rate_of(plain(study)).domain
    assert rate_of(space).reason_for(space.own).endswith("; the range: written in the study")


def test_a_rate_of_one_optimizer_says_nothing_of_another_one(high: Path) -> None:
    study = study_of([high], base={"optimizer.kind": "adamw"})
    found = learned(study)
    assert found.space == plain(study)
    assert found.lines == (f"{high}: nothing is learned: it varies none of the fields that are free here",)


def test_a_rule_that_a_sweep_moved_is_not_compared_with_one_that_none_moved(high: Path) -> None:
    swept = SAME.model_copy(update={"lr_band": (0.2, 20.0), "lr_band_kind": "sgd"})
    bare = study_of([high], space__overrides={RATE: {"log": [0.01, 100.0]}})
    assert expected(learned(study_of([high]), swept)) == expected(learned(bare))
    assert centre(build_space(study_of([high]), swept, Images().info)) > 1.5 * centre(plain(study_of([high])))


def expected(found: LearnedSpace) -> str:
    """Return the rate that the earlier search is said to expect."""
    (rate,) = re.findall(r"planted expects (\S+)", rate_of(found.space).reason_for(found.space.own))
    return str(rate)


def test_trials_that_repeat_others_or_lie_outside_the_space_teach_nothing(tmp_path: Path) -> None:
    folder = planted(
        tmp_path,
        towards(0.85),
        space__name="quick",
        finalists={"top": 2, "seeds": 2},
        first=[{"optimizer.lr": 1e5}, {"optimizer.lr": 0.3}],
        **SGD,
    )
    (earlier,) = earlier_searches(study_of([folder]))
    trials = earlier.record.trials
    assert sum(each.is_repeat for each in trials) == 4
    assert trials[1].first is not None
    assert trials[1].first.outside
    taught = [each.id for each in trials if not each.is_repeat and each.id != 1]
    assert [each.trial for each in earlier.observed] == taught


def test_a_search_in_which_nothing_varies_teaches_nothing(tmp_path: Path) -> None:
    base = {"optimizer.kind": "sgd", "optimizer.lr": 0.1}
    empty = planted(tmp_path / "empty", towards(0.85), trials=10, space__name="quick", base=base)
    found = learned(study_of([empty]))
    assert found.lines == (f"{empty}: nothing is learned: nothing varies in it",)


def test_too_few_trials_and_mere_luck_teach_nothing_and_the_line_says_so(tmp_path: Path) -> None:
    few = planted(tmp_path / "few", towards(0.85), trials=5, space__name="quick", **SGD)
    luck = planted(tmp_path / "luck", towards(0.85, "no such field"), trials=40, space__name="quick", **SGD)
    study = study_of([few, luck])
    found = learned(study)
    assert found.space == plain(study)
    assert found.lines == (
        f"{few}: nothing is learned: only 5 of its trials have a result, and at least 8 are needed",
        f"{luck}: nothing is learned: luck explains the scores of its 40 trials as well as their values do",
    )


def test_what_was_learned_is_part_of_the_space_that_the_journal_holds(high: Path) -> None:
    space = learned(study_of([high])).space
    assert space_from(tree_of(space)) == space


def test_the_same_searches_teach_the_same_again(high: Path, low: Path) -> None:
    study = study_of([high, low])
    earlier = earlier_searches(study)
    first = learned_space(study, SAME, Images().info, earlier)
    assert learned(study) == first == learned_space(study, SAME, Images().info, earlier)


def test_each_folder_that_is_no_search_is_named_by_its_place(high: Path, tmp_path: Path) -> None:
    empty, damaged = tmp_path / "empty", tmp_path / "damaged"
    empty.mkdir()
    shutil.copytree(high, damaged)
    lines = (damaged / EVENTS_FILE).read_text().splitlines(keepends=True)
    (damaged / EVENTS_FILE).write_text("".join(lines[:5] + lines[6:]))
    faults = faults_of(study_of([tmp_path / "none", high, empty, damaged]))
    assert [path for path, _ in faults] == [f"space.learn_from.{at}" for at in (0, 2, 3)]
    assert faults[0][1] == f"{tmp_path / 'none'}: no such folder"
    assert "not a search folder" in faults[1][1]
    assert EVENTS_FILE in faults[2][1]


@pytest.mark.parametrize("written", ["searches/me", "./searches/me", "searches/me/"])
def test_a_search_cannot_learn_from_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str
) -> None:
    monkeypatch.chdir(tmp_path)
    study = study_of([written], name="me")
    assert faults_of(study) == [("space.learn_from.0", f"{written}: is this search itself; leave it out")]


def test_a_recipe_in_place_of_a_search_is_refused_and_says_where_it_belongs(tmp_path: Path) -> None:
    recipe = tmp_path / "best.yaml"
    recipe.write_text("version: 2\n")
    assert faults_of(study_of([recipe])) == [
        ("space.learn_from.0", f"{recipe}: is a file; give a search's folder, or write a recipe in first")
    ]


def test_a_journal_of_another_format_is_refused(high: Path, tmp_path: Path) -> None:
    old = tmp_path / "old"
    shutil.copytree(high, old)
    (old / EVENTS_FILE).write_text('{"event": "search", "format": 1}\n')
    ((path, _),) = faults_of(study_of([old]))
    assert path == "space.learn_from.0"


def test_another_objective_is_refused_and_both_are_named(tmp_path: Path, high: Path) -> None:
    ((path, message),) = faults_of(study_of([high], objective__metric="val_loss"))
    assert path == "space.learn_from.0"
    assert "its objective is val_accuracy (max), that of this study is val_loss (min)" in message


def test_a_search_of_which_no_trial_ended_is_refused(tmp_path: Path) -> None:
    begun = planted(tmp_path, towards(0.5), last=0, **SGD)
    ((_, message),) = faults_of(study_of([begun]))
    assert message == f"{begun}: no trial of this search has ended, so there is nothing to learn"


def test_facts_that_are_missing_are_named(high: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(high, copy)
    (copy / FACTS_FILE).unlink()
    ((_, message),) = faults_of(study_of([copy]))
    assert FACTS_FILE in message


def test_a_search_that_is_named_twice_is_refused(high: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(high, copy)
    assert faults_of(study_of([high, copy])) == [
        ("space.learn_from.1", f"{copy}: is the search {high} again; leave it out")
    ]


def test_paths_are_absolute_in_the_study_that_a_search_stores(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    found = study_of(["old", "s3://bucket/old"]).resolved("new").space.learn_from
    assert found == (str(tmp_path / "old"), "s3://bucket/old")
