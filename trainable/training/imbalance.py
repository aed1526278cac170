"""Computes how much each class counts in the training loss, and how its logits are adjusted for that.

Sampling, class weights and logit adjustment all move the shares of the classes in the training loss. Each
starts from what the ones before it leave: weights of kind `inverse` change nothing under balanced sampling,
and an adjustment changes nothing where all classes count alike already. So none corrects twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, assert_never

import numpy as np
from numpy.typing import NDArray

from trainable.recipe.training import (
    ClassWeights,
    EffectiveNumberWeights,
    InverseWeights,
    NoClassWeights,
    Regularisation,
    Sampling,
)

if TYPE_CHECKING:  # torch takes seconds to import
    import torch
    from torch import Tensor

PerClass = NDArray[np.float64]  # one number for each class, [classes]


def shown_shares(held: NDArray[np.int64], sampling: Sampling) -> PerClass:
    """Return the share of each class in an epoch, from how many training images it has.

    The square root is that of arXiv 1805.00932, section 2.2; a class without images is not shown.
    """
    match sampling:
        case "natural":
            shown = held.astype(np.float64)
        case "sqrt":
            shown = np.sqrt(held)
        case "balanced":
            shown = (held > 0).astype(np.float64)
        case _:
            assert_never(sampling)
    return np.asarray(shown / shown.sum())


def class_weights(spec: ClassWeights, held: NDArray[np.int64], sampling: Sampling) -> PerClass | None:
    """Return the weight of an image of each class, 1 on average over an epoch; None where all are alike.

    Under natural sampling, inverse weights are 1 / n, and those of effective numbers 1 / E of a class of n
    images (Cui et al., arXiv 1901.05555, section 3), but for a common factor.
    """
    match spec:
        case NoClassWeights():
            return None
        case InverseWeights():
            wanted = np.ones(len(held))
        case EffectiveNumberWeights(beta=beta):
            wanted = held * (1.0 - beta) / (1.0 - beta**held)
        case _:
            assert_never(spec)
    shown = shown_shares(held, sampling)
    return np.asarray(wanted / shown / wanted.sum())


def adjustments(spec: Regularisation, held: NDArray[np.int64], sampling: Sampling) -> PerClass | None:
    """Return what is added to the logit of each class in training; None where that is nothing.

    It is tau times the log of the class's prior, so that scores without it count every class alike at a tau
    of 1 (Menon et al., arXiv 2007.07314, equation 10). The prior is the class's share in the training loss:
    without sampling and weights, its share of the training images.
    """
    if spec.logit_adjustment == 0.0:
        return None
    shares = shown_shares(held, sampling)
    weights = class_weights(spec.class_weights, held, sampling)
    prior = shares if weights is None else shares * weights
    return np.asarray(spec.logit_adjustment * np.log(prior / prior.sum()))


class ClassTerms(NamedTuple):
    """How much each class counts in the loss; None where all count alike."""

    weights: Tensor | None = None  # [classes], of their images or pixels
    adjustments: Tensor | None = None  # [classes], added to the logits


ALIKE = ClassTerms()


def class_terms(
    spec: Regularisation, counts: Sequence[int], sampling: Sampling, device: torch.device
) -> ClassTerms:
    """Return the terms of a recipe, on the device, from how many images or pixels each class has."""
    from torch import from_numpy

    held = np.array(counts)
    weights, adjusted = (
        None if each is None else from_numpy(each).to(device)
        for each in (class_weights(spec.class_weights, held, sampling), adjustments(spec, held, sampling))
    )
    return ClassTerms(weights, adjusted)
