"""What one epoch of training reports: the only vocabulary of metrics, each with its unit."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, Self

Mode = Literal["max", "min"]

OBJECTIVES: dict[str, Mode] = {
    "val_accuracy": "max",
    "val_balanced_accuracy": "max",
    "val_top5_accuracy": "max",
    "val_loss": "min",
}
"""The metrics that a search may optimise, and in which direction each is better."""


@dataclass(frozen=True, kw_only=True)
class EpochResult:
    """The numbers of one epoch; every one finite, also when the run diverged.

    Accuracies are fractions in [0, 1]; losses are nats an image; training figures are taken on the augmented
    images as they were trained on, `val_*` on the whole validation part with the weights, averaged where
    `regularisation.averaging` says so. A diverged epoch carries `worst(classes)` in its scores.
    """

    epoch: int
    """Epochs done, counting from 1."""
    train_loss: float
    train_accuracy: float
    val_loss: float
    val_accuracy: float
    val_balanced_accuracy: float
    """Mean recall over the classes that the validation part holds."""
    val_top5_accuracy: float | None
    """None where there are ten classes or fewer."""
    applied_lr: float
    """The learning rate applied at the epoch's last step (after scaling with the batch)."""
    grad_norm: float
    """Mean L2 norm of the gradient before clipping, over the steps that measure it: each where it is clipped
    or scaled, else every eighth."""
    skipped_steps: int
    """Optimizer steps left out because an fp16 gradient overflowed."""
    epoch_seconds: float
    """Training and evaluation together."""
    data_seconds: float
    """Spent waiting for batches while training."""
    evaluation_seconds: float
    images_per_second: float
    """Training images over training seconds."""
    peak_memory_bytes: int
    """Most GPU memory held since the run began. On a CPU it is the most that the process has held since it
    started, so in a search's actor, which serves trial after trial, an earlier trial's peak may be in it."""
    micro_batch: int
    """Most images that a rank trained on at once in the last step: fewer than asked for after running out of
    memory."""
    clean_train_accuracy: float | None = None
    """In the last epoch: of the training images (a sample of them where they are many) as validation images
    are scored, not augmented."""
    diverged: bool = False

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"{field.name} must be finite, got {value}")

    def metrics(self) -> dict[str, float]:
        """The numbers by name, without `epoch` and `diverged`; None left out."""
        return {
            name: value
            for name, value in vars(self).items()
            if value is not None and name not in ("epoch", "diverged")
        }

    def score(self, objective: str) -> float | None:
        """The value of an objective; None where it was not measured. Raises KeyError for another name."""
        if objective not in OBJECTIVES:
            raise KeyError(objective)
        value: float | None = getattr(self, objective)
        return value

    @classmethod
    def from_tree(cls, tree: dict[str, Any]) -> Self:
        return cls(**tree)

    def tree(self) -> dict[str, Any]:
        return asdict(self)


def worst(metric: str, classes: int) -> float:
    """The worst finite value of a metric: 0 for accuracies, ten times the loss of guessing for losses.

    Guessing uniformly among K classes costs ln K nats; a run that diverged is ranked behind any that guesses.
    """
    return 0.0 if OBJECTIVES.get(metric, "max") == "max" else 10.0 * math.log(max(classes, 2))
