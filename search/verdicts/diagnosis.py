"""What the best trial's curves say of it: a search's summary in, the same with a diagnosis out."""

from __future__ import annotations

from dataclasses import fields

from search.record.summary import Summary, TrialSummary
from spaces.space import Space
from trainable.curves.diagnosis import Diagnosis, diagnose
from trainable.data import DataInfo
from trainable.training.metrics import EpochResult


def with_diagnosis(summary: Summary, space: Space, info: DataInfo) -> Summary:
    """The summary with the diagnosis of its best trial; as it is where there is none to diagnose."""
    found = diagnosis_of(summary.best, space, info) if summary.best is not None else None
    return summary if found is None else summary.diagnosed(found)


def diagnosis_of(trial: TrialSummary, space: Space, info: DataInfo) -> Diagnosis | None:
    """What a trial's curves say; None where the journal lacks a number that is needed."""
    if not (history := results_of(trial)):
        return None
    return diagnose(
        history,
        space.recipe(trial.values),
        classes=len(info.classes),
        train_images=info.train_images,
        validation_images=info.validation_images,
    )


def results_of(trial: TrialSummary) -> tuple[EpochResult, ...]:
    """A trial's history as its run reported it; empty where the journal lacks a number that is needed."""
    known = {field.name for field in fields(EpochResult)}
    results = []
    for epoch in trial.history:
        metrics = {name: value for name, value in epoch.metrics.items() if name in known}
        tree = {"val_top5_accuracy": None, **metrics, "epoch": epoch.epoch, "diverged": epoch.diverged}
        try:
            results.append(EpochResult.from_tree(tree))
        except TypeError:  # written by an earlier version
            return ()
    return tuple(results)
