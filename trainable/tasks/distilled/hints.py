"""Maps a student's last features to its teacher's, so that they can be compared: hints (arXiv 1412.6550)."""

from __future__ import annotations

from typing import final

from torch import Tensor, nn

from trainable.augmentation.sizes import of_size
from trainable.errors import ModelError
from trainable.models.cut import head_layers
from trainable.recipe.distillation import SECTION
from trainable.training.evaluate import Outputs

MAPS = 4
"""Features with so many dimensions are maps, [B, F, h, w]."""


@final
class Learner(nn.Module):
    """Holds a student with a learnt linear map from what its head is given to the teacher's features
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
