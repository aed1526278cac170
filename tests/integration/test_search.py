"""Whole searches on digits with real Ray, Optuna and MLflow: the main job, and what may go wrong in it."""

from __future__ import annotations

import ast
import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
from ray.tune.experiment import Trial

from search.commands.asked import resolved_study
from search.commands.guests import driver
from search.followers.audit import audit
from search.learning.search import Search
from search.record.cursor import read_cursor
from search.record.home import BEST_FILE
from search.record.journal import EndEvent, RetryEvent
from search.record.stored_search import StoredSearch
from search.record.turnaround import IN_WORDS
from search.results.export import exported
from search.results.formats.write import export_as
from search.running.driver import Driver
from search.running.guests import NO_GUESTS
from search.running.switch import StopSwitch
from tests.integration.small_searches import BASE, digits_study, epochs_by_trial, events_in
from tests.search.followers.small_tracking import run_ids
from trainable.bench import HERE
from trainable.recipe.yamlfile import read_recipe
from trainable.train import train

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("ray_session")]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, ray_session: None) -> Path:
    storage = tmp_path_factory.mktemp("storage")
    assert driver().search(resolved_study(digits_study(storage, name="small"))) == "finished"
    return storage / "small"


@pytest.mark.smoke("a search")
def test_a_search_trains_prunes_and_finds_a_best_trial(finished: Path) -> None:
    summary = Search(finished).progress
    assert [trial.id for trial in summary.trials] == [0, 1, 2, 3]
    assert {trial.state for trial in summary.trials} <= {"finished", "stopped"}
    assert summary.trials[0].own
    assert summary.trials[0].state == "finished", "the documented recipe is never stopped"
    assert summary.best is not None
    assert summary.best.state == "finished"
    assert summary.best.epochs == 4
    assert epochs_by_trial(events_in(finished)) == {
        trial.id: list(range(1, trial.epochs + 1)) for trial in summary.trials
    }


def test_a_driver_without_guests_makes_the_same_search_and_leaves_no_results(
    finished: Path, tmp_path: Path
) -> None:
    study = resolved_study(digits_study(tmp_path, name="small"))
    assert Driver(HERE, NO_GUESTS).search(study) == "finished"
    alone, guided = (
        [(trial.recipe, [each.val_loss for each in trial.results]) for trial in StoredSearch(folder).trials]
        for folder in (tmp_path / "small", finished)
    )
    assert alone == guided
    assert not (tmp_path / "small" / BEST_FILE).exists()


def test_a_searchs_account_of_its_time_adds_up_and_is_told_everywhere(finished: Path) -> None:
    from mlflow import MlflowClient

    search = Search(finished)
    spent, cursor = search.progress.turnaround, read_cursor(finished)
    assert spent is not None
    assert cursor is not None
    assert sum(spent.seconds(name) for name in IN_WORDS) == pytest.approx(spent.total_seconds)
    assert spent.total_seconds >= spent.slots * search.progress.wall_seconds
    trained = sum(each.epoch_seconds for trial in search.trials for each in trial.results)
    parts = ("steps", "data", "scoring")
    first_steps = sum(
        each.first_step_extra_seconds or 0.0 for trial in search.trials for each in trial.results
    )
    assert sum(map(spent.seconds, parts)) + first_steps == pytest.approx(trained, rel=0.01)
    assert spent.starting_seconds > first_steps
    assert spent.unfinished_seconds < 0.5
    run = MlflowClient(tracking_uri=cursor.uri).get_run(str(cursor.parent_run_id))
    assert run.data.metrics["slots_steps_share"] == pytest.approx(spent.share("steps"), abs=0.02)
    assert f'"total_seconds":{spent.total_seconds}' in (finished / "report.json").read_text()
    assert "INFO starting a process for the first trial" in (finished / "search.log").read_text()


def test_a_search_leaves_what_it_promises(finished: Path) -> None:
    for name in (
        "study.yaml",
        "facts.json",
        "events.jsonl",
        "optuna.db",
        "best.yaml",
        "trials.png",
        "trials",
    ):
        assert (finished / name).exists(), name
    assert (finished / "trials.png").read_bytes().startswith(b"\x89PNG")
    assert not (finished / ".ray").exists()


