"""A whole search whose finalist is trained again on fresh splits, with real Ray, Optuna and MLflow."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from search.commands.asked import resolved_study
from search.commands.guests import driver
from search.followers.audit import audit
from search.learning.search import Search
from search.record.cursor import read_cursor
from search.record.home import VERIFICATION_FILE
from search.record.trials import Trial
from search.reporting.tables import winner_line
from tests.integration.small_searches import digits_study
from trainable.errors import UserError
from trainable.recipe.provenance import FreshRuns
from trainable.recipe.yamlfile import read_recipe
from trainable.train import train

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("ray_session")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, ray_session: None) -> Path:
    """The folder of a small search whose best trial was trained again on two fresh splits."""
    storage = tmp_path_factory.mktemp("storage")
    fresh = {"top": 1, "seeds": 2, "splits": "fresh"}
    study = digits_study(storage, name="final", budget__trials=4, budget__epochs=2, finalists=fresh)
    assert driver().search(resolved_study(study)) == "finished"
    return storage / "final"


def runs_of(folder: Path) -> tuple[Trial, ...]:
    finals = Search(folder).progress.finals
    assert finals is not None
    return finals.finalists[0].runs


def test_the_winner_has_an_estimate_from_runs_on_fresh_splits(folder: Path) -> None:
    search = Search(folder)
    finals = search.progress.finals
    assert finals is not None
    assert finals.winner is not None
    assert search.best is not None
    assert search.best.id == finals.winner.trial
    digests = {trial.whole_recipe.data.validation_seed for trial in runs_of(folder)}
    assert digests == {1, 2}
    assert finals.winner.estimate is not None
    assert finals.winner.estimate.scores == tuple(run.metrics["val_accuracy"] for run in runs_of(folder))


def test_a_run_on_a_fresh_split_is_what_its_recipe_gives_alone(folder: Path) -> None:
    run = runs_of(folder)[1]
    again = train(run.whole_recipe).history[-1].metrics()
    same = [name for name in run.metrics if name.startswith(("val_", "train_"))]
    assert {name: again[name] for name in same} == {name: run.metrics[name] for name in same}


def test_the_exported_recipe_says_what_the_final_came_to(folder: Path) -> None:
    finals, provenance = Search(folder).progress.finals, read_recipe(folder / "best.yaml").provenance
    assert provenance is not None
    assert isinstance(provenance.final, FreshRuns)
    assert finals is not None
    assert finals.winner is not None
    assert finals.winner.estimate is not None
    assert provenance.final.scores == finals.winner.estimate.scores
    assert provenance.final.seeds == (1, 2)
    assert provenance.final.gap == finals.winner.gap
    assert provenance.final.fresh_splits


def test_the_figure_of_the_final_is_verified_by_a_process_of_its_own(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "verified.yaml"
    command = [sys.executable, "-m", "search", "export", str(folder), "-o", str(out), "--verify", "3"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    recipe = read_recipe(out)
    assert recipe.provenance is not None
    assert recipe.provenance.final is not None
    assert (found := recipe.provenance.verification) is not None
    assert (found.verified, found.part, found.seeds, found.faults) == (True, "test", (3, 4, 5), ())
    assert found.claimed == recipe.provenance.final.estimate
    assert found.scores[0] == train(recipe.with_values({"loop.seed": 3}), test=True).tree()["test_accuracy"]
    assert found.parts_differ is None
    written = json.loads((folder / VERIFICATION_FILE).read_text())
    trial = recipe.provenance.trial
    assert written == {"trial": trial, "recipe": recipe.digest(), "found": found.model_dump(mode="json")}


def test_every_part_of_the_search_has_the_runs_and_optunas_copy_has_the_trials_alone(folder: Path) -> None:
    found = audit(Search(folder))
    assert found.differences == ()
    assert found.trials == 6


def test_mlflow_has_the_winners_estimate_and_says_it_in_the_searchs_note(folder: Path) -> None:
    from mlflow import MlflowClient

    search, client = Search(folder), MlflowClient(tracking_uri=f"sqlite:///{folder.parent}/mlflow.db")
    finals, cursor = search.progress.finals, read_cursor(folder)
    assert finals is not None
    assert finals.winner is not None
    assert finals.winner.estimate is not None
    assert cursor is not None
    for run_id in (cursor.parent_run_id, cursor.run_ids[finals.winner.trial]):
        numbers = client.get_run(str(run_id)).data.metrics
        assert numbers["final_estimate"] == finals.winner.estimate.value
        assert numbers["final_low"] == finals.winner.estimate.bounds[0]
    note = client.get_run(str(cursor.parent_run_id)).data.tags["mlflow.note.content"]
    assert f"**Trained again**: {winner_line(finals, 'val_accuracy')}" in note
    repeated = client.get_run(cursor.run_ids[5]).info.run_name
    assert repeated.startswith(f"{finals.winner.trial} again, seed 2, split 2: ")


def test_a_reader_is_told_how_much_the_search_has_flattered_its_best_trial(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from search.reporting.terminal import show

    show(Search(folder), as_json=False)
    printed = capsys.readouterr().out
    assert "the best trials, trained again (estimate: " in printed
    assert "over 2 fresh seeds, of trial" in printed


def test_an_audit_of_pruning_trains_stopped_trials_on_and_leaves_the_winner(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = Search(folder)
    stopped = [each for each in before.trials if each.end == "stopped"]
    assert stopped, "the search stops a trial at its rung"
    assert driver().audit_pruning(folder, share=1.0) == "finished"
    printed = capsys.readouterr().out
    assert "of the stopped trials are trained to epoch 2" in printed
    assert "fresh seeds and fresh splits" not in printed, "an audit trains no finalist"
    after = Search(folder)
    assert after.best is not None
    assert before.best is not None
    assert after.best.id == before.best.id
    assert after.pruning_audit is not None
    assert after.pruning_audit.trained == tuple(each.id for each in stopped)
    again = next(each for each in after.progress.repeats if each.repeat and each.repeat.of == stopped[0].id)
    assert again.results[0].val_loss == stopped[0].results[0].val_loss
    assert again.epochs == 2
    assert audit(after).differences == ()


def test_an_audit_with_nothing_left_to_train_is_refused(folder: Path) -> None:
    with pytest.raises(UserError, match="no stopped trial is left"):
        driver().audit_pruning(folder, share=1.0)


def test_a_finished_search_is_extended_in_the_same_runs_and_its_finalist_is_chosen_anew(
    folder: Path,
) -> None:
    before, cursor = Search(folder).progress, read_cursor(folder)
    assert cursor is not None
    assert driver().extend(folder, 2) == "finished"
    after, extended = Search(folder), read_cursor(folder)
    assert extended is not None
    assert len(after.trials) == len(before.trials) + 2
    assert after.study.budget.trials == 6
    assert after.trials[-1].id > before.repeats[-1].id
    assert extended.parent_run_id == cursor.parent_run_id
    assert cursor.run_ids.items() <= extended.run_ids.items()
    finals = after.progress.finals
    assert finals is not None
    assert finals.winner is not None
    assert finals.finalists[0].trial == after.progress.best_first[0].id
    assert len(finals.finalists[0].runs) == 2
    assert audit(after).differences == ()
