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
from search.learning.cautions import cautions_about, for_objective, recorded
from search.learning.search import Search
from search.record.folder import Caution, Verified, facts_text, keep_findings
from search.record.home import FACTS_FILE, FINDINGS_FILE, VERIFICATION_FILE
from search.reporting import terminal
from search.reporting.gather import report_of
from search.reporting.page import page
from search.results.export import exported
from search.study.study import Finalists
from tests.search.reporting.small_reports import VERIFICATION
from tests.search.reporting.test_terminal import INFO, search_folder, values
from tests.trainable.small_runs import data_set
from trainable.checks.finding import Finding, advised, causes_of_gaps, failed, joined, keep, kept
from trainable.curves.levels import TOLD_APART, least_accuracy
from trainable.data import DataInfo
from trainable.data.assembly import from_arrays
from trainable.errors import UserError
from trainable.recipe import Recipe
from trainable.recipe.provenance import Verification
from trainable.recipe.yamlfile import read_recipe
from trainable.tasks.classification.checks.labels import check_labels

METRIC = "val_accuracy"
IMAGES = INFO.validation_images
OTHER_KIND = Caution(
    kind="data",
    about="parts alike",
    what="told apart",
    means="test images are from another camera",
    do="look",
)
LEAK = Caution(kind="data", about="duplicates", what="9 copies", means="m", do="d", copies_in="validation")


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
@pytest.mark.parametrize("causes", [(), (OTHER_KIND.means,)])
def test_causes_of_a_gap_that_stand_above_it_are_not_said_again(
    found: tuple[Caution, ...], causes: tuple[str, ...], tmp_path: Path
) -> None:
    of_mistakes(tmp_path, 60, 61)
    verified_with(tmp_path, VERIFICATION.model_copy(update={"causes": causes}))
    keep_findings(tmp_path, found)
    cautions = Search(tmp_path).cautions
    gap = cautions[-1]
    assert (gap.kind, gap.what) == ("gap", VERIFICATION.parts_differ)
    assert sum(OTHER_KIND.means in each.brief for each in cautions) == bool(found or causes)
    assert ("perhaps" in gap.means) == (not found and not causes)
    assert bool(gap.do) == (not found)


def test_a_gap_of_an_earlier_version_has_its_causes_in_its_words_and_gets_no_others(tmp_path: Path) -> None:
    of_mistakes(tmp_path, 60, 61)
    tree = Verified(trial=0, recipe="0" * 12, found=VERIFICATION).model_dump(mode="json")
    del tree["found"]["causes"]
    (tmp_path / VERIFICATION_FILE).write_text(json.dumps(tree))
    (gap,) = Search(tmp_path).cautions
    assert str(gap) == VERIFICATION.parts_differ


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


@pytest.mark.parametrize("part", ["validation", "test", None])
def test_copies_of_training_images_are_left_out_before_a_ceiling_is_acted_on(
    part: Any, tmp_path: Path
) -> None:
    of_mistakes(tmp_path, 0)
    keep_findings(tmp_path, (LEAK.model_copy(update={"copies_in": part}),))
    (_, ceiling) = Search(tmp_path).cautions
    assert ceiling.do.startswith("leave the copies out first") == (part == "validation")


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
    head = (tmp_path / "best.yaml").read_text().partition("version:")[0]
    assert head.index(OTHER_KIND.means) < head.index("# Score: ")
    assert read_recipe(tmp_path / "best.yaml").digest() == search.trials[0].digest


def test_images_that_are_sound_are_told_from_those_that_nobody_looked_at(tmp_path: Path) -> None:
    folder = of_mistakes(tmp_path, 60).folder
    (folder / FINDINGS_FILE).unlink(missing_ok=True)
    assert (Search(folder).cautions, Search(folder).images_checked) == ((), False)
    keep_findings(folder, ())
    assert (Search(folder).cautions, Search(folder).images_checked) == ((), True)


