"""What a whole run comes to, and how `metrics.json` says it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from trainable.diagnosis import Diagnosis
from trainable.recipe import Recipe
from trainable.training.bootstrap import Intervals
from trainable.training.evaluate import Scores
from trainable.training.metrics import EpochResult
from trainable.training.run import PREFIXES
from trainable.training.score_gap import ScoreGaps

MOST_PAIRS = 1_000  # confusions of many classes in metrics.json: their number would grow with the images


@dataclass(frozen=True)
class Outcome:
    """The result of a run: the recipe as it was trained, with its provenance, every epoch, the test
    part's scores if they were asked for, the diagnosis of the curves, and the intervals of the test scores
    and how far validation and test scores are apart, which a run that diverged has not."""

    recipe: Recipe
    history: tuple[EpochResult, ...]
    test: Scores | None
    diagnosis: Diagnosis
    intervals: Intervals | None = None
    gaps: ScoreGaps | None = None

    @property
    def diverged(self) -> bool:
        return self.history[-1].diverged

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.recipe.provenance.class_names if self.recipe.provenance is not None else ()

    def tree(self) -> dict[str, Any]:
        """Return what `train --json` prints:
        digest, last EpochResult and test metrics, flat, how sure these are, and the diagnosis."""
        return {**self.scores(), **self.sureness(), "diagnosis": self.diagnosis.tree()}

    def sureness(self) -> dict[str, Any]:
        """Return how sure the test metrics are, and how far from those of validation, if they were asked
        for."""
        found: dict[str, Any] = {}
        if self.intervals is not None:
            found["test_intervals"] = self.intervals.tree(PREFIXES["test"], self.class_names)
        return found if self.gaps is None else {**found, "validation_test_gap": self.gaps.tree()}

    def scores(self) -> dict[str, Any]:
        """Return digest, last EpochResult and test metrics, flat; of masks those of each class, too."""
        last = self.history[-1].tree()
        extra = last.pop("extra_metrics")
        return {"recipe": self.recipe.digest(), **last, **extra, **self._test_scores()}

    def _test_scores(self) -> dict[str, Any]:
        if self.test is None:
            return {}
        prefix = PREFIXES["test"]
        found = {**self.test.metrics(prefix), **confusion_tree(self.test, prefix, self.class_names)}
        by_class = by_class_tree(self.test, self.class_names)
        return {**found, "test_by_class": by_class} if by_class else found

    def metrics_file(self) -> bytes:
        """Return the content of `metrics.json`."""
        tree = {
            "recipe": self.recipe.digest(),
            "sentence": self.recipe.sentence,
            "class_names": self.class_names,
            "last": self.scores(),
            **self.sureness(),
            "diagnosis": self.diagnosis.tree(),
            "history": [result.tree() for result in self.history],
        }
        return (json.dumps(tree, indent=2, allow_nan=False) + "\n").encode()


def confusion_tree(scores: Scores, prefix: str, names: Sequence[str]) -> dict[str, Any]:
    """Return the confusion matrix; of too many classes for one, the most frequent confusions by name."""
    if scores.confusion is not None:
        return {f"{prefix}_confusion": scores.confusion}
    pairs = [
        {"true": names[each.true], "predicted": names[each.predicted], "images": each.times}
        for each in scores.most_confused(MOST_PAIRS)
    ]
    return {f"{prefix}_most_confused": pairs}


def by_class_tree(scores: Scores, names: tuple[str, ...]) -> dict[str, dict[str, float | None]]:
    """Return the scores of each class by their name and the class's: `{"iou": {"cat": 0.8}}`; none of labels
    of images."""
    return {name: dict(zip(names, values, strict=True)) for name, values in scores.by_class.items()}
