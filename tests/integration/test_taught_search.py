"""A whole search, with real Ray, whose trials learn from a trial of an earlier one, and what it leaves."""

from __future__ import annotations

from pathlib import Path

import pytest

from search.commands.asked import resolved_study
from search.commands.explain import run_explain
from search.commands.guests import driver
from search.commands.options import ExplainOptions
from search.followers.audit import audit
from search.learning.refine import refine
from search.learning.search import Search
from tests.integration.small_searches import digits_study
from tests.search.results.trained_search import trained_search
from trainable.bench import Bench
from trainable.models.weights import file_digest
from trainable.recipe.yamlfile import read_recipe
from trainable.train import train

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("ray_session")]


@pytest.mark.scenario
def test_trials_learn_from_a_trial_and_the_best_recipe_trains_again_from_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "earlier").mkdir()
    trained_search(tmp_path / "earlier")
    study = digits_study(
        tmp_path / "searches",
        name="taught",
        budget__trials=3,
        budget__epochs=2,
        scheduler__kind="none",
        finalists="none",
        base__distillation={"teacher": f"{tmp_path}/earlier#0"},
    )
    assert driver().search(resolved_study(study)) == "finished"
    folder = tmp_path / "searches" / "taught"
    search = Search(folder)
    teacher = tmp_path / "earlier" / "teachers" / "trial-0-epoch-1"
    assert {trial.state for trial in search.trials} == {"finished"}
    assert len({trial.values["distillation.temperature"] for trial in search.trials}) > 1
    assert not audit(search).differences
    recipe = read_recipe(folder / "best.yaml")
    assert recipe.get("distillation.teacher") == str(teacher)
    assert recipe.provenance is not None
    assert recipe.provenance.teacher_digest == file_digest(teacher / "model.safetensors")
    assert recipe.provenance.teacher_recipe == read_recipe(teacher / "recipe.yaml").digest()
    assert "2.5 to 4 worked best" in (folder / "best.yaml").read_text()
    said: list[str] = []
    again = train(recipe, bench=Bench(say=said.append)).history[-1]
    assert search.best is not None
    assert again.val_loss == search.best.metrics["val_loss"]
    assert "teacher_seconds" in search.best.metrics
    assert not [line for line in said if "teacher" in line]
    assert refine(search).study is None, "three trials say too little"
    run_explain(folder, ExplainOptions(file=str(folder)))
    out = capsys.readouterr().out
    assert "distillation.weight" in out
