"""Scores trained weights as a run does, and checks that exported files answer as they do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from trainable.bundle.answering import Answer
from trainable.bundle.parity import check_masks, check_parity, images_of_masks, stored_images, top_classes
from trainable.bundle.trained import Trained, in_fp32
from trainable.data import Split
from trainable.errors import UserError
from trainable.run import make_run
from trainable.tasks.segmentation.predicted import KeptMasks
from trainable.training.bootstrap import Intervals, resampled_scores
from trainable.training.evaluate import Scores

Say = Callable[[str], None]


@dataclass(frozen=True)
class Scored:
    """Holds what a run answers on a part, in fp32, and how sure its scores are; `masks` of a segmentation."""

    part: Split
    scores: Scores
    intervals: Intervals
    masks: KeptMasks | None


def scored(trained: Trained, part: Split) -> Scored:
    """Return what a run answers with these very weights. Raises UserError if it is not finite."""
    kept = KeptMasks() if trained.data.info.dense else None
    run = make_run(in_fp32(trained.recipe), data=trained.data, model=trained.network().float())
    try:
        take = kept.take if kept is not None else None
        scores = run.score(part, confusion=True, answers=True, take=take)
        sure = resampled_scores(scores, run.extra_metrics, trained.recipe.loop.seed)
    finally:
        run.close()
    if sure is None:
        raise UserError("the weights answer with numbers that are not finite: there is nothing to bundle")
    return Scored(part, scores, sure.intervals(), kept)


def checked(
    trained: Trained, answers: Mapping[str, Answer], found: Scored, about: dict[str, Any], say: Say
) -> dict[str, float]:
    """Return, by file, the share of a part's images, or of their pixels, with the run's top class. Raises
    ExportError where it is too low. `say` receives a line for each file."""
    shares: dict[str, float] = {}
    what = "of them" if found.masks is None else "of their pixels"
    for name, answer in answers.items():
        shares[name] = _share(trained, name, answer, found, about)
        say(f"{name}: the same top class on {shares[name]:.2%} {what}")
    return shares


def _share(trained: Trained, name: str, answer: Answer, found: Scored, about: dict[str, Any]) -> float:
    data, recipe = trained.data, trained.recipe
    if found.masks is not None:
        return check_masks(name, answer, images_of_masks(data, recipe, found.part), about, found.masks)
    assert found.scores.answers is not None
    images = stored_images(data, recipe.data, found.part, about)
    return check_parity(name, top_classes(answer, images), found.scores.answers.predicted.numpy())
