"""Makes the small studies on digits that tests of whole searches share, and reads their journals."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from search.record.home import EVENTS_FILE
from search.record.journal import EpochEvent, Event, read
from search.study import Study

BASE: dict[str, Any] = {"model.width": 8, "loop.batch_size": 64, "precision.kind": "fp32"}


def digits_study(storage: Path, **values: Any) -> Study:
    """Return a study that takes seconds; `values` are dotted paths with __ for dots.

    Its trials train one after another: each process of a trial computes seven seconds before its first step.
    """
    small = Study.from_tree(
        {
            "data": {"path": "digits"},
            "base": BASE,
            "budget": {"trials": 4, "epochs": 4},
            "concurrent": 1,
            "scheduler": {"grace_epochs": 1, "reduction_factor": 2},
            "storage": str(storage),
        }
    )
    if not (database := storage / "mlflow.db").exists():
        storage.mkdir(parents=True, exist_ok=True)
        database.write_bytes(_tables_of_mlflow())
    return small.with_values({path.replace("__", "."): value for path, value in values.items()})


@cache
def _tables_of_mlflow() -> bytes:
    """Return a database of MLflow without runs: to make one takes two seconds, and each search would."""
    from mlflow import MlflowClient

    with TemporaryDirectory() as folder:
        MlflowClient(f"sqlite:///{folder}/mlflow.db").search_experiments()
        return (Path(folder) / "mlflow.db").read_bytes()


def events_in(folder: Path) -> list[Event]:
    return read(folder / EVENTS_FILE) if (folder / EVENTS_FILE).exists() else []


def epochs_by_trial(events: list[Event]) -> dict[int, list[int]]:
    epochs: dict[int, list[int]] = {}
    for event in events:
        if isinstance(event, EpochEvent):
            epochs.setdefault(event.trial, []).append(event.epoch)
    return epochs


def has_epochs(count: int) -> Callable[[list[Event]], bool]:
    """Return what says of a journal whether its first trial has trained so many epochs."""
    return lambda events: len(epochs_by_trial(events).get(0, [])) >= count
