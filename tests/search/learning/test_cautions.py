"""Tests what is said of a search's answer before it is trusted: of images, test score and best trials."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest

from search.followers.conclusions import conclusion
from search.learning.cautions import advised, joined, recorded
from search.learning.search import Search
from search.record.folder import Caution, Verified, facts_text, keep_findings
from search.record.home import FACTS_FILE, FINDINGS_FILE, VERIFICATION_FILE
from search.reporting import terminal
from search.reporting.gather import report_of
from search.reporting.page import page
from search.results.export import exported
from search.study.objective import Objective
from search.study.study import Finalists
from tests.search.reporting.small_reports import VERIFICATION
from tests.search.reporting.test_terminal import INFO, search_folder, values
from tests.trainable.small_runs import data_set
from trainable.checks.finding import Finding
from trainable.curves.levels import TOLD_APART, least_accuracy
from trainable.data import DataInfo
from trainable.data.assembly import from_arrays
from trainable.recipe.provenance import Verification
from trainable.recipe.yamlfile import read_recipe
from trainable.tasks.classification.checks.labels import check_labels
from trainable.training.score_gap import ScoreGap, words_of

IMAGES = INFO.validation_images
OTHER_KIND = Caution(
    kind="data", about="parts alike", what="told apart", means="test images are of another kind", do="look"
)
LEAK = Caution(
    kind="data", about="duplicates", what="9 validation images are also in train", means="m", do="d"
)


def of_mistakes(folder: Path, *mistakes: int) -> Search:
    """Return a search with a finished trial of so many mistakes each."""
    return Search(
        search_folder(folder, {at: (1 - each / IMAGES, values()) for at, each in enumerate(mistakes)})
    )


def of_images(search: Search, info: DataInfo) -> None:
    """Write that a search's images are other ones."""
    (search.folder / FACTS_FILE).write_bytes(facts_text(search.facts, info))


def verified_with(folder: Path, found: Verification) -> None:
    verified = Verified(trial=0, recipe="0" * 12, found=found)
    (folder / VERIFICATION_FILE).write_text(verified.model_dump_json())


def kinds(search: Search) -> list[str]:
    return [each.kind for each in search.cautions]


def test_a_ceiling_says_how_many_trials_make_no_mistake_and_what_the_part_then_knows(tmp_path: Path) -> None:
    (caution,) = of_mistakes(tmp_path, 0, 0, 3, 40).cautions
    assert caution.kind == "ceiling"
    assert caution.what.startswith(
        "2 trials make no mistake on 5,000 validation images, and 1 more fewer than 6"
    )
    assert (
        f"cannot tell recipes apart (the true accuracy of the best is above {least_accuracy(0, IMAGES):.4f})"
        in (caution.what)
    )
    assert "val_loss" in caution.do


@pytest.mark.parametrize("mistakes", [0, 1, 5, 5_000])
def test_the_least_accuracy_is_that_of_the_exact_interval(mistakes: int) -> None:
    exact = binomtest(IMAGES - mistakes, IMAGES).proportion_ci(0.95, method="exact")
    assert least_accuracy(mistakes, IMAGES) == pytest.approx(exact.low, abs=1e-12)


def test_two_recipes_are_told_apart_from_the_number_of_images_on_that_mc_nemar_s_test_needs() -> None:
    assert binomtest(TOLD_APART, TOLD_APART).pvalue < 0.05 <= binomtest(TOLD_APART - 1, TOLD_APART - 1).pvalue


@pytest.mark.parametrize(
    ("mistakes", "expected"),
    [((5, 90), ["ceiling"]), ((6, 90), []), ((60, 65), ["luck"]), ((60, 66), []), ((60,), [])],
)
def test_trials_that_differ_by_fewer_images_than_the_test_needs_are_a_ceiling_or_luck(
    mistakes: tuple[int, ...], expected: list[str], tmp_path: Path
) -> None:
    assert kinds(of_mistakes(tmp_path, *mistakes)) == expected


def test_few_images_are_no_ceiling_for_a_score_far_from_perfect(tmp_path: Path) -> None:
    search = of_mistakes(tmp_path, 1_000, 2_000)  # of 20 images four are wrong
    of_images(search, replace(INFO, validation_images=20))
    assert kinds(Search(tmp_path)) == ["luck"]


def test_a_search_for_the_lowest_loss_has_no_ceiling_of_mistakes(tmp_path: Path) -> None:
    search = of_mistakes(tmp_path, 0, 0)
    vars(search)["progress"] = replace(search.progress, objective="val_loss")
    assert kinds(search) == []


def test_masks_have_no_mistakes_by_image(tmp_path: Path) -> None:
    search = of_mistakes(tmp_path, 0, 0)
    of_images(search, replace(INFO, task_kind="segmentation", pixel_counts=(1,) * 10))
    assert kinds(Search(tmp_path)) == []


def test_a_verified_search_says_the_gap_and_no_longer_that_its_best_is_luck(tmp_path: Path) -> None:
    of_mistakes(tmp_path, 60, 61)
    verified_with(tmp_path, VERIFICATION)
    (gap,) = Search(tmp_path).cautions
    assert (gap.kind, gap.what) == ("gap", VERIFICATION.parts_differ)


