"""Tests networks whose BatchNorm sees one pixel an image: they are never trained on a single image."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tests.trainable.small_runs import CLASSES, data_set, small_recipe
from tests.trainable.tune.planted_memory import Limited
from trainable.errors import RecipeError, RunError
from trainable.models.norm_statistics import norm_of_one_pixel
from trainable.ranks import Ranks
from trainable.run import make_run
from trainable.training.network import fewest_at_once


def pooled() -> nn.Module:
    """Return a network whose BatchNorm sees a pooled image."""
    body = nn.Sequential(nn.Conv2d(1, 4, 3), nn.AdaptiveAvgPool2d(1), nn.BatchNorm2d(4), nn.ReLU())
    return nn.Sequential(body, nn.Flatten(), nn.Linear(4, CLASSES))


@pytest.mark.parametrize(
    "values",
    [{"loop.batch_size": 1}, {"loop.micro_batch": 1}, {"loop.batch_size": 5, "loop.micro_batch": 2}],
    ids=["a batch of one", "micro-batches of one", "a rest of one"],
)
def test_a_part_of_one_image_is_refused_before_training(values: dict[str, Any]) -> None:
    path = "loop.micro_batch" if "loop.micro_batch" in values else "loop.batch_size"
    with pytest.raises(RecipeError, match=rf"{path}: the BatchNorm 0\.2 .* parts of 2 images or more"):
        make_run(small_recipe(values), data=data_set(), model=pooled())


def test_two_ranks_with_one_image_each_are_refused() -> None:
    recipe, info = small_recipe({"loop.batch_size": 2}), data_set().info
    assert fewest_at_once(pooled(), recipe, info, Ranks(0, 1)) == 2
    with pytest.raises(RecipeError, match="in 1 parts on each of 2 ranks"):
        fewest_at_once(pooled(), recipe, info, Ranks(0, 2))


def test_a_window_is_not_cut_into_single_images_where_memory_runs_out() -> None:
    model = Limited(pooled(), room=3)
    run = make_run(small_recipe({"loop.epochs": 1, "loop.batch_size": 6}), data=data_set(), model=model)
    assert run.step().micro_batch == 3
    with pytest.raises(RunError, match="memory"):
        make_run(
            small_recipe({"loop.batch_size": 6}), data=data_set(), model=Limited(pooled(), room=1)
        ).step()


def test_only_a_norm_that_training_uses_on_one_pixel_is_named() -> None:
    image, model = torch.zeros(1, 1, 8, 8), pooled()
    assert norm_of_one_pixel(model, image) == "0.2"
    assert model.training
    synchronised = nn.SyncBatchNorm.convert_sync_batchnorm(pooled())
    assert norm_of_one_pixel(synchronised, image) is None
    assert norm_of_one_pixel(nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)), image) is None
    assert norm_of_one_pixel(nn.Sequential(nn.Conv2d(1, 4, 8), nn.BatchNorm2d(4)), image) == "1"
