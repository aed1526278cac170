"""Diagnoses a trial from its learning curves."""

from __future__ import annotations

from search.record.trials import Trial
from trainable.data import DataInfo
from trainable.diagnosis import Diagnosis, diagnose


def diagnosis_of(trial: Trial, info: DataInfo) -> Diagnosis | None:
    """Return what a trial's curves say; None before its first epoch."""
    if not trial.history:
        return None
    return diagnose(
        trial.results,
        trial.whole_recipe,
        classes=len(info.classes),
        train_images=info.train_images,
        validation_images=info.validation_images,
    )
