"""Compares a student's outputs with its teacher's: each loss has one number an image.

Logits have the shape [B, K], or [B, K, h, w] with one answer for each pixel of a map; then an image's loss
is the sum over its pixels that count, divided by all of its pixels, as every loss of a segmentation is.
`counted` says which do: True where a pixel does, [B, h, w]. So a batch's loss, the mean over images, is the
same however the batch is cut.
"""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn

from trainable.augmentation.sizes import of_size
from trainable.errors import ModelError
from trainable.models.groups import head_layers
from trainable.recipe.distillation import SECTION
from trainable.training.evaluate import Outputs
from trainable.training.task import Compared

CLASSES = 1  # the dimension of logits that holds a number for each class
# A hint's squared length counts as at least so much, or a teacher that is silent would divide by zero
LEAST_LENGTH = 1e-12


def softened_divergence(
    student: Tensor, teacher: Tensor, temperature: float, counted: Tensor | None = None
) -> Tensor:
    """Return T^2 * KL(teacher || student) of both softmaxes at the temperature T, [B], in nats.

    T^2 keeps the gradient's size where the temperature changes (Hinton et al., arXiv 1503.02531, section 2).
    """
    ours = (student / temperature).log_softmax(CLASSES)
    theirs = (teacher / temperature).log_softmax(CLASSES)
    return temperature**2 * _over_pixels(_divergence(theirs, ours), counted)


def decoupled_divergence(compared: Compared, temperature: float, alpha: float, beta: float) -> Tensor:
    """Return T^2 * (alpha * TCKD + beta * NCKD) at the temperature T, [B] (Zhao et al., arXiv 2203.08679,
    equation 8).

    TCKD compares how probable the true class is (true or not, two classes), NCKD the probabilities of the
    other classes among themselves. With one other class alone NCKD is 0.
    """
    student, teacher, truth, counted = compared
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


MAPS = 4  # features with so many dimensions are maps, [B, F, h, w]


@final
class Learner(nn.Module):
    """A student with a learnt linear map from what its head is given to the teacher's features
    (Romero et al., arXiv 1412.6550, section 2.2).

    The map is a 1x1 convolution where both have maps of features, and else a linear layer of their means
    over pixels. It is trained with the student, and no part of it.
    """

    def __init__(self, network: nn.Module, student: Tensor, teacher: Tensor) -> None:
        """Take what both heads are given for the same images."""
        super().__init__()
        self.network = network
        self.as_maps = student.ndim == teacher.ndim == MAPS
        ours, theirs = student.shape[1], teacher.shape[1]
        self.regressor = nn.Conv2d(ours, theirs, 1) if self.as_maps else nn.Linear(ours, theirs)

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """Return the student's outputs, and behind them what the map makes of its features."""
        outputs, features = with_features(self.network, images)
        hint: Tensor = self.regressor(features if self.as_maps else pooled(features))
        return (*(outputs if isinstance(outputs, tuple) else (outputs,)), hint)


def with_features(network: nn.Module, images: Tensor) -> tuple[Outputs, Tensor]:
    """Return a network's outputs, and a copy of what its head is given for them, in its mode.

    Raises ModelError for a network that does not call its head.
    """
    given: list[Tensor] = []
    first = next(iter(head_layers(network)))
    handle = first.register_forward_pre_hook(lambda _, inputs: given.append(inputs[0].clone()))
    try:
        outputs: Outputs = network(images)
    finally:
        handle.remove()
    if not given or not isinstance(given[0], Tensor) or given[0].ndim < 2:
        raise ModelError(
            f"{SECTION}.kind features: expected a network whose last linear layer or convolution is given "
            f"one tensor of features; {type(network).__name__} gives it something else"
        )
    return outputs, given[0]


def pooled(features: Tensor) -> Tensor:
    """Return features [B, F] as they are, and the means of maps [B, F, ...] over their pixels."""
    return features if features.ndim == 2 else features.flatten(2).mean(2)


def alike(hint: Tensor, student: Tensor) -> Tensor:
    """Return a teacher's features in the form that a student's hint has: means over pixels, or maps of the
    same size."""
    if student.ndim != MAPS:
        return pooled(hint)
    return of_size(hint, student.shape[-2:])
