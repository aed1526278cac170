"""Searches for other objectives than accuracy, on digits: each part of a search's record holds them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from search.commands.asked import resolved_study
from search.commands.guests import driver
from search.followers.audit import audit
from search.learning.search import Search
from search.reporting.picture import draw
from search.results.export import exported
from search.study import StudyError
from tests.integration.small_searches import digits_study
from trainable.bench import Bench
from trainable.models.make import NetworkEnds, make_model
from trainable.recipe.yamlfile import read_recipe
from trainable.train import train

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("ray_session")]

MACRO_F1: dict[str, Any] = {"objective.metric": "val_macro_f1", "base.evaluation.metrics": ["auroc"]}


def searched(storage: Path, values: dict[str, Any]) -> Search:
    small = digits_study(storage, name="small", budget__trials=2, budget__epochs=2)
    assert driver().search(resolved_study(small.with_values(values))) == "finished"
    return Search(storage / "small")


def test_a_search_records_and_exports_its_objective(tmp_path: Path) -> None:
    metric = str(MACRO_F1["objective.metric"])
    search = searched(tmp_path, MACRO_F1)
    summary, best = search.progress, search.best
    assert best is not None
    assert best.metrics[metric] == max(
        each.metrics[metric] for each in search.trials if each.end == "finished"
    )
    assert all(0.0 < score <= 1.0 for trial in search.trials for score in trial.scores(metric).values())
    assert summary.json()["objective"] == {"metric": metric, "mode": "max"}
    assert summary.json()["best"]["metrics"][metric] == best.metrics[metric]
    assert search.trials_frame()[metric].tolist() == [each.metrics[metric] for each in search.trials]
    assert search.verdicts is not None
    draw(summary, tmp_path / "again.png")
    found = audit(search)  # journal, MLflow, Optuna's copy and checkpoints
    assert not found.differences
    assert_exported_recipe_measures_it(search, metric, tmp_path / "best.yaml")


def test_a_search_knows_the_file_of_weights_that_its_trials_began_from(tmp_path: Path) -> None:
    weights, out = tmp_path / "weights.safetensors", tmp_path / "best.yaml"
    spec = digits_study(tmp_path).base_recipe().model
    save_file(make_model(spec, NetworkEnds(classes=3, channels=1, image_size=8)).state_dict(), weights)
    values = {"base.model.weights": str(weights), "budget.trials": 1, "budget.epochs": 1}
    search = searched(tmp_path, values)
    save_file({name: each + 0.5 for name, each in load_file(weights).items()}, weights)
    exported(search).write(out)
    lines: list[str] = []
    train(read_recipe(out), bench=Bench(say=lines.append))
    assert any("these are not the weights that the recipe was trained from" in each for each in lines)


def assert_exported_recipe_measures_it(search: Search, metric: str, out: Path) -> None:
    found = exported(search)
    assert metric in found.words
    found.write(out)
    recipe = read_recipe(out)
    assert search.best is not None
    assert recipe.provenance is not None
    assert recipe.provenance.metrics[metric] == search.best.metrics[metric]
    again = train(recipe).history[-1]
    assert again.extra_metrics.keys() == search.best.results[-1].extra_metrics.keys()
    assert again.score(metric) == search.best.metrics[metric]


def test_what_no_trial_could_measure_is_refused_before_any(tmp_path: Path) -> None:
    costs = {"objective": {"metric": "val_cost", "costs": [[0.0, 1.0], [1.0, 0.0]]}}
    with pytest.raises(StudyError, match=r"cost: 2 rows of costs, the data have 10 classes: 0, 1, 2"):
        driver().search(resolved_study(digits_study(tmp_path, name="small").with_values(costs)))
    assert not (tmp_path / "small" / "events.jsonl").exists()
