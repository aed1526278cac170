"""A comparison of what a search has written: the journal, MLflow, Optuna's copy, checkpoints.

The journal is the truth. Each difference from it is one line; `tunebook audit` prints them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from search.followers.consumer import error_line
from search.followers.database import (
    quiet_mlflow,
    refuse_damaged,
    refuse_deleted,
    refuse_foreign,
    refuse_half_made,
)
from search.followers.mirror import OTHER_MIRROR
from search.followers.run_updates import SEARCH_ID, TRIAL, status_of
from search.followers.uri import database_file
from search.learning.search import Search
from search.record.home import MIRROR_FILE, Home
from search.record.trials import Trial
from spaces.domains import counted
from trainable.checkpoints.checkpoint_store import CheckpointStore
from trainable.errors import StateError, UserError
from trainable.files.regular import check_regular
from trainable.files.store import StoreError
from trainable.stages import stage, track

SENT_AS_KILLED = ("stopped", "infeasible")  # ends of trials that earlier versions sent so
SCHEMA = 1
EpochScores = Mapping[int, float]  # the objective by epoch


@dataclass(frozen=True)
class Audit:
    """Where a search's parts differ, one line each; none where they all agree."""

    differences: tuple[str, ...]
    epochs: int  # the number of epochs in the journal
    trials: int

    def __str__(self) -> str:
        if self.differences:
            return "\n".join(self.differences)
        return (
            f"journal, MLflow, {MIRROR_FILE} and checkpoints agree: {counted(self.trials, 'trial')}, "
            f"{counted(self.epochs, 'epoch')}, each once"
        )

    def json(self) -> str:
        """Return the same as a JSON text."""
        return json.dumps({"schema": SCHEMA, **asdict(self)}, indent=2)


def audit(search: Search) -> Audit:
    """Compare the parts of a search that nobody drives now. Raises UserError while a driver is at work.

    JournalError says that the journal itself is damaged, or has an epoch twice or not at all.
    """
    if search.state == "running":
        raise UserError(f"{search.home.address}: a driver is at work on this search; audit it afterwards")
    trials = search.progress.all_trials
    with stage("comparing the journal with MLflow"):
        differences = [*_in_mlflow(search), *_in_mirror(search)]
    with stage("comparing the journal with the checkpoints"):
        for trial in track(trials, "trial", len(trials)):
            differences += _in_checkpoints(search.home, trial)
    return Audit(tuple(differences), sum(trial.epochs for trial in trials), len(trials))


def history_differences(
    where: str, journal: EpochScores, points: Sequence[tuple[int, float]]
) -> Iterator[str]:
    """Yield how a history of scores, as (epoch, score), differs from the journal's."""
    counts = Counter(epoch for epoch, _ in points)
    for epoch in sorted({*journal, *counts}):
        if epoch not in counts:
            yield f"{where}: epoch {epoch} is missing"
        elif epoch not in journal:
            yield f"{where}: epoch {epoch} is not in the journal"
        elif counts[epoch] > 1:
            yield f"{where}: epoch {epoch} is there {counts[epoch]} times"
        elif (score := dict(points)[epoch]) != journal[epoch]:
            yield f"{where}: epoch {epoch} has the score {score:g}, the journal {journal[epoch]:g}"


# --- MLflow


def _in_mlflow(search: Search) -> Iterator[str]:
    """Yield how MLflow's runs differ; one line where MLflow does not answer."""
    if search.record.search_id is None:
        return
    try:
        client, runs = _runs(search)
        yield from _run_differences(search, client, runs)
    except ModuleNotFoundError:  # MLflow is not installed: the command says what brings it
        raise
    except Exception as error:  # a server and its libraries may fail in any way
        yield f"MLflow could not be asked: {error_line(error)}"


def _runs(search: Search) -> tuple[Any, list[Any]]:
    """Return MLflow's client, and the runs of a search; nothing is created."""
    uri, name = str(search.study.tracking.uri), search.study.experiment
    if (file := database_file(uri)) is not None:
        if not file.exists():
            raise FileNotFoundError(f"{file}: no such file")
        refuse_foreign(file)
        refuse_half_made(file, str(search.folder))
    quiet_mlflow()
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        return client, []
    refuse_deleted(name, experiment.experiment_id, experiment.lifecycle_stage)
    wanted = f"tags.`{SEARCH_ID}` = '{search.record.search_id}'"
    runs: list[Any] = []
    token = None
    while token != "":
        page = client.search_runs([experiment.experiment_id], wanted, page_token=token)
        runs, token = [*runs, *page], page.token or ""
    return client, runs


