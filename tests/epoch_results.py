"""Results of epochs, for tests that care about a few of their numbers."""

from __future__ import annotations

from typing import Any

from trainable.training.metrics import EpochResult


def epoch_result(epoch: int = 1, **changes: Any) -> EpochResult:
    """An unremarkable epoch with some numbers as a test needs them."""
    usual: dict[str, Any] = {
        "epoch": epoch,
        "train_loss": 1.0,
        "train_accuracy": 0.5,
        "val_loss": 1.0,
        "val_accuracy": 0.5,
        "val_balanced_accuracy": 0.5,
        "val_top5_accuracy": None,
        "applied_lr": 0.1,
        "grad_norm": 1.0,
        "skipped_steps": 0,
        "epoch_seconds": 1.0,
        "data_seconds": 0.1,
        "evaluation_seconds": 0.1,
        "images_per_second": 100.0,
        "peak_memory_bytes": 1,
        "micro_batch": 64,
    }
    return EpochResult(**(usual | changes))
