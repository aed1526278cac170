"""What the best trial's curves say of it: a search's summary in, the same with a diagnosis out."""

from __future__ import annotations

from search.record.summary import Summary
from search.record.trials import Trial
from spaces.space import Space
from trainable.curves.diagnosis import Diagnosis, diagnose
from trainable.data import DataInfo


def with_diagnosis(summary: Summary, space: Space, info: DataInfo) -> Summary:
    """The summary with the diagnosis of its best trial; as it is where there is none to diagnose."""
    found = diagnosis_of(summary.best, space, info) if summary.best is not None else None
    return summary if found is None else summary.diagnosed(found)


def diagnosis_of(trial: Trial, space: Space, info: DataInfo) -> Diagnosis | None:
    """What a trial's curves say; None before its first epoch."""
    if not trial.history:
        return None
    return diagnose(
        trial.results,
        space.recipe(trial.values),
        classes=len(info.classes),
        train_images=info.train_images,
        validation_images=info.validation_images,
    )
