"""Teaches a small net masks for seconds, and measures what it knows of validation images."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trainable.checks.finding import Finding, unchecked
from trainable.checks.mask_association import MaskAssociation, associate_masks, at_one_side
from trainable.checks.mask_sampling import window_sample
from trainable.checks.subject import PLAIN, Subject, train
from trainable.data import DataSet, resolve
from trainable.data.measure import some
from trainable.data.source import Flip
from trainable.recipe import Recipe
from trainable.recipe.data import Split
from trainable.recipe.tasks import IGNORED
from trainable.run import make_run
from trainable.tasks.segmentation.data.loading import PIXELS_AT_ONCE
from trainable.training.evaluate import full_precision
from trainable.training.run import Run

WINDOW, SHOWN = 128, 64
"""A window shows so many pixels of an image, in half as many: what a small net on a CPU learns in seconds."""
TRAIN, VALIDATION = 600, 100
STEPS = 200
BATCH = 16
FEW = 8
"""Of fewer validation images, one order in 5,040 or less fits best by luck, and nothing is sure."""

PUPIL: Mapping[str, Any] = {
    "model.kind": "unet_small",
    "model.levels": 2,
    "model.width": 12,
    "optimizer.kind": "adam",
    "optimizer.lr": 3e-3,
    "optimizer.scaling": "none",
}
"""A small net that learns nearly anything fast tests the data: the recipe's own may be slow."""


@dataclass(frozen=True)
class MaskLesson:
    """Holds what a small net learnt from windows of images: its scores on their masks, on those of validation
    images, and on those of their mirrors."""

    train: MaskAssociation
    validation: MaskAssociation
    mirrored: Mapping[Flip, MaskAssociation]
    confused: Mapping[Flip, tuple[str, str, float] | None]
    """For each flip, this names the class that is most often mistaken for another when mirrored, that other
    class, and in how many of its pixels."""
    steps: int


def teach_masks(subject: Subject, seconds: float) -> MaskLesson | Finding:
    """Train a small net on windows for at most `seconds`, and measure what it knows; a finding if there are
    too few validation images to tell."""
    side = min(subject.data.info.image_size, WINDOW)
    sample = window_sample(subject.data, train=TRAIN, validation=VALIDATION, side=side, shown=SHOWN)
    if len(sample.validation) < FEW:
        return unchecked(
            "learning", f"too few validation images have masks that count: {len(sample.validation)}"
        )
    run = make_run(_pupil_recipe(subject.recipe, sample), data=sample, device=subject.device)
    try:
        with run.probing():
            steps = train(run, steps=STEPS, lr=run.recipe.optimizer.lr, seconds=seconds)
            learnt = associate_masks(*answered(run, "train"))
            plain, masks = answered(run, "validation")
            turned: dict[Flip, Tensor] = {
                "horizontal": answered(run, "validation", lambda images: images.flip(-1))[0],
                "vertical": answered(run, "validation", lambda images: images.flip(-2))[0],
            }
    finally:
        run.close()
    names = sample.info.classes
    return MaskLesson(
        train=learnt,
        validation=associate_masks(plain, masks),
        mirrored={flip: associate_masks(logits, masks) for flip, logits in turned.items()},
        confused={flip: _most_confused(plain, logits, masks, names) for flip, logits in turned.items()},
        steps=steps,
    )


@torch.inference_mode()
def answered(
    run: Run, part: Split, turned: Callable[[Tensor], Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """Return what a run's network answers to windows of a part, at most VALIDATION of them, and their masks,
    at `SIDE` pixels at most and on the CPU: [N, K, h, w] and [N, h, w].

    Windows may be shown turned, by a function that turns its own result back. Call it in `probing`: it leaves
    the network in evaluation mode.
    """
    run.model.eval()
    positions = some(len(run.parts[part]), VALIDATION)
    at_once = max(1, PIXELS_AT_ONCE // run.info.image_size**2)
    found = []
    for images, masks in run.images.evaluate(part, positions, at_once):
        logits = full_precision(run.model(images if turned is None else turned(images)))
        logits = logits if turned is None else turned(logits)
        found.append([each.cpu() for each in at_one_side(logits, masks)])
    return torch.cat([logits for logits, _ in found]), torch.cat([masks for _, masks in found])


def _pupil_recipe(recipe: Recipe, sample: DataSet) -> Recipe:
    values = {**PLAIN, **PUPIL, "loop.batch_size": min(BATCH, len(sample.train))}
    data = resolve(recipe.data.model_copy(update={"image_size": None, "normalisation": "data"}), sample.info)
    task = {"task.kind": "segmentation", "loop.seed": recipe.loop.seed}
    base = Recipe().with_values({**task, "precision.kind": recipe.precision.kind, **values})
    return base.model_copy(update={"data": data})


def _most_confused(
    plain: Tensor, turned: Tensor, masks: Tensor, names: tuple[str, ...]
) -> tuple[str, str, float] | None:
    """Return, among pixels that are right unmirrored, the class that most often becomes one other."""
    right = (plain.argmax(1) == masks) & (masks != IGNORED)
    pairs = masks[right] * len(names) + turned.argmax(1)[right]
    counts = torch.bincount(pairs, minlength=len(names) ** 2).view(len(names), len(names)).double()
    shares = counts / counts.sum(1, keepdim=True).clamp_min(1.0)
    shares.fill_diagonal_(0.0)
    source, target = divmod(int(shares.argmax()), len(names))
    most = float(shares[source, target])
    return (names[source], names[target], most) if most > 0.0 else None