def _run_differences(search: Search, client: Any, runs: Sequence[Any]) -> Iterator[str]:
    by_trial: dict[str | None, list[Any]] = {}
    for run in runs:
        by_trial.setdefault(run.data.tags.get(TRIAL), []).append(run)
    yield from _wrong_count("MLflow: the search's own run", len(by_trial.pop(None, [])))
    metric = search.progress.objective
    for trial in search.progress.all_trials:
        mine = by_trial.pop(str(trial.id), [])
        yield from _wrong_count(f"MLflow: the run of trial {trial.id}", len(mine))
        if len(mine) == 1:
            yield from _run_difference(client, mine[0], trial, metric)
    for number in by_trial:
        yield f"MLflow: trial {number} is not in the journal"


def _run_difference(client: Any, run: Any, trial: Trial, metric: str) -> Iterator[str]:
    where = f"MLflow: trial {trial.id}"
    history = client.get_metric_history(run.info.run_id, metric)
    points = [(point.step, point.value) for point in history]
    scored = ((each.epoch, each.metrics().get(metric)) for each in trial.results)
    journal = {epoch: score for epoch, score in scored if score is not None}
    yield from history_differences(where, journal, points)
    wanted = status_of(trial.end) if trial.end is not None else "KILLED"
    if run.info.status != wanted and (trial.end not in SENT_AS_KILLED or run.info.status != "KILLED"):
        yield f"{where}: its status is {run.info.status}, expected {wanted}"
    if run.info.end_time is not None and run.info.end_time < run.info.start_time:
        yield f"{where}: it ends before it starts"


def _wrong_count(what: str, count: int) -> Iterator[str]:
    if count != 1:
        yield f"{what} is {'missing' if not count else f'there {count} times'}"


# --- Optuna's copy


def _in_mirror(search: Search) -> Iterator[str]:
    """Yield how the copy for optuna-dashboard differs, which has the trials that have ended."""
    file = search.folder / MIRROR_FILE
    ended = [trial for trial in search.trials if trial.ended]
    if not file.exists():
        if ended and search.home.store is None:
            yield f"{MIRROR_FILE}: no such file"
        return
    try:
        check_regular(file)
        refuse_damaged(file, OTHER_MIRROR)
        copied = _copied(file, str(search.study.name))
    except ModuleNotFoundError:
        raise
    except Exception as error:  # SQLite and Optuna may fail in any way on a damaged file
        yield f"{MIRROR_FILE} cannot be read: {error_line(error)}"
        return
    metric = search.progress.objective
    for trial in ended:
        mine = copied.pop(trial.id, [])
        yield from _wrong_count(f"{MIRROR_FILE}: trial {trial.id}", len(mine))
        if len(mine) == 1 and trial.end != "diverged":
            where = f"{MIRROR_FILE}: trial {trial.id}"
            yield from history_differences(where, trial.scores(metric), mine[0])
    for number in copied:
        yield f"{MIRROR_FILE}: trial {number} has not ended in the journal"


def _copied(file: Path, study: str) -> dict[int, list[list[tuple[int, float]]]]:
    """Return the scores of all copies of each trial, by the search's number."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    copies: dict[int, list[list[tuple[int, float]]]] = {}
    for trial in optuna.load_study(study_name=study, storage=f"sqlite:///{file.absolute()}").get_trials():
        copies.setdefault(int(trial.user_attrs[TRIAL]), []).append(list(trial.intermediate_values.items()))
    return copies


# --- checkpoints


def _in_checkpoints(home: Home, trial: Trial) -> Iterator[str]:
    """Yield how the history in a trial's newest checkpoint differs.

    It may be shorter than that of the journal, unless the trial has finished: others need none. It may
    be longer for a trial that has not ended: `resume` enters those epochs.
    """
    where = f"checkpoints: trial {trial.id}"
    try:
        history = CheckpointStore.at(home.checkpoints(trial.id), attempts=1).history()
    except (StoreError, StateError, OSError, ValueError) as error:
        yield f"{where}: cannot be read: {error_line(error)}"
        return
    if not history and trial.end == "finished":
        yield f"{where}: none of a finished trial is there"
    elif len(history) < trial.epochs and trial.end == "finished":
        yield f"{where}: the newest has {len(history)} of a finished trial's {trial.epochs} epochs"
    if [each.epoch for each in history] != list(range(1, len(history) + 1)):
        yield f"{where}: expected the epochs 1 to {len(history)}, got {[each.epoch for each in history]}"
    if len(history) > trial.epochs and trial.ended:
        yield f"{where}: epochs {trial.epochs + 1} to {len(history)} are not in the journal"
    for event, mine in zip(trial.history, history, strict=False):
        if (event.result.val_loss, event.result.val_accuracy) != (mine.val_loss, mine.val_accuracy):
            yield f"{where}: epoch {mine.epoch} has other scores than the journal"
