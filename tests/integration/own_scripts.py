"""Writes a script that searches with a network and images of a person's own, and a module beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

BLOCKS = """
from torch import nn

class Block(nn.Module):
    def __init__(self, before, after):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU())

    def forward(self, images):
        return self.layers(images)
"""
SCRIPT = """
import os, sys
from pathlib import Path
import numpy as np
from sklearn.datasets import load_digits
from torch import nn

FOLDER = Path({folder!r})
sys.path.insert(0, str(FOLDER / "modules"))
import blocks
del sys.path[0]  # so no other process finds that folder
from search import search
from spaces.domains import Choice, Integer

def build_model(classes, channels, *, depth=1, width=8):
    machine = Path(os.environ.get("XDG_CACHE_HOME", "none")).parent.name
    (FOLDER / "machines" / machine).touch()
    sides = [channels] + [width] * depth
    layers = [blocks.Block(*each) for each in zip(sides, sides[1:])]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * width, classes))

def make_data():
    images, labels = load_digits(return_X_y=True)
    return (images.reshape(-1, 8, 8) * 255 / 16).astype(np.uint8), labels

found = search(
    {study!r},
    model=build_model,
    data=make_data,
    space={{"model.arguments.depth": Choice((1, 2)), "model.arguments.width": Integer(8, 12)}},
    **{options!r},
)
"""


def write_script(folder: Path, study: dict[str, Any], **options: Any) -> Path:
    """Return a script whose global `found` is the search; processes that train cannot find its module."""
    (folder / "machines").mkdir()
    (folder / "modules").mkdir()
    (folder / "modules" / "blocks.py").write_text(BLOCKS)
    script = folder / "own.py"
    script.write_text(SCRIPT.format(folder=str(folder), study=study, options=options))
    return script


def small_study(storage: Path, **values: Any) -> dict[str, Any]:
    """Return a study without data or network, which takes seconds."""
    return {
        "name": "mine",
        "storage": str(storage),
        "base": {"loop.batch_size": 64, "precision.kind": "fp32"},
        "budget": {"trials": 3, "epochs": 4},
        "scheduler": {"grace_epochs": 1, "reduction_factor": 2},
        **values,
    }
