"""Epochs of a run, made up for tests and simulations that need a few of their numbers."""

from __future__ import annotations

from typing import Any

from trainable.training.metrics import EpochResult


def epoch_result(epoch: int = 1, accuracy: float = 0.8, **measured: Any) -> EpochResult:
    """Return a sound epoch with this validation accuracy; `measured` gives other fields of EpochResult."""
    usual: dict[str, Any] = {
        "train_loss": 0.5,
        "train_accuracy": 0.8,
        "val_loss": 0.5,
        "val_accuracy": accuracy,
        "val_balanced_accuracy": accuracy,
        "val_top5_accuracy": None,
        "applied_lr": 0.1,
        "grad_norm": 1.0,
        "skipped_steps": 0,
        "epoch_seconds": 1.0,
        "data_seconds": 0.1,
        "evaluation_seconds": 0.1,
        "images_per_second": 1000.0,
        "peak_memory_bytes": 10**8,
        "micro_batch": 64,
    }
    return EpochResult(epoch=epoch, **{**usual, **measured})
