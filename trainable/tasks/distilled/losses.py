"""Compares a student's outputs with its teacher's: each loss has one number an image.

Logits have the shape [B, K], or [B, K, h, w] with one answer for each pixel of a map; then an image's loss
is the sum over its pixels that count, divided by all of its pixels, as every loss of a segmentation is.
`counted` says which do: True where a pixel does, [B, h, w]. So a batch's loss, the mean over images, is the
same however the batch is cut.
"""

from __future__ import annotations

import torch
from torch import Tensor

CLASSES = 1
"""The dimension of logits that holds a number for each class."""
LEAST_LENGTH = 1e-12
"""A hint's squared length counts as at least so much, or a teacher that is silent would divide by zero."""


def softened_divergence(
    student: Tensor, teacher: Tensor, temperature: float, counted: Tensor | None = None
) -> Tensor:
    """Return T^2 * KL(teacher || student) of both softmaxes at the temperature T, [B], in nats.

    T^2 keeps the gradient's size where the temperature changes (Hinton et al., arXiv 1503.02531, section 2).
    """
    ours = (student / temperature).log_softmax(CLASSES)
    theirs = (teacher / temperature).log_softmax(CLASSES)
    return temperature**2 * _over_pixels(_divergence(theirs, ours), counted)


def decoupled_divergence(
    student: Tensor,
    teacher: Tensor,
    truth: Tensor,
    temperature: float,
    alpha: float,
    beta: float,
    counted: Tensor | None = None,
) -> Tensor:
    """Return T^2 * (alpha * TCKD + beta * NCKD) at the temperature T, [B] (Zhao et al., arXiv 2203.08679,
    equation 8).

    `truth` are the true classes, int64 [B] or [B, h, w]; those of pixels that do not count may be any number.
    TCKD compares how probable the true class is (true or not, two classes), NCKD the probabilities of the
    other classes among themselves. With one other class alone NCKD is 0.
    """
    if counted is not None:
        truth = truth.where(counted, 0)
    target = torch.zeros_like(student, dtype=torch.bool).scatter_(CLASSES, truth.unsqueeze(CLASSES), True)
    ours, theirs = (_decoupled(each / temperature, target) for each in (student, teacher))
    of_target, of_others = (_divergence(those, these) for these, those in zip(ours, theirs, strict=True))
    return temperature**2 * _over_pixels(alpha * of_target + beta * of_others, counted)


def hint_distance(student: Tensor, teacher: Tensor) -> Tensor:
    """Return |teacher - student|^2 / |teacher|^2 over all features of each image, [B].

    This is the loss of hints (Romero et al., arXiv 1412.6550, equation 3) in units of the hint's length: an
    answer of zeros has a loss of 1, whatever the teacher.
    """
    error = (teacher - student).flatten(1).square().sum(1)
    return error / teacher.flatten(1).square().sum(1).clamp(min=LEAST_LENGTH)


def _decoupled(logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return the logarithms of the probabilities of true and not true, [B, 2, ...], and of the other classes
    among themselves, [B, K, ...], in which the true one has -inf."""
    logarithms = logits.log_softmax(CLASSES)
    others = logarithms.masked_fill(target, -torch.inf)
    rest = others.logsumexp(CLASSES, keepdim=True)
    true = logarithms.masked_fill(~target, 0.0).sum(CLASSES, keepdim=True)
    return torch.cat([true, rest], CLASSES), others - rest


def _divergence(theirs: Tensor, ours: Tensor) -> Tensor:
    """Return KL(theirs || ours) of logarithms of probabilities over classes; what has no probability in both
    adds nothing."""
    absent = theirs.isneginf()
    gaps = theirs.masked_fill(absent, 0.0) - ours.masked_fill(absent, 0.0)
    return (theirs.exp() * gaps).sum(CLASSES)


def _over_pixels(values: Tensor, counted: Tensor | None) -> Tensor:
    """Return the sum of [B, ...] over what counts in each image, divided by its pixels' number, [B]."""
    if values.ndim == 1:
        return values
    return (values if counted is None else values * counted).flatten(1).mean(1)
