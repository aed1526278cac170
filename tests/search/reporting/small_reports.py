"""Makes reports of searches with invented curves, and one that has every part."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from search.learning.pruning_audit import Grace, PruningAudit, Rung
from search.learning.search import Search
from search.record.folder import Caution, Verified
from search.reporting.answers import class_scores, thumbnail
from search.reporting.content import (
    AttemptRow,
    ClassSamples,
    FinalistRow,
    Mistake,
    MlflowPages,
    RepeatRow,
    Report,
    ReportedLabels,
    Samples,
    TrialRow,
)
from search.reporting.gather import parts_of, report_of
from tests.search.learning.landscapes import RANGES, RATE, SMALL
from tests.search.planted_searches import Run, planted
from tests.search.small_events import TURNAROUND
from trainable.recipe.provenance import Verification

# The small space with a belief in the rate
BELIEVED = {**SMALL, "space__overrides": {**RANGES, RATE: {**RANGES[RATE], "prior": 0.3}}}
VERIFICATION = Verification(
    verified=True,
    metric="val_accuracy",
    part="test",
    seeds=(1, 2, 3),
    scores=(0.876, 0.88, 0.884),
    validation_scores=(0.9, 0.89, 0.9),
    mean=0.88,
    deviation=0.004,
    claimed=0.89,
    short=0.01,
    allowed=0.02,
    rule="by the rule",
    parts_differ="test_accuracy 0.8800 is below val_accuracy 0.8967, more than chance allows",
)
KIND = "test images are of another kind than those to validate: a classifier tells 93 of 100 apart"
MLFLOW = MlflowPages(experiment=None, run=None, trial=None, command="tunebook ui searches/planted")
CONFUSION = ((8, 2, 0), (0, 10, 0), (1, 3, 6))


def pairs_of(confusion: Sequence[Sequence[int]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the true and the predicted class of each image that a confusion matrix counts."""
    counts = np.array(confusion)
    true, predicted = np.indices(counts.shape).reshape(2, -1).repeat(counts.ravel(), axis=1)
    return true, predicted


def hill(at: Mapping[str, float], luck: random.Random) -> Run:
    """Make trials the better, the nearer their rate is to 0.75 of its range; the largest diverge."""
    rate = at[RATE]
    accuracy = 0.9 - 0.4 * (rate - 0.75) ** 2 + luck.gauss(0.0, 0.005)
    return Run(accuracy, accuracy + 0.03, diverges=rate > 0.97)


def planted_report(storage: Path, trials: int = 24, *, last: int | None = None) -> Report:
    """Return the report of a search on the hill; `last` ends it early, after so many trials."""
    folder = planted(storage, hill, trials=trials, last=last, sampler__kind="random", **BELIEVED)
    return report_of(Search(folder))


def whole_report() -> Report:
    """Return a report with every part that a report can have, and trials in every state."""
    with TemporaryDirectory() as storage:
        plain = planted_report(Path(storage))
    best = plain.answer.best
    assert best is not None
    assert plain.answer.score is not None
    verified = Verified(trial=best, recipe="0" * 12, found=VERIFICATION)
    return plain.model_copy(
        update={
            "answer": plain.answer.model_copy(
                update={
                    "verified": verified,
                    "parts": parts_of(VERIFICATION),
                }
            ),
            "search": plain.search.model_copy(update={"mlflow": MLFLOW}),
            "cautions": (
                Caution(kind="data", about="parts alike", what=KIND),
                Caution(kind="gap", about=VERIFICATION.metric, what=str(VERIFICATION.parts_differ)),
            ),
            "samples": _samples(),
            "trials": tuple(map(_varied, plain.trials)),
            "attempts": (*plain.attempts, _lost(plain.attempts[-1]), _again(plain.attempts[-1])),
            "finalists": (_finalist(best, plain.answer.score),),
            "repeats": (_repeat(best),),
            "turnaround": TURNAROUND,
            "pruning_audit": _audit(),
            "answers": _answers(best),
            "left_out": {},
        }
    )


def _varied(trial: TrialRow) -> TrialRow:
    """Return a trial with costs; some in states that a finished search does not have."""
    states = {20: "failed", 21: "infeasible", 22: "running", 23: "queued"}
    cost = {"parameters": 1000.0 * (trial.id + 1), "latency_ms": 1.0 + trial.id, "memory_gib": 0.1}
    return trial.model_copy(
        update={
            "state": states.get(trial.id, trial.state),
            "costs": cost,
            "on_frontier": trial.id in (0, 1),
            "reason": "ran out of memory" if trial.id == 20 else trial.reason,
        }
    )


def _lost(last: AttemptRow) -> AttemptRow:
    return last.model_copy(
        update={
            "number": 2,
            "start": last.end,
            "end": last.end + 100.0,
            "outcome": "preempted",
            "reason": "the machine was taken back",
            "stalls": ((last.end + 10.0, last.end + 60.0),),
        }
    )


def _again(last: AttemptRow) -> AttemptRow:
    return last.model_copy(update={"trial": 24, "start": last.end + 200.0, "end": last.end + 260.0})


def _repeat(trial: int) -> RepeatRow:
    return RepeatRow(
        id=24, of=trial, purpose="finalist", seed=1, split=None, state="finished", epochs=9, score=0.87
    )


def _finalist(trial: int, score: float) -> FinalistRow:
    return FinalistRow(
        trial=trial,
        winner=True,
        search_score=score,
        scores=(0.87, None, 0.89),
        mean=0.88,
        deviation=0.01,
        estimate=0.879,
        low=0.86,
        high=0.9,
        gap=score - 0.879,
    )


def _audit() -> PruningAudit:
    return PruningAudit(
        stopped=10,
        trained=(2, 3),
        better=(),
        best=0.9,
        chance=0.02,
        rungs=(Rung(3, 0.8, 0.5, 0.95),),
        graces=(Grace(3, 0.9, 0.6),),
        grace=3,
    )


def _samples() -> Samples:
    image = thumbnail(np.full((1, 8, 8), 128, np.uint8))
    classes = (("oak", 10), ("elm", 10), ("ash", 1))
    return Samples(
        data="0" * 16,
        classes=tuple(
            ClassSamples(name=name, images=images, thumbnails=(image,) * min(4, images))
            for name, images in classes
        ),
    )


def _answers(trial: int) -> ReportedLabels:
    image = thumbnail(np.full((1, 8, 8), 128, np.uint8))
    mistake = Mistake(true="oak", predicted="elm", probability=0.9, probability_true=0.05, thumbnail=image)
    return ReportedLabels(
        trial=trial,
        images=30,
        accuracy=0.8,
        classes=class_scores(("oak", "elm", "ash"), *pairs_of(CONFUSION)),
        confusion=CONFUSION,
        mistakes=(mistake,) * 3,
    )