@pytest.mark.parametrize("found", [(), (OTHER_KIND,)])
def test_causes_of_a_gap_that_stand_above_it_are_not_said_again(
    found: tuple[Caution, ...], tmp_path: Path
) -> None:
    of_mistakes(tmp_path, 60, 61)
    gap = words_of([ScoreGap("accuracy", 0.9, 0.8, -0.12, -0.08)], [OTHER_KIND.seen])
    verified_with(tmp_path, VERIFICATION.model_copy(update={"parts_differ": gap}))
    keep_findings(tmp_path, found)
    cautions = Search(tmp_path).cautions
    assert cautions[-1].kind == "gap"
    assert sum(OTHER_KIND.what in each.what for each in cautions) == 1
    assert all("more than chance allows" in each.what for each in cautions if each.kind == "gap")


def test_what_to_type_against_luck_names_the_search_and_not_what_it_does_already(tmp_path: Path) -> None:
    search = of_mistakes(tmp_path, 60, 61)
    (luck,) = search.cautions
    assert f"tunebook export {search.home.address} -o" in luck.do
    assert "finalists: {top: 3" in luck.do
    finalists = {"finalists": {"top": 2, "seeds": 3}}
    search.study.with_values(finalists).write(tmp_path)
    with_finalists = replace(search.progress, finalists=Finalists(top=2, seeds=3))
    vars(again := Search(tmp_path))["progress"] = with_finalists
    assert "finalists" not in again.cautions[0].do


def test_copies_of_training_images_are_left_out_before_a_ceiling_is_acted_on(tmp_path: Path) -> None:
    of_mistakes(tmp_path, 0)
    keep_findings(tmp_path, (LEAK,))
    (_, ceiling) = Search(tmp_path).cautions
    assert ceiling.do.startswith("leave the copies out first")


def test_every_page_has_what_was_found_about_the_images_above_the_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = of_mistakes(tmp_path, 60).folder
    keep_findings(folder, (OTHER_KIND,))
    search = Search(folder)
    terminal.show(search, as_json=False)
    shown = capsys.readouterr().out
    assert shown.index(OTHER_KIND.means) < shown.index("best val_accuracy")
    terminal.show(search, as_json=True)
    assert json.loads(capsys.readouterr().out)["cautions"] == [OTHER_KIND.model_dump()]
    report = report_of(search)
    assert report.cautions == (OTHER_KIND,)
    html = page(report)
    assert html.index(OTHER_KIND.means) < html.index('class="facts"')
    answer = conclusion(search.summary).answer
    assert answer.index("**Best**") < answer.index(OTHER_KIND.means) < answer.index("**What it trains**")
    exported(search).write(tmp_path / "best.yaml")
    assert f"# - {OTHER_KIND.means}\n" in (tmp_path / "best.yaml").read_text().partition("version:")[0]
    assert read_recipe(tmp_path / "best.yaml").digest() == search.trials[0].digest


@pytest.mark.parametrize("content", [None, "", "[{}]", '[{"kind": "weather", "about": "a", "what": "b"}]'])
def test_a_search_without_readable_findings_has_none(content: str | None, tmp_path: Path) -> None:
    folder = of_mistakes(tmp_path, 60).folder
    if content is not None:
        (folder / FINDINGS_FILE).write_text(content)
    assert Search(folder).cautions == ()


def test_a_later_look_replaces_what_the_same_check_has_found() -> None:
    again = OTHER_KIND.model_copy(update={"what": "told apart with more images"})
    assert joined((LEAK, OTHER_KIND), (again,)) == (LEAK, again)


@pytest.mark.parametrize(("metric", "count"), [("val_accuracy", 1), ("val_balanced_accuracy", 0)])
def test_advice_that_the_search_follows_already_is_not_recorded(metric: Any, count: int) -> None:
    advice = "search for objective.metric: val_balanced_accuracy"
    found = [Finding("accuracy", "warning", "one class is most", "guessing is good", advice)]
    assert len(recorded(found, Objective(metric=metric))) == count


def test_what_a_search_does_already_is_read_as_passed_and_not_proposed() -> None:
    found = Finding(
        "class balance", "warning", "from 3 to 90", "m", "search for objective.metric: val_balanced_accuracy"
    )
    (alike,) = advised([found], Objective(metric="val_balanced_accuracy"))
    assert (alike.level, alike.do) == ("passed", "")
    assert "val_balanced_accuracy, the objective, counts classes alike" in alike.what
    assert list(advised([found], Objective())) == [found]


def test_weights_are_not_proposed_to_trials_that_start_from_some() -> None:
    labels = np.array([0] * 40 + [1] * 2)
    part = np.zeros((len(labels), 8, 8, 1), np.uint8), labels
    data = from_arrays(part, part)
    found = [each for each in check_labels(data) if "hardly exist" in each.means]
    assert found
    for pretrained in (False, True):
        (read,) = advised(found, Objective(), pretrained=pretrained)
        assert ("pretrained weights" in read.do) != pretrained
        assert read.do.startswith("gather more of them, raise data.validation_fraction")


def test_a_field_that_splits_is_not_proposed_for_parts_of_the_data_s_own() -> None:
    (small,) = (each for each in check_labels(data_set(64, 40)) if each.check == "validation size")
    assert "raise data.validation_fraction" in small.do
    (own,) = recorded([small], Objective(), split_here=False)
    assert own.do == "move images into the validation part, or gather more images"