def test_the_exported_recipe_gives_the_trial_s_numbers_again_exactly(finished: Path) -> None:
    best = Search(finished).progress.best
    assert best is not None
    outcome = train(read_recipe(finished / "best.yaml"))
    again = outcome.history[-1].metrics()
    same = [name for name in best.metrics if name.startswith(("val_", "train_"))]
    assert len(same) >= 5
    assert {name: again[name] for name in same} == {name: best.metrics[name] for name in same}


def test_a_search_is_exported_for_other_programs_and_other_hardware(finished: Path, tmp_path: Path) -> None:
    best = Search(finished).progress.best
    assert best is not None
    found, parts = exported(Search(finished)), tmp_path / "parts"
    said = export_as(found, tmp_path / "large.yaml", "tunebook", gpus=2, batch=64, images=parts)
    moved = read_recipe(tmp_path / "large.yaml")
    assert said.startswith(f"trial {best.id} (finished")
    assert (moved.loop.batch_size, moved.optimizer.lr) == (64, best.whole_recipe.optimizer.lr)
    assert moved.provenance is not None
    assert moved.provenance.trial == best.id
    assert not moved.provenance.metrics, "nobody has trained it"
    assert (parts / "train_list.txt").exists()
    export_as(found, tmp_path / "train.py", "script")
    ast.parse((tmp_path / "train.py").read_text())


def test_the_exported_recipe_says_where_it_comes_from(finished: Path) -> None:
    best = Search(finished).progress.best
    provenance = read_recipe(finished / "best.yaml").provenance
    assert best is not None
    assert provenance is not None
    assert (provenance.search, provenance.trial, provenance.mlflow_run_id) == (
        "small",
        best.id,
        best.mlflow_run_id,
    )
    assert provenance.class_names == tuple("0123456789")
    assert provenance.threads == 1
    assert provenance.micro_batch == read_recipe(finished / "best.yaml").loop.batch_size
    assert "torch" in provenance.versions
    assert provenance.metrics == best.metrics


def test_mlflow_holds_one_parent_and_one_run_a_trial(finished: Path) -> None:
    from mlflow import MlflowClient

    summary = Search(finished).progress
    client = MlflowClient(f"sqlite:///{finished.parent}/mlflow.db")
    (experiment,) = [each for each in client.search_experiments() if each.name == "digits"]
    runs = client.search_runs([experiment.experiment_id])
    children = {run.data.tags["tunebook.trial"]: run for run in runs if "mlflow.parentRunId" in run.data.tags}
    assert len(runs) == len(children) + 1 == len(summary.trials) + 1
    for trial in summary.trials:
        run = children[str(trial.id)]
        assert run.info.run_id == run_ids(finished)[trial.id] == trial.mlflow_run_id
        assert run.info.status == ("FINISHED" if trial.state in ("finished", "stopped") else "KILLED")
        points = client.get_metric_history(run.info.run_id, "val_accuracy")
        assert [point.value for point in sorted(points, key=lambda point: point.step)] == [
            result.val_accuracy for result in trial.results
        ]


def test_mlflow_is_told_what_the_search_has_come_to(finished: Path) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{finished.parent}/mlflow.db")
    cursor = read_cursor(finished)
    best = Search(finished).progress.best
    assert cursor is not None
    assert cursor.parent_run_id is not None
    assert best is not None
    files = {file.path for file in client.list_artifacts(cursor.parent_run_id)}
    assert files == {"study.yaml", "best.yaml", "trials.png", "report.html", "verdicts.json"}
    note = client.get_run(cursor.parent_run_id).data.tags["mlflow.note.content"]
    assert f"**Best**: trial {best.id}, val_accuracy {best.metrics['val_accuracy']:.4f}" in note
    assert "**Rules**: 0 supported, 0 contradicted" in note, "four trials can tell nothing"


