"""Checks that one small batch can be learnt by heart (PyTorch tuning guide, 001:193)."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import torch

from trainable.checks.finding import Finding, passed, unchecked
from trainable.checks.steps import EXPLODED
from trainable.checks.subject import EASY, Subject, TaskChecks
from trainable.data.batch import Batch
from trainable.training.evaluate import full_precision, main_output
from trainable.training.optim import applied_lr
from trainable.training.run import Run

STEPS = 200  # the guide says 50 to 200 (001:193)

LOOK_EVERY = 5
FELL = 0.95  # a loss that fell to this share of the first was being learnt when time ran out
# A loss that the recipe's optimizer lowered to this share is on its way: its rate is slow, not wrong
HALF = 0.5
# Fewer steps say nothing: at a low rate, residual blocks that begin as the identity take so many to wake up
LEAST_STEPS = 40


def check_one_batch(subject: Subject, images: int, seconds: float) -> Finding:
    """Check whether one small batch is learnt by heart: with the recipe's optimizer, else with an easy one.

    The recipe's rate is tried unchanged, as for its own batch, and if that fails, scaled for so few images.
    """
    batch = min(images, len(subject.data.train))
    recipe = subject.recipe
    own: list[BatchAttempt] = []
    for size in dict.fromkeys((recipe.loop.batch_size, batch)):
        own.append(_learnt(subject, subject.plain_run(batch), applied_lr(recipe.optimizer, size), seconds))
        if own[-1].done:
            return passed("one batch", f"{batch} images learnt by heart in {own[-1].steps} steps")
        if not own[-1].in_time:
            break
    easy = _learnt(subject, subject.plain_run(batch, EASY), None, seconds)
    return finding_after_failure(own, easy, batch)


@dataclass(frozen=True)
class BatchAttempt:
    """How one batch was learnt."""

    losses: tuple[float, ...]
    score: float  # of the batch in the end, as its task scores it
    in_time: bool
    constant: bool  # all images had the same answer in the end
    checks: TaskChecks

    @property
    def done(self) -> bool:
        return self.score >= self.checks.by_heart

    @property
    def steps(self) -> int:
        return len(self.losses)

    @property
    def falling(self) -> bool:
        return math.isfinite(self.losses[-1]) and self.losses[-1] < FELL * self.losses[0]

    def __str__(self) -> str:
        first, last = self.losses[0], self.losses[-1]
        known = self.checks.score_in_words(self.score)
        return f"{known} after {self.steps} steps, loss {first:.3g} to {last:.3g}"


def finding_after_failure(own: list[BatchAttempt], easy: BatchAttempt, batch: int) -> Finding:
    """Return the finding about a batch that the recipe's optimizer did not learn, from how an easy one
    did."""
    best = min(own, key=lambda attempt: (-attempt.score, attempt.losses[-1]))
    if easy.done and best.losses[-1] < HALF * best.losses[0]:
        what = f"{batch} images learnt by heart by Adam at 0.001 in {easy.steps} steps"
        return passed("one batch", f"{what}; by the recipe's optimizer more slowly: {best}")
    if easy.done and not own[-1].in_time and own[-1].falling:
        return unchecked("one batch", f"there was not enough time: {best}", "give it more time: --seconds")
    if easy.done:
        grew = any(not each.losses[-1] < each.losses[0] for each in own)
        return Finding(
            "one batch",
            "warning",
            f"{batch} images are not learnt by heart by the recipe's optimizer: {best}; by Adam at 0.001 "
            f"they are, in {easy.steps} steps",
            f"its rate is too {'high' if grew else 'low'} for this network, or momentum or decay is wrong",
            f"{'lower' if grew else 'raise'} optimizer.lr: `tunebook lr-find` gives a band",
        )
    if not easy.in_time and (easy.falling or easy.steps < LEAST_STEPS):
        return unchecked("one batch", f"there was not enough time: {easy}", "give it more time: --seconds")
    what = f"{batch} images cannot be learnt by heart: {easy} (Adam at 0.001)"
    return Finding(
        "one batch",
        "error",
        what + (", and every image gets the same answer" if easy.constant else ""),
        "the network cannot learn: dead units, outputs that ignore inputs, or labels it cannot tell apart",
        "look at forward, and for what stops gradients: detach, argmax, a ReLU at the end, a constant input",
    )


def _learnt(subject: Subject, run: Run, lr: float | None, seconds: float) -> BatchAttempt:
    losses: list[float] = []
    score, constant, began = 0.0, False, time.perf_counter()
    with run.probing():
        window = _distinct(next(run.windows()))
        while not losses or (len(losses) < STEPS and time.perf_counter() - began < seconds):
            losses.append(float(run.train_on([window], lr)))
            if len(losses) % LOOK_EVERY == 0 or len(losses) == STEPS:
                score, constant = _known(subject.checks, run, window)
                if score >= subject.checks.by_heart or not losses[-1] <= EXPLODED * losses[0]:
                    break
        in_time = len(losses) == STEPS or not losses[-1] <= EXPLODED * losses[0]
    run.close()
    return BatchAttempt(tuple(losses), score, in_time, constant, subject.checks)


def _known(checks: TaskChecks, run: Run, window: Batch) -> tuple[float, bool]:
    """Return how well a batch is known, with its own statistics, and whether all answers are the same."""
    images, targets = window
    with torch.no_grad():
        outputs = main_output(full_precision(run.model(images)))
    same = bool((outputs - outputs[:1]).abs().max() <= 1e-6 * outputs.abs().max().clamp(min=1e-6))
    return checks.score(outputs, targets), same


def _distinct(window: list[Batch]) -> Batch:
    """Return one of each image: of two equal images with different labels only one can be right."""
    images = torch.cat([images for images, _ in window])
    labels = torch.cat([labels for _, labels in window])
    seen: dict[bytes, int] = {}
    for position, image in enumerate(images.cpu()):
        seen.setdefault(image.double().contiguous().numpy().tobytes(), position)
    distinct = torch.tensor(sorted(seen.values())).to(images.device)
    if len(distinct) < 2:  # nothing to tell apart, and BatchNorm needs two
        return images, labels
    return images[distinct], labels[distinct]
