"""Tests what a report gathers: against the search's own objects, for searches in every state."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import sem, t

from search.learning.refine import refine
from search.learning.search import Search
from search.learning.standings import standings
from search.record.cursor import Cursor, write_cursor
from search.record.home import CURSOR_FILE, EVENTS_FILE, REPORT_DATA_FILE
from search.reporting.content import Report
from search.reporting.gather import parts_of, report_of
from spaces.domains import fraction_of, shown
from spaces.priors import density, quantile_value
from tests.search.learning.landscapes import RATE
from tests.search.planted_searches import planted
from tests.search.reporting.small_reports import BELIEVED, VERIFICATION, hill, planted_report
from tests.search.reporting.test_terminal import search_folder
from tests.search.small_events import replace_journal
from trainable.diagnosis import image_interval
from trainable.training.metrics import wilson_interval

SCHEMA = Path("docs/report.schema.json")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a search of 24 trials."""
    storage = tmp_path_factory.mktemp("gathered")
    return planted(storage, hill, trials=24, sampler__kind="random", **BELIEVED)


@pytest.fixture(scope="module")
def report(folder: Path) -> Report:
    return report_of(Search(folder))


def test_a_report_is_the_same_after_it_was_written_and_read(whole: Report) -> None:
    assert Report.model_validate_json(whole.model_dump_json()) == whole


def test_the_schema_in_the_documents_is_that_of_the_report() -> None:
    assert json.loads(SCHEMA.read_text()) == Report.model_json_schema()


def test_what_cannot_be_computed_here_is_taken_from_the_report_of_the_same_trials(
    folder: Path, report: Report, whole: Report
) -> None:
    """The images and weights of a planted search are nowhere."""
    assert "answers" in report.left_out
    left_out = {name: why for name, why in report.left_out.items() if name != "answers"}
    of_driver = report.model_copy(update={"answers": whole.answers, "left_out": left_out})
    kept = folder / REPORT_DATA_FILE
    try:
        kept.write_text(of_driver.model_dump_json())
        again = report_of(Search(folder))
        assert (again.answers, again.left_out) == (whole.answers, left_out)
        kept.write_text(of_driver.model_copy(update={"trials": report.trials[:-1]}).model_dump_json())
        assert report_of(Search(folder)).left_out == report.left_out
        kept.write_text("{}")
        assert report_of(Search(folder)).left_out == report.left_out
    finally:
        kept.unlink()


def test_a_report_fits_the_schema_in_the_documents(whole: Report) -> None:
    import jsonschema

    jsonschema.validate(json.loads(whole.model_dump_json()), json.loads(SCHEMA.read_text()))


def test_the_answer_is_that_of_the_summary(folder: Path, report: Report) -> None:
    summary, answer = Search(folder).summary, report.answer
    own = summary.trials[0].metrics[summary.objective]
    assert summary.best is not None
    assert (answer.best, answer.own_score) == (summary.best.id, own)
    assert answer.gain == pytest.approx(summary.best.metrics[summary.objective] - own)
    assert (answer.epochs_trained, answer.saved) == (summary.epochs_trained, summary.saved)
    assert answer.commands[-1].startswith("tunebook train ")
    assert f"export {folder}" in answer.commands[0]  # best.yaml is not there


def test_the_time_of_a_search_is_accounted_for_unless_an_earlier_version_drove_it(
    report: Report, tmp_path: Path
) -> None:
    assert report.turnaround is not None
    assert report.turnaround.starting_seconds >= 2.0
    former = report_of(Search(search_folder(tmp_path, {})))
    assert former.turnaround is None
    assert former.left_out["turnaround"].startswith("an earlier version of tunebook drove this search")


def test_places_are_the_standings_of_the_trials(folder: Path, report: Report) -> None:
    expected = standings(Search(folder).progress)
    assert {each.id: each.place for each in report.trials if each.place is not None} == expected


def test_scores_by_epoch_are_those_of_the_journal(folder: Path, report: Report) -> None:
    search = Search(folder)
    for row, trial in zip(report.trials, search.trials, strict=True):
        assert row.scores == trial.scores("val_accuracy")
        assert row.epochs == trial.epochs


def test_a_belief_is_drawn_where_the_rule_draws_values(folder: Path, report: Report) -> None:
    """The share of draws in a part of the range is the area of the belief over it."""
    dimension = next(each for each in Search(folder).space.dimensions if each.name == RATE)
    (belief,) = [each for each in report.beliefs if each.name == RATE]
    prior, (curve,) = dimension.prior({}), belief.curves
    draws = [
        fraction_of(dimension.domain, quantile_value(dimension.domain, prior, at / 500)) for at in range(500)
    ]
    below = sum(each < 0.5 for each in draws) / len(draws)
    half = len(curve.density) // 2
    assert sum(curve.density[:half]) / sum(curve.density) == pytest.approx(below, abs=0.03)
    assert max(curve.density) == pytest.approx(
        max(
            density(dimension.domain, prior, quantile_value(dimension.domain, prior, at / 500))
            for at in range(500)
        ),
        rel=0.05,
    )


def test_positions_are_the_values_in_their_domain(folder: Path, report: Report) -> None:
    search = Search(folder)
    for belief, dimension in zip(report.beliefs, search.space.dimensions, strict=True):
        values = [search.trials[trial].values[dimension.path] for trial in belief.trials]
        expected = [fraction_of(dimension.domain, each) for each in values]
        assert belief.positions == pytest.approx(expected, abs=1e-5)


