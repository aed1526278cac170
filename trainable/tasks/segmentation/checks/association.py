"""Tests whether a network's answers depend on the masks: each image's answers are compared with its own mask
and with the masks of other images, by an exact permutation test."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from trainable.checks.short_training import SURE
from trainable.recipe.tasks import IGNORED
from trainable.tasks.segmentation.losses import enlarged

# Answers with this gain know where classes are. A net that learnt the masks of other images may still guess a
# little, as unusual pixels are more often of an object: its gain was at most 0.11 on two sets, where one that
# learnt the right masks had 0.43 and more after as many steps.
KNOWN_GAIN = 0.2

# Answers and masks are compared at this side in pixels at most: all pairs of 100 images in a second
SIDE = 64


@dataclass(frozen=True)
class MaskAssociation:
    """Answers compared with the masks of their images, and of other images.

    `mean_iou` is that of answers with their own masks, `chance` with those of all other images. `score`
    counts standard errors by which the probabilities of the true classes are above those for other images'
    masks. `gain` is the share of the loss with other images' masks that is gone with their own: 1 if all is
    known, and 0 for answers that know no more than where which class usually is. `deviation` is how far the
    mean IoU of one image is from that of another.
    """

    images: int
    mean_iou: float
    chance: float
    score: float
    gain: float
    deviation: float

    @property
    def is_sure(self) -> bool:
        """Whether answers fit their own masks better than those of other images."""
        return self.score > SURE

    @property
    def is_knowledge(self) -> bool:
        """Whether answers know where the classes of their images are, beyond luck."""
        return self.is_sure and self.gain > KNOWN_GAIN

    @property
    def skill(self) -> float:
        """The mean IoU above chance, as a share of the most that is possible above it."""
        return (self.mean_iou - self.chance) / max(1.0 - self.chance, 1e-9)

    def __str__(self) -> str:
        return f"mean IoU {self.mean_iou:.1%}, {self.chance:.1%} with the masks of other images"


def associate_masks(logits: Tensor, masks: Tensor) -> MaskAssociation:
    """Compare logits [N, K, h, w] with masks [N, h, w] of the same size; images whose masks are ignored
    whole are left out.

    The sum of the probabilities of the true classes is compared with its mean and variance over all
    permutations of the masks, which are known exactly (Hoeffding 1951, Ann. Math. Stat. 22:558, theorem 2).
    Raises ValueError for fewer than two images.
    """
    there = (masks != IGNORED).flatten(1).any(1)
    logits, masks = logits[there].float().flatten(2), masks[there].flatten(1)
    if len(masks) < 2:
        raise ValueError(f"expected two images or more, got {len(masks)}")
    logarithms, answers = logits.log_softmax(1), logits.argmax(1)
    columns = [_with(logarithms, mask) for mask in masks]
    fits = torch.stack([probability for probability, _ in columns], 1)
    losses = torch.stack([loss for _, loss in columns], 1)
    own, all_pairs = _hits(answers, masks, logits.shape[1])
    mean_loss = float((losses.sum() - losses.trace()) / (losses.numel() - len(losses)))
    return MaskAssociation(
        images=len(masks),
        mean_iou=mean_iou(own.sum(0)),
        chance=mean_iou((all_pairs - own).sum(0)),
        score=_score(fits),
        gain=1.0 - float(losses.diagonal().mean()) / mean_loss if mean_loss > 0.0 else 0.0,
        deviation=float(torch.tensor([mean_iou(each) for each in own]).std()),
    )


def batch_iou(logits: Tensor, masks: Tensor) -> float:
    """Return the mean IoU of the pixels of a batch: of logits [B, K, h, w], enlarged, and masks [B, H, W]; 0
    if all of them are ignored."""
    answers, counted = enlarged(logits, masks).argmax(1), masks != IGNORED
    if not counted.any():
        return 0.0
    return mean_iou(counts_of(answers[counted], masks[counted], logits.shape[1]))


def at_one_side(logits: Tensor, masks: Tensor) -> tuple[Tensor, Tensor]:
    """Return logits [B, K, h, w] and masks [B, H, W] at the masks' size, or at SIDE if that is larger."""
    side = (min(masks.shape[-2], SIDE), min(masks.shape[-1], SIDE))
    shrunk = side[0] < logits.shape[-2]
    logits = functional.interpolate(logits, size=side, mode="bilinear", antialias=shrunk)
    small = functional.interpolate(masks[:, None].byte(), size=side, mode="nearest-exact")
    return logits, small[:, 0].long()


def _with(logarithms: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean probability [N], and the mean loss [N], of one mask's classes [P] in all answers."""
    counted = mask != IGNORED
    classes = mask[counted].expand(len(logarithms), 1, -1)
    of_mask = logarithms[:, :, counted].gather(1, classes)[:, 0].double()
    return of_mask.exp().mean(1), -of_mask.mean(1)


def _hits(answers: Tensor, masks: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Return pixels that are right, answered and true, of each image's answers [N, P]: with its own mask, and
    with all masks together, [N, 3, K]."""
    own, together = [], []
    for number, answer in enumerate(answers):
        counted = masks != IGNORED
        shown, answered = masks[counted], answer.expand_as(masks)[counted]
        together.append(counts_of(answered, shown, classes))
        mine = counted[number]
        own.append(counts_of(answer[mine], masks[number][mine], classes))
    return torch.stack(own), torch.stack(together)


def counts_of(answered: Tensor, true: Tensor, classes: int) -> Tensor:
    return torch.stack(
        [torch.bincount(each, minlength=classes) for each in (true[answered == true], answered, true)]
    )


def mean_iou(counts: Tensor) -> float:
    """Return the mean IoU of pixels that are right, answered and true, [3, K]."""
    right, answered, true = counts.double()
    union = answered + true - right
    return float((right / union.clamp_min(1.0))[union > 0].mean())


def _score(fits: Tensor) -> float:
    """Return by how many standard errors the trace of a matrix [N, N] is above that of a permuted one."""
    count = len(fits)
    expected = float(fits.sum()) / count
    centred = fits - fits.mean(0) - fits.mean(1, keepdim=True) + fits.mean()
    deviation = math.sqrt(max(float(centred.square().sum()) / (count - 1), 1e-24))
    return (float(fits.trace()) - expected) / deviation
