"""Tests the networks that are checked, and what is found of how they are built."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from tests.trainable.small_runs import CLASSES, SIZE, data_set, plain_net, small_recipe
from tests.trainable.small_subjects import small_subject
from trainable.bench import ON_CPU
from trainable.checks.networks import check_construction


def test_a_network_without_dropout_is_the_same_network() -> None:
    """The plain copy begins with the same weights, and answers twice alike while it trains."""
    recipe = small_recipe({"model.dropout": 0.5, "model.stochastic_depth": 0.5})
    made = small_subject(recipe)
    for (name, one), (_, other) in zip(
        made.untrained.state_dict().items(), made.without_drops.state_dict().items(), strict=True
    ):
        assert torch.equal(one, other), name
    images = torch.randn(8, 1, SIZE, SIZE)
    bare = made.without_drops.train()
    assert torch.equal(bare(images), bare(images))
    own = small_subject(model=plain_net(dropout=0.5))
    assert torch.equal(own.without_drops.train()(images.double()), own.without_drops(images.double()))
    assert not torch.equal(own.untrained.train()(images.double()), own.untrained(images.double()))


def test_the_networks_are_drawn_as_a_run_draws_them() -> None:
    from trainable.run import make_run

    recipe = small_recipe({"loop.seed": 7})
    run = make_run(recipe, data=data_set(), bench=ON_CPU)
    for one, other in zip(run.model.parameters(), small_subject(recipe).untrained.parameters(), strict=True):
        assert torch.equal(one, other)


def test_what_a_library_built_is_a_note_where_ones_own_is_a_warning() -> None:
    images = torch.randn(2, 1, SIZE, SIZE)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 1), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4 * SIZE**2, CLASSES)
    )
    own = small_subject(model=model)
    library = replace(own, is_own=False)
    levels = [
        next(each.level for each in check_construction(one, images) if each.check == "bias before norm")
        for one in (own, library)
    ]
    assert levels == ["warning", "note"]