def test_verdicts_stand_beside_their_rules(folder: Path, report: Report) -> None:
    verdicts = Search(folder).verdicts
    assert verdicts is not None
    expected = {each.rule: (each.word, each.effect) for each in verdicts.rules}
    found = {each.name: (each.verdict, each.effect) for each in report.beliefs if each.verdict is not None}
    assert found == {name: expected[name] for name in found}
    assert found


def test_the_next_round_is_that_of_refine(folder: Path, report: Report) -> None:
    expected = refine(Search(folder))
    assert report.next_round is not None
    assert [each.field for each in report.next_round.changes] == [each.field for each in expected.edits]
    assert [each.seen for each in report.next_round.findings] == [each.seen for each in expected.findings]
    steps = [(each.kind, each.do, each.why) for each in report.next_round.steps]
    assert steps
    assert steps == [(each.kind, each.do, each.why) for each in expected.steps]


def test_the_recipe_is_that_of_the_best_trial(folder: Path, report: Report) -> None:
    best = Search(folder).best
    assert best is not None
    assert {each.path for each in report.recipe} == {path for path, _ in best.whole_recipe.leaves()}
    assert {each.path for each in report.recipe if each.varied} == set(best.values)


def test_what_is_missing_is_said(report: Report) -> None:
    assert report.answers is None
    assert report.left_out["answers"] == f"there is no checkpoint of trial {report.answer.best}"
    assert report.left_out["finalists"].startswith("the best trial is not trained again: ")
    assert report.left_out["pruning_audit"].startswith("`tunebook audit-pruning ")


def test_one_trial_makes_a_report(tmp_path: Path) -> None:
    found = planted_report(tmp_path, trials=1)
    assert (len(found.trials), found.answer.best, found.answer.gain) == (1, 0, None)
    assert found.left_out["importances"] == "0 trials can be compared, 20 are needed"


def test_a_search_that_was_killed_before_its_first_trial_makes_a_report(tmp_path: Path) -> None:
    folder = planted(tmp_path, hill, trials=2, **BELIEVED)
    replace_journal(folder, b"".join((folder / EVENTS_FILE).read_bytes().splitlines(keepends=True)[:2]))
    found = report_of(Search(folder))
    assert (found.search.state, found.trials, found.attempts) == ("interrupted", (), ())
    assert found.answer.why_none == "no trial has finished yet"
    assert found.answer.commands == (f"tunebook resume {folder}",)


def test_an_interrupted_search_says_how_it_goes_on(tmp_path: Path) -> None:
    found = planted_report(tmp_path, trials=24, last=3)
    assert found.search.state == "interrupted"
    assert found.answer.commands[0] == f"tunebook resume {tmp_path / 'planted'}"


@pytest.mark.slow("fits many trees")
def test_compared_searches_stand_beside_this_one(folder: Path, report: Report, tmp_path: Path) -> None:
    other = planted(tmp_path, hill, trials=5, sampler__kind="random", seed=1, **BELIEVED)
    (compared,) = report_of(Search(folder), [Search(other)]).compared
    best = Search(other).best
    assert best is not None
    assert (compared.best, compared.trials) == (best.id, 5)
    assert compared.recipe.keys() == dict(best.whole_recipe.leaves()).keys()  # also what was not drawn
    assert compared.recipe[RATE] == shown(best.values[RATE])
    assert compared.progress.steps[-1].trial == best.id


def test_the_interval_of_the_best_score_is_that_of_a_share_of_the_validation_images(
    folder: Path, report: Report
) -> None:
    answer, images = report.answer, Search(folder).info.validation_images
    assert answer.score is not None
    assert (answer.low, answer.high) == wilson_interval(round(answer.score * images), images)
    assert image_interval("val_loss", 0.1, Search(folder).info.task, images) is None


def test_validation_and_test_stand_side_by_side_with_intervals_of_the_same_runs() -> None:
    validation, test = parts_of(VERIFICATION)
    assert (validation.part, validation.metric, test.part, test.metric) == (
        "validation", "val_accuracy", "test", "test_accuracy",
    )  # fmt: skip
    interval = t.interval(0.95, 2, np.mean(VERIFICATION.scores), sem(VERIFICATION.scores))
    assert (test.low, test.high) == pytest.approx(interval)
    assert test.scores == VERIFICATION.scores
    equal = parts_of(VERIFICATION.model_copy(update={"scores": (0.9, 0.9, 0.9)}))[1]
    assert (equal.mean, equal.low, equal.high) == (0.9, None, None)
    assert parts_of(VERIFICATION.model_copy(update={"part": "validation"})) == ()


@pytest.mark.parametrize(
    ("uri", "run"),
    [
        (
            "http://tracker:5000",
            "http://tracker:5000/#/experiments/7/runs/{run}?workflowType=machine_learning",
        ),
        (
            "https://me:***@tracker/sub/",
            "https://tracker/sub/#/experiments/7/runs/{run}?workflowType=machine_learning",
        ),
        ("sqlite:////home/me/mlflow.db", None),
        ("javascript://tracker/%0aalert(1)", None),
    ],
)
def test_the_pages_of_mlflow_are_linked_where_a_server_has_them(
    folder: Path, uri: str, run: str | None
) -> None:
    write_cursor(folder, Cursor(uri=uri, experiment="mine", experiment_id="7", parent_run_id="9f"))
    pages = report_of(Search(folder)).search.mlflow
    (folder / CURSOR_FILE).unlink()
    assert pages is not None
    assert pages.trial == run
    assert (pages.run is None) == (run is None)
    assert pages.command == f"tunebook ui {folder}"
