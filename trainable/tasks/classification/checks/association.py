"""Tests whether answers depend on the labels: an exact permutation test, for balanced and other data."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from trainable.checks.short_training import SURE

# A network that learnt nothing true may still give all images of a class one answer, and be right by luck:
# with two classes, in three quarters of cases. Its probabilities stay near those of guessing: of 36 nets of
# 2, 3 and 10 classes, taught shuffled labels of digits and clothes, none gained more than 0.16 divided by the
# number of classes.
LUCK = 0.2


@dataclass(frozen=True)
class Association:
    """Answers compared with labels.

    `score` counts standard errors above what answers that know nothing would reach by chance. `accuracy` is
    the share of right answers, and `chance` is that share for the same answers and labels, shuffled. `gain`
    is the share of the labels' entropy that the probabilities remove: 1 if everything is known, 0 for
    guessing by the frequency of the labels, and below 0 for sure and wrong answers.
    """

    images: int
    classes: int
    accuracy: float
    chance: float
    score: float
    gain: float

    @property
    def is_sure(self) -> bool:
        """Whether answers are better than chance, image by image; whole classes may still be right by
        luck."""
        return self.score > SURE

    @property
    def is_knowledge(self) -> bool:
        """Whether answers are better than chance and than luck."""
        return self.is_sure and (self.gain > LUCK / self.classes or self.is_beyond_luck)

    @property
    def is_beyond_luck(self) -> bool:
        """Whether answers are better than if each class had one answer at random:
        never so with few classes.

        The share of classes that get their own answer at random has a standard deviation of sqrt(K - 1) /
        K^1.5.
        """
        luck = math.sqrt(self.classes - 1) / self.classes**1.5
        return self.is_sure and self.accuracy - self.chance > SURE * luck

    @property
    def skill(self) -> float:
        """Accuracy above chance, as a share of the most that is possible above it; at most 1."""
        return (self.accuracy - self.chance) / max(1.0 - self.chance, 1e-9)

    def __str__(self) -> str:
        return f"{self.accuracy:.1%} right, {self.chance:.1%} by chance"


def associate(logits: Tensor, labels: Tensor) -> Association:
    """Compare logits [N, K] with labels [N].

    The sum of the probabilities of the true labels is compared with its mean and variance over all
    permutations of the labels, which are known exactly (Hoeffding 1951, Ann. Math. Stat. 22:558, theorem 2).
    Probabilities say more than answers: on unbalanced data, every answer may be the largest class.
    """
    count, classes = logits.shape
    probabilities = logits.double().softmax(1)
    held = torch.bincount(labels, minlength=classes).double()
    total = probabilities.gather(1, labels[:, None]).sum()
    expected = (probabilities @ held).sum() / count
    centred = probabilities - probabilities.mean(0)
    centred = centred - (centred @ held)[:, None] / count
    variance = (centred.square() @ held).sum() / max(count - 1, 1)
    deviation = math.sqrt(max(float(variance), 1e-24))
    answers = logits.argmax(1)
    guessed = torch.bincount(answers, minlength=classes).double()
    return Association(
        images=count,
        classes=classes,
        accuracy=float((answers == labels).double().mean()),
        chance=float(guessed @ held) / count**2,
        score=float(total - expected) / deviation,
        gain=_gain(logits.double(), labels, held / count),
    )


def _gain(logits: Tensor, labels: Tensor, shares: Tensor) -> float:
    entropy = float(torch.special.entr(shares).sum())
    loss = float(functional.cross_entropy(logits, labels))
    return (entropy - loss) / entropy if entropy > 0.0 and math.isfinite(loss) else 0.0