def test_show_prints_finite_json(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from search.learning.search import Search
    from search.reporting import terminal

    terminal.show(Search(finished), as_json=True)
    tree = json.loads(capsys.readouterr().out, parse_constant=lambda text: pytest.fail(f"{text} in the JSON"))
    assert (tree["schema"], tree["search"], tree["state"]) == (1, "small", "finished")
    assert tree["best"]["id"] in [trial["id"] for trial in tree["trials"]]
    assert tree["epochs_trained"] <= tree["epochs_if_unpruned"] == 16


def test_resuming_a_finished_search_trains_nothing(finished: Path) -> None:
    before = events_in(finished)
    assert driver().resume(finished) == "finished"
    assert events_in(finished) == before


def test_an_absurd_rate_diverges_in_its_first_epoch_and_the_search_goes_on(tmp_path: Path) -> None:
    study = digits_study(
        tmp_path,
        name="absurd",
        concurrent=None,  # as many at a time as there are processors
        budget__trials=5,
        sampler__kind="random",
        base={**BASE, "optimizer.kind": "sgd"},
        space__overrides={"optimizer.lr": {"choice": [0.1, 1e6]}},
    )
    assert driver().search(resolved_study(study)) == "finished"
    summary = Search(tmp_path / "absurd").progress
    absurd = [trial for trial in summary.trials if trial.values["optimizer.lr"] == 1e6]
    sane = [trial for trial in summary.trials if trial.values["optimizer.lr"] == 0.1]
    assert absurd
    assert sane
    for trial in absurd:
        assert (trial.state, trial.epochs, trial.metrics["val_accuracy"]) == ("diverged", 1, 0.0)
    assert {trial.state for trial in sane} <= {"finished", "stopped"}
    assert summary.best is not None
    assert summary.best.values["optimizer.lr"] == 0.1
    assert not audit(Search(tmp_path / "absurd")).differences


def test_a_trial_that_hangs_fails_with_the_reason_and_the_search_fails_when_all_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unpickled: list[Exception | None] = []
    original = Trial.get_pickled_error
    monkeypatch.setattr(Trial, "get_pickled_error", lambda trial: unpickled.append(original(trial)))
    study = digits_study(
        tmp_path, name="hangs", budget__trials=1, limits__step_seconds=0.001, limits__retries=1
    )
    assert driver().search(resolved_study(study)) == "failed"
    assert unpickled == [None, None], "Ray asks for each attempt's error, and is given none"
    folder = tmp_path / "hangs"
    summary = Search(folder).progress
    assert summary.best is None
    assert not (folder / "best.yaml").exists()
    (trial,) = summary.trials
    assert (trial.state, trial.attempts) == ("failed", 2)
    assert trial.outcome_reason == "no batch was done for more than limits.step_seconds = 0.001 s"
    assert sum(isinstance(event, RetryEvent) for event in events_in(folder)) == 1
    assert not audit(Search(folder)).differences


def test_the_same_seed_and_one_trial_at_a_time_give_the_same_search(finished: Path, tmp_path: Path) -> None:
    heard: list[tuple[Path, bool]] = []
    driving = replace(driver(), ended=lambda of, told: heard.append((of.home.folder, told < time.time())))
    assert driving.search(resolved_study(digits_study(tmp_path, name="small"))) == "finished"
    assert heard == [(tmp_path / "small", True)]
    one, two = (
        [
            (trial.values, trial.state, trial.metrics.get("val_loss"))
            for trial in Search(folder).progress.trials
        ]
        for folder in (finished, tmp_path / "small")
    )
    assert one == two


def test_the_hours_of_the_budget_end_a_search_with_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "short"

    def spent(switch: StopSwitch) -> bool:
        """As if the hours were over once a trial has finished: no machine is too slow for that."""
        return any(isinstance(event, EndEvent) and event.state == "finished" for event in events_in(folder))

    monkeypatch.setattr(StopSwitch, "hours_spent", property(spent))
    study = digits_study(tmp_path, name="short", budget__trials=500, budget__hours=100, budget__epochs=2)
    assert driver().search(resolved_study(study)) == "finished"
    summary = Search(folder).progress
    cut = "the budget of hours is spent before the best trials were trained again as planned"
    assert summary.outcome_reason == cut
    assert 0 < len(summary.trials) < 500
    assert all(trial.ended for trial in summary.trials)
    assert (folder / "best.yaml").exists()
