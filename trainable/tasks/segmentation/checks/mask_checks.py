"""What the checks ask of images with masks; and a network that answers for each pixel, before any step."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import final

import torch
from torch import Tensor
from torch.nn import functional

from trainable.array_types import Integers
from trainable.checks.finding import Finding, Level, guarded, passed
from trainable.checks.networks import FAR_TOO_HIGH, IMAGES, LOW, about_outputs, misshapen
from trainable.checks.sampling import NamedImage
from trainable.checks.subject import Subject, TaskChecks
from trainable.data import DataSet, Split
from trainable.recipe import Recipe
from trainable.recipe.data import Data
from trainable.recipe.tasks import IGNORED
from trainable.tasks.segmentation.checks.association import batch_iou, counts_of, mean_iou
from trainable.tasks.segmentation.checks.learning import check_mask_lessons, check_shuffled_masks
from trainable.tasks.segmentation.checks.masks import (
    check_mask_contradictions,
    check_masks,
)
from trainable.tasks.segmentation.losses import cross_entropy, enlarged
from trainable.training.evaluate import full_precision, main_output
from trainable.training.run import Run

# Networks begin below this times ln K: six seeds each of unet_small, of smp's unet and segformer over
# resnet18, and of torchvision's lraspp, with 2 and 21 classes, at 0.8 to 1.9; smp's fpn begins at up to 6
HIGH = 2.0

# Below these ceilings of the mean IoU, the outputs' size limits a score, or decides it; ours
COARSE, TOO_COARSE = 0.95, 0.8


@final
class MaskChecks(TaskChecks):
    """Checks of masks, and of networks that answer with a label for each pixel."""

    logits = "[B, classes, h, w]"
    at_once = 1  # images keep their sizes
    by_heart = 0.9  # the last pixels of borders take many more steps; ours

    def of_targets(self, data: DataSet, recipe: Recipe) -> Iterator[Finding]:
        yield from guarded("mask values", lambda: check_masks(data, recipe))

    def contradictions(self, data: DataSet, groups: Sequence[Sequence[NamedImage]]) -> Finding:
        return check_mask_contradictions(data, groups)

    def check_split(self, data: DataSet, groups: Mapping[Split, Integers], spec: Data) -> None:
        """Refuse nothing: what is split are the groups, by the classes that their masks show."""

    def lessons(self, subject: Subject, seconds: float) -> Iterator[Finding]:
        yield from check_mask_lessons(subject, seconds)

    def outputs(self, run: Run, images: Tensor) -> Iterator[Finding]:
        yield from check_mask_outputs(run, images)
        yield check_resolution(run)

    def initial_loss(self, run: Run) -> Finding:
        return check_initial_mask_loss(run)

    def score(self, outputs: Tensor, targets: Tensor) -> float:
        """Return the mean IoU of the pixels of a batch."""
        return batch_iou(outputs, targets)

    def score_in_words(self, score: float) -> str:
        return f"mean IoU {score:.0%}"

    def shuffled(self, subject: Subject, seconds: float) -> Iterator[Finding]:
        yield from guarded("shuffled masks", lambda: [check_shuffled_masks(subject, seconds)])


def check_mask_outputs(run: Run, images: Tensor) -> Iterator[Finding]:
    """Yield whether outputs in evaluation are logits [B, classes, h, w] no larger than the windows, are
    finite, and depend on their own image alone."""
    run.model.eval()
    with torch.inference_mode():
        together, alone = full_precision(run.model(images)), full_precision(run.model(images[:1]))
    count, classes, (height, width) = len(images), len(run.info.classes), images.shape[-2:]
    got = tuple(together.shape) if isinstance(together, Tensor) else type(together).__name__
    fits = isinstance(together, Tensor) and together.ndim == 4 and together.shape[:2] == (count, classes)
    if not fits or together.shape[2] > height or together.shape[3] > width:
        yield misshapen(got, f"({count}, {classes}, h, w), h and w at most {height}")
        return
    yield about_outputs(together, alone)


def check_resolution(run: Run) -> Finding:
    """Return whether outputs are fine enough for the masks: which mean IoU they reach at most, about, if
    each has the share of every class in the pixels that it stands for. Call it in `probing`."""
    images, masks = next(run.windows())[0]
    run.model.eval()
    with torch.inference_mode():
        height, width = run.model(images[:1]).shape[-2:]
    side = masks.shape[-1]
    what = f"outputs of {width} x {height} for windows of {side} x {masks.shape[-2]} px"
    if (height, width) == tuple(masks.shape[-2:]):
        return passed("resolution", what)
    best = ceiling(masks, (height, width), len(run.info.classes))
    what = f"{what}: the masks at that size, enlarged again, have a mean IoU of {best:.1%} with themselves"
    if best >= COARSE:
        return passed("resolution", what)
    level: Level = "note" if best >= TOO_COARSE else "warning"
    return Finding(
        "resolution",
        level,
        what,
        "borders and small objects are finer than the outputs: no training brings a score far above that",
        "a network with finer outputs (model: {kind: smp, name: unet} answers for every pixel), or a smaller "
        "model.output_stride where it has one",
    )


def ceiling(masks: Tensor, size: tuple[int, int], classes: int) -> float:
    """Return the mean IoU of masks int64 [B, H, W] with themselves, shrunk to shares of classes at `size`,
    and enlarged as outputs are."""
    counted = masks != IGNORED
    shown = functional.one_hot(masks.masked_fill(~counted, 0), classes).movedim(-1, 1).float()
    shares = functional.adaptive_avg_pool2d(shown * counted[:, None], size)
    answers = enlarged(shares, masks).argmax(1)
    return mean_iou(counts_of(answers[counted], masks[counted], classes))


def check_initial_mask_loss(run: Run) -> Finding:
    """Compare the cross-entropy before any step, with batch statistics and without augmentation, with that
    of guessing on the pixels that count; call it in `probing`."""
    classes, losses, seen = len(run.info.classes), 0.0, 0
    pixels = torch.zeros(classes + 1, dtype=torch.int64, device=run.device)
    run.model.train()
    with torch.no_grad():
        for window in run.windows():
            for images, masks in window:
                logits = enlarged(full_precision(main_output(run.model(images))), masks)
                losses += float(cross_entropy(logits, masks).sum())
                labels = masks.masked_fill(masks == IGNORED, classes).flatten()
                pixels += torch.bincount(labels, minlength=classes + 1)
                seen += len(masks)
            if seen >= IMAGES:
                break
    counts = pixels[:classes].double()
    if not counts.sum():
        return passed("initial loss", f"not compared: all pixels of {seen} windows are ignored")
    share = float(counts.sum() / pixels.sum())
    entropy = float(torch.special.entr(counts / counts.sum()).sum())
    return initial_mask_loss(losses / seen / share, classes, entropy)


def initial_mask_loss(loss: float, classes: int, entropy: float) -> Finding:
    """Return the finding about a first loss of counted pixels, whose shares of classes have this entropy in
    nats: an answer that is the same for every pixel has no lower loss than that."""
    guessing = math.log(classes)
    what = f"the loss of counted pixels before training is {loss:.3g}, that of guessing is ln {classes} = "
    what += f"{guessing:.3g}"
    if not loss <= HIGH * guessing:
        return Finding(
            "initial loss",
            "error" if not loss <= FAR_TOO_HIGH * guessing else "note",
            what,
            "the network is sure of wrong answers at first: the first steps only unlearn them",
            "smaller weights in the last layer, or model.initialisation; see that images are normalised",
        )
    if loss < LOW * min(guessing, entropy):
        return Finding(
            "initial loss",
            "warning",
            f"{what}, and that of the classes' shares {entropy:.3g}",
            "the network knows these masks already: it was trained on them, or they are in the images",
            "find out where its weights (model.weights) come from",
        )
    return passed("initial loss", what)
