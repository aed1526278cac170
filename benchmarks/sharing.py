"""Trials an hour with several of them at once on a GPU, with CUDA's MPS and without.

    python benchmarks/gpu.py --parts sharing [--at-once 1 2 4 8] [--trials 16]

Each arm is one search as a person starts it: recipes of a small network with costly augmentation, none of
them stopped. Trials an hour are those of a long search: by the median seconds of all epochs but each trial's
first, in which a process plans its kernels. Beside it stands the wall time from the first start to the last
epoch. Without MPS, programs are shown a folder in which no daemon listens.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from search.record.home import EVENTS_FILE
from search.record.journal import EpochEvent, StartEvent, read
from trainable.checks.sharing import FOLDER, check_sharing

EPOCHS, IMAGES, SIDE, CLASSES = 10, 6_400, 32, 10
BASE = {
    "model.kind": "resnet_small",
    "model.depth": 8,
    "model.width": 16,
    "loop.batch_size": 128,
    "augmentation.crop.kind": "resized",
    "augmentation.flip_probability": 0.5,
    "augmentation.masking.kind": "erasing",
    "augmentation.policy.kind": "randaugment",
    "augmentation.mixing.kind": "cutmix",
    "regularisation.averaging.kind": "ema",
    "regularisation.averaging.decay": 0.999,
    "regularisation.clipping.kind": "norm",
}


def sharing(options: argparse.Namespace, device: torch.device) -> tuple[dict[str, Any], str]:
    """Return what searches with so many trials at once did, and a page of it."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "noise.npz"
        _write_noise(data, options.images or IMAGES)
        arms = [
            _measured(options, data, count, name, variables)
            for name, variables in _ways(device, Path(folder)).items()
            for count in options.at_once
        ]
    rows = "\n".join(
        f"| {arm['way']} | {arm['at_once']} | {arm['trials_an_hour']:,.0f} | "
        f"{arm['trials_an_hour'] / arms[0]['trials_an_hour']:.2f} | {arm['epoch_seconds']:.2f} | "
        f"{arm['wall_seconds']:.0f} | {arm['best']:.3f} |"
        for arm in arms
    )
    page = (
        f"## Several trials on {'a GPU' if device.type == 'cuda' else 'a CPU'}\n\n"
        f"{options.trials} trials of {EPOCHS} epochs of {options.images or IMAGES:,} images of noise, "
        f"{SIDE} px, n = 1 search an arm.\n\n"
        "| way | at once | trials an hour | against the first | epoch, s | all trials, s | best score |\n"
        f"|-|-|-|-|-|-|-|\n{rows}\n"
    )
    return {"arms": arms}, page


def _ways(device: torch.device, folder: Path) -> dict[str, dict[str, str]]:
    ways: dict[str, dict[str, str]] = {"in turn": {FOLDER: str(folder / "no-daemon")}}
    if device.type == "cuda" and check_sharing().level == "note":
        ways["MPS"] = {}
    return ways


def _measured(
    options: argparse.Namespace, data: Path, at_once: int, way: str, variables: dict[str, str]
) -> dict[str, Any]:
    storage, name = data.parent, f"{way.replace(' ', '-')}-{at_once}"
    gpus = 1 / at_once if options.device == "cuda" else 0
    settings = {
        "data.path": data,
        "data.flips": "[horizontal]",
        "storage": storage,
        "name": name,
        "budget.trials": options.trials,
        "budget.epochs": EPOCHS,
        "concurrent": at_once,
        "resources.gpus": int(1e4 * gpus) / 1e4,
        "sampler.kind": "random",
        "scheduler.kind": "none",
        "finalists": "none",
        **{f"base.{path}": value for path, value in BASE.items()},
    }
    flags = [each for path, value in settings.items() for each in ("--set", f"{path}={value}")]
    command = [sys.executable, "-m", "search", "search", *flags]
    subprocess.run(command, check=True, stdout=sys.stderr, env={**os.environ, **variables})
    events = read(storage / name / EVENTS_FILE)
    epochs = [each for each in events if isinstance(each, EpochEvent)]
    began = next(each.time for each in events if isinstance(each, StartEvent))
    seconds = median(each.result.epoch_seconds for each in epochs if each.epoch > 1)
    return {
        "way": way,
        "at_once": at_once,
        "epoch_seconds": seconds,
        "trials_an_hour": 3600 * at_once / (EPOCHS * seconds),
        "wall_seconds": epochs[-1].time - began,
        "epochs": len(epochs),
        "best": max(each.result.val_accuracy for each in epochs if each.epoch == EPOCHS),
    }


def _write_noise(file: Path, count: int) -> None:
    random = np.random.default_rng(0)
    parts: dict[str, Any] = {}
    for part, images in (("train", count), ("val", 10 * CLASSES), ("test", 10 * CLASSES)):
        parts[f"{part}_images"] = random.integers(0, 256, (images, SIDE, SIDE, 3), np.uint8)
        parts[f"{part}_labels"] = np.arange(images) % CLASSES
    np.savez(file, **parts)
