"""Tests that a folder with a pruned network is a teacher like any other."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.trainable.shrinking.networks import assert_taught_by
from tests.trainable.small_runs import SIZE, small_recipe, write_parts
from trainable.bench import ON_CPU
from trainable.bundle.trained import trained_in
from trainable.errors import ModelError
from trainable.run import make_run
from trainable.shrinking.fine_tuning import fine_tuning
from trainable.shrinking.shrink import shrink, write_shrunk
from trainable.train import train

CPU = torch.device("cpu")


@pytest.mark.slow("trains and prunes networks")
@pytest.mark.usefixtures("few_rounds")
def test_a_pruned_network_teaches_an_ordinary_recipe(tmp_path: Path) -> None:
    write_parts(tmp_path / "images.npz", other_kind=False)
    train(
        small_recipe({"data.path": str(tmp_path / "images.npz"), "optimizer.lr": 0.5}), out=tmp_path / "whole"
    )
    known = trained_in(tmp_path / "whole")
    write_shrunk(shrink(known, fine_tuning(known.recipe), 0.5, seeds=2, bench=ON_CPU), tmp_path / "small")
    values = {"data.path": known.recipe.data.path, "distillation.teacher": str(tmp_path / "small")}
    run = make_run(small_recipe(values))
    assert_taught_by(run, tmp_path / "small", torch.randn(3, 1, SIZE, SIZE))
    assert not run.step().diverged
    hints = make_run(small_recipe({**values, "distillation.kind": "features"}))
    assert not hints.step().diverged
    alone = {"distillation.teacher": str(tmp_path / "small" / "model.safetensors"), "distillation.model": {}}
    with pytest.raises(
        ModelError, match=r"pruned\.json stands beside these weights: .* without distillation"
    ):
        make_run(small_recipe({**values, **alone}))
