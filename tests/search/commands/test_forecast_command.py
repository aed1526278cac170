"""Tests whose recipes are tried for a forecast, and what `search --dry-run` says of it."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from search.commands.forecast import Prospect, keep_beside
from search.deciding.forecast import Forecast
from search.facts.beside_trials import last_beside
from search.facts.hardware import Hardware, Node, PerTrial
from search.learning.search import Search
from search.record.home import Home
from search.running.prepare import decide, load
from tests.search.command_line import Tunebook
from tests.search.planted_searches import Run, planted
from tests.search.small_studies import study_of


def level(at: Mapping[str, float], luck: random.Random) -> Run:
    return Run(accuracy=0.9, train=0.95)


def test_the_recipes_of_the_first_trials_are_tried(tmp_path: Path) -> None:
    search = Search(planted(tmp_path, level, trials=8, sampler__kind="qmc"))
    asked = Prospect(
        study=search.study, space=search.space, trial=PerTrial(1, 0.0), concurrent=2, info=search.info
    )
    drawn = [each.digest() for each in asked.recipes()]
    assert drawn == [each.digest for each in search.trials]


def test_a_dry_run_gives_its_forecast_as_json_alone(
    tunebook: Tunebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    small = ("--set", "model.width=4", "--set", "precision.kind=fp32")
    code, out, err = tunebook(
        "search", "digits", "--trials", "3", "--epochs", "2", *small, "--dry-run", "--json"
    )
    assert code == 0, err
    tree = json.loads(out)
    assert tree["schema"] == 1
    assert str(Forecast.model_validate(tree["forecast"])) in err
    assert not Path("searches").exists()


def test_a_search_that_has_ended_says_what_the_next_one_takes_beside_its_trials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    study = study_of(storage=str(tmp_path), name="planted", base__model__width=4)
    prepared = decide(load(study, Home.of(study), Hardware((Node(2, 0),))))
    folder = planted(tmp_path, level, trials=2)
    first = min(each.history[0].time for each in Search(folder).trials)
    keep_beside(replace(prepared, study=Search(folder).study), told=first - 100.0)
    found = last_beside("cpu")
    assert found is not None
    assert found.start_seconds == pytest.approx(99.0, abs=1.0)
