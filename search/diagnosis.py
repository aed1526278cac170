"""What the best trial's curves say of it, from the search's folder alone: its journal, study and facts."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from search.folder import read_facts
from search.results import Summary, TrialSummary
from search.study import Study
from trainable.diagnosis import Diagnosis, diagnose
from trainable.metrics import EpochResult


def with_diagnosis(summary: Summary, study: Study, folder: Path) -> Summary:
    """The summary with the diagnosis of its best trial; as it is where there is none to diagnose.

    Raises UserError where the folder's facts are missing.
    """
    best = summary.best
    history = results_of(best) if best is not None else ()
    if best is None or not history:
        return summary
    return summary.diagnosed(_diagnosis(history, best, study, folder))


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


def _diagnosis(
    history: tuple[EpochResult, ...], trial: TrialSummary, study: Study, folder: Path
) -> Diagnosis:
    from search.prepare import build_space  # imports torch: seconds, for nothing where no trial has finished

    facts, info = read_facts(folder)
    return diagnose(
        history,
        build_space(study, facts, info).recipe(trial.values),
        classes=len(info.classes),
        train_images=info.train_images,
        validation_images=info.validation_images,
    )
