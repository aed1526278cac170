"""Searches whose networks may cost only so much: what breaks a constraint ends before it trains."""

from __future__ import annotations

from pathlib import Path

import pytest

from search.commands.asked import resolved_study
from search.commands.guests import driver
from search.followers.audit import audit
from search.learning.search import Search
from search.record.home import MIRROR_FILE
from search.reporting import terminal
from search.results.export import exported
from search.study import Study, StudyError
from tests.integration.small_searches import digits_study, epochs_by_trial, events_in
from trainable.recipe.yamlfile import read_recipe

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("ray_session")]

LIMIT = 50_000  # a net of width 8 has 19,810 parameters, one of width 32 has 308,074


def constrained(storage: Path, widths: tuple[int, ...]) -> Study:
    return digits_study(
        storage,
        name="small",
        base={"loop.batch_size": 64, "precision.kind": "fp32"},
        budget__trials=2,
        budget__epochs=1,
        scheduler__grace_epochs=None,
        space__name="quick",
        space__overrides={"model.width": {"choice": list(widths)}},
        sampler__kind="random",
        objective__constraints={"parameters": {"max": LIMIT}},
    )


@pytest.mark.scenario
def test_a_search_trains_only_networks_that_meet_its_constraints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert driver().search(resolved_study(constrained(tmp_path, (32, 8)))) == "finished"
    search = Search(tmp_path / "small")
    states = {trial.id: trial.state for trial in search.trials}
    small = {trial.id for trial in search.trials if trial.values["model.width"] == 8}
    assert {number for number, state in states.items() if state == "finished"} == small
    assert {number for number, state in states.items() if state == "infeasible"} == {*states} - small
    assert len(small) == 2  # the whole budget
    assert epochs_by_trial(events_in(search.folder)).keys() == small
    assert {trial.attempts for trial in search.trials} == {1}
    assert search.best is not None
    assert search.best.id in small
    assert_costs_are_everywhere(search, tmp_path / "best.yaml")
    assert not audit(search).differences  # journal, MLflow, Optuna's copy and checkpoints
    terminal.show(search, as_json=False)
    printed = capsys.readouterr().out
    assert "[0/2] trial 0 infeasible after 0 epochs (parameters 308,074 is 516% above 50,000)" in printed
    assert "val_accuracy against latency" in printed


def assert_costs_are_everywhere(search: Search, out: Path) -> None:
    import optuna

    costs = {trial.id: trial.costs for trial in search.trials}
    assert {each["parameters"] for each in costs.values()} == {19_810, 308_074}
    assert all(each["latency_ms"] > 0.0 and each["memory_gib"] > 0.0 for each in costs.values())
    assert search.trials_frame()["latency_ms"].tolist() == [each["latency_ms"] for each in costs.values()]
    copy = optuna.load_study(study_name="small", storage=f"sqlite:///{search.folder / MIRROR_FILE}")
    for trial in copy.get_trials():
        above = costs[trial.user_attrs["tunebook.trial"]]["parameters"] / LIMIT - 1.0
        assert trial.constraints == {"parameters": pytest.approx(above)}
    exported(search).write(out)
    provenance = read_recipe(out).provenance
    assert provenance is not None
    assert provenance.metrics["parameters"] == 19_810


def test_a_network_of_every_trial_that_is_too_large_is_refused_before_any(tmp_path: Path) -> None:
    study = constrained(tmp_path, (8,)).with_values({"space.overrides": {}, "base.model.width": 32})
    with pytest.raises(
        StudyError, match=r"objective\.constraints\.parameters\.max: 50,000 is below the 308,0"
    ):
        driver().search(resolved_study(study))
    assert not (tmp_path / "small" / "events.jsonl").exists()
