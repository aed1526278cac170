"""Tests that whatever shows a trial's values calls an optimizer of timm's by its own name."""

from __future__ import annotations

import json

import pytest

from search.learning.search import Search
from search.reporting import terminal
from search.reporting.content import Report
from search.reporting.gather import report_of
from search.reporting.page import data_of, page
from search.reporting.values import side_by_side, tiles
from tests.search.planted_searches import Run, planted

FIXED = {"optimizer.kind": {"choice": ["sgd", "timm"]}, "optimizer.name": {"choice": ["muon", "lion"]}}


@pytest.fixture(scope="module")
def search(tmp_path_factory: pytest.TempPathFactory) -> Search:
    space = {"name": "wide", "overrides": FIXED}
    storage = tmp_path_factory.mktemp("searches")
    return Search(
        planted(storage, lambda at, luck: Run(luck.uniform(0.5, 0.9), 0.95), trials=8, seed=3, space=space)
    )


@pytest.fixture(scope="module")
def report(search: Search) -> Report:
    return report_of(search)


def own_names(search: Search) -> set[str]:
    return {"sgd" if each.optimizer_name is None else each.optimizer_name for each in search.trials}


def test_the_table_of_trials_has_the_optimizer_and_the_sentence_of_each(search: Search) -> None:
    frame = search.trials_frame()
    assert set(frame["optimizer.kind"]) == own_names(search) > {"sgd"}
    assert "optimizer.name" not in frame
    assert list(frame["sentence"]) == [each.sentence for each in search.trials]


def test_show_prints_the_sentence_of_each_trial_as_json(
    search: Search, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal.show(search, as_json=True)
    trials = json.loads(capsys.readouterr().out)["trials"]
    assert [each["sentence"] for each in trials] == [each.sentence for each in search.trials]
    assert any("Muon at" in each["sentence"] or "Lion at" in each["sentence"] for each in trials)


def test_a_belief_and_its_condition_name_what_timm_stands_for(report: Report) -> None:
    beliefs = {each.name: each for each in report.beliefs}
    assert {each.says for each in beliefs["optimizer.kind"].curves} == {"one of sgd, timm's muon or lion"}
    assert beliefs["optimizer.lr[timm]"].when == "optimizer.kind is timm's muon or lion"


def test_the_axes_of_the_report_and_its_cards_have_own_names(search: Search, report: Report) -> None:
    (tile,) = (each for each in tiles(report) if each.belief.name == "optimizer.kind")
    names = sorted(own_names(search) - {"sgd"})
    assert [each.text for each in tile.plot.x.ticks] == ["sgd", " or ".join(names)]
    plot = side_by_side(report)
    assert plot is not None
    assert "timm" not in {each.text for each in plot.labels}
    data = data_of(report)
    at = data["paths"].index("optimizer.kind")
    assert {each[5][at] for each in data["trials"].values()} == own_names(search)


def test_the_reports_table_of_trials_has_own_names(search: Search, report: Report) -> None:
    table = page(report).partition('<table id="table">')[2].partition("</table>")[0]
    assert all(f"<td>{name}</td>" in table for name in own_names(search))
    assert "<td>timm</td>" not in table
