"""Makes networks that the tests of pruning share: for small images, with statistics as after training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from trainable.bundle.trained import network_in
from trainable.models.make import NetworkEnds, make_model
from trainable.recipe import Recipe
from trainable.tasks.distilled.task import Distilled
from trainable.training.run import Run

SMALL: dict[str, Any] = {"model.width": 8}
CLASSES = 10


def network_of(values: dict[str, Any], *, channels: int, size: int) -> nn.Module:
    """Return the network of a recipe, drawn with seed 0, with norms as after some training."""
    torch.manual_seed(0)
    spec = Recipe().with_values(values).model
    network = make_model(spec, NetworkEnds(classes=CLASSES, channels=channels, image_size=size))
    for name, each in (*network.named_buffers(), *network.named_parameters()):
        with torch.no_grad():
            if name.endswith("running_var"):
                each.uniform_(0.5, 2.0)
            elif name.endswith("running_mean"):
                each.normal_(std=0.1)
            elif each.ndim == 1 and name.endswith("weight"):
                each.normal_(1.0, 0.3)
    return network.eval()


def assert_taught_by(run: Run, folder: Path, images: Tensor) -> None:
    """Assert that the teacher of a run answers as the pruned network in a folder."""
    assert isinstance(run.task, Distilled)
    with torch.no_grad():
        answers = run.task.teacher.answers(images)
        torch.testing.assert_close(answers, network_in(folder)(images), rtol=1e-4, atol=1e-4)
