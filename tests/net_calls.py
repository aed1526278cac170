"""Calls what the net watches as the net does, which stays as it is when our parameters change."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from trainable import run
from trainable import train as training
from trainable.bench import Bench
from trainable.outcome import Outcome
from trainable.ranks import Ranks
from trainable.recipe import Recipe
from trainable.training.run import Run


def train(recipe: Recipe, *, out: Path, device: torch.device, model: nn.Module | None = None) -> Outcome:
    return training.train(recipe, model=model, out=out, bench=Bench(device_name=str(device)))


def make_run(recipe: Recipe, *, ranks: Ranks, device: torch.device) -> Run:
    return run.make_run(recipe, ranks=ranks, bench=Bench(device_name=str(device)))