@pytest.mark.parametrize("content", ["", "[{}]", '[{"kind": "weather", "about": "a", "what": "b"}]'])
def test_damaged_findings_are_reported_with_what_to_do(content: str, tmp_path: Path) -> None:
    folder = of_mistakes(tmp_path, 60).folder
    (folder / FINDINGS_FILE).write_text(content)
    with pytest.raises(
        UserError, match=r"findings.json: not what a search writes: .*remove it, and `tunebook"
    ):
        _ = Search(folder).cautions


def test_a_later_look_replaces_what_the_same_check_has_found() -> None:
    again = OTHER_KIND.model_copy(update={"what": "told apart with more images"})
    assert joined((LEAK, OTHER_KIND), (again,)) == (LEAK, again)


def test_a_check_that_failed_is_named_until_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (crash,) = failed("parts alike", ValueError("no images of class 7"))
    (crashed,) = recorded([crash], Recipe(), INFO, METRIC)
    assert crashed.brief == "parts alike: the check fails: ValueError: no images of class 7"
    assert causes_of_gaps([crashed]) == ()
    assert recorded([], Recipe(), INFO, METRIC, earlier=[crashed, OTHER_KIND]) == (OTHER_KIND,)
    assert recorded([crash], Recipe(), INFO, METRIC, earlier=[OTHER_KIND]) == (OTHER_KIND,)


OF_ACCURACY = Finding("accuracy", "warning", "one class is most", "guessing is good", "do", of_accuracy=True)


@pytest.mark.parametrize("found", [OF_ACCURACY, replace(OF_ACCURACY, of_accuracy=False)])
@pytest.mark.parametrize("metric", ["val_accuracy", "val_balanced_accuracy"])
def test_what_accuracy_hides_is_no_fault_of_a_search_that_counts_classes_alike(
    metric: Any, found: Finding
) -> None:
    good = found.of_accuracy and metric == "val_balanced_accuracy"
    assert len(cautions_about([found], Recipe(), INFO, metric)) == (not good)
    if not good:
        assert for_objective(found, metric) == found
        return
    alike = for_objective(found, metric)
    assert (alike.level, alike.do) == ("passed", "")
    assert "val_balanced_accuracy, the objective, counts classes alike" in alike.what


def test_weights_are_not_proposed_to_trials_that_start_from_some() -> None:
    labels = np.array([0] * 40 + [1] * 2)
    part = np.zeros((len(labels), 8, 8, 1), np.uint8), labels
    data = from_arrays(part, part)
    (found,) = (each for each in check_labels(data) if "hardly exist" in each.means)
    recipes = Recipe(), Recipe().with_values({"model.weights": "weights.safetensors"})
    from_scratch, pretrained = (advised(found, each, data.info).do for each in recipes)
    assert pretrained == "gather more of them, or move images into the validation part"
    assert from_scratch == f"{pretrained}, or start from pretrained weights (model.weights)"


def test_a_field_that_splits_is_proposed_where_it_has_split_and_not_for_parts_of_the_data_s_own() -> None:
    data = data_set(64, 40)
    (small,) = (each for each in check_labels(data) if each.check == "validation size")
    does = [
        advised(small, Recipe().with_values({"data.validation_fraction": fraction}), data.info).do
        for fraction in (40 / 104, 0.9)
    ]
    assert does == [
        f"{first}, or gather more images"
        for first in ("raise data.validation_fraction", "move images into the validation part")
    ]


def test_what_is_kept_of_images_is_read_by_each_recipe_for_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    data = data_set(64, 40)
    keep(data.info, check_labels(data))
    (small,) = (each for each in kept(data.info) or () if each.check == "validation size")
    split_here = Recipe().with_values({"data.validation_fraction": 40 / 104})
    assert advised(small, split_here, data.info).do.startswith("raise data.validation_fraction")
    assert advised(small, Recipe(), data.info).do.startswith("move images")
