"""Tests BatchNorm's statistics, measured anew, against their definition."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.trainable.small_runs import CLASSES, data_set, small_recipe
from trainable.models.norm_statistics import measure_norm
from trainable.run import make_run
from trainable.training import seeds

OFF = torch.autocast("cpu", enabled=False)


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5), nn.BatchNorm2d(4))


def test_means_and_variances_are_averages_over_the_batches() -> None:
    model, batches = net(), torch.randn(5, 8, 1, 6, 6).unbind(0)
    model[1].running_mean.fill_(50.0)
    measure_norm(model, batches, OFF)
    features = [model[0](batch).detach() for batch in batches]
    means = torch.stack([each.mean((0, 2, 3)) for each in features]).mean(0)
    variances = torch.stack([each.var((0, 2, 3)) for each in features]).mean(0)
    torch.testing.assert_close(model[1].running_mean, means)
    torch.testing.assert_close(model[1].running_var, variances)


def test_a_batch_counts_by_its_images_and_one_image_not_at_all() -> None:
    model = net()
    batches = [torch.zeros(6, 1, 6, 6), torch.ones(2, 1, 6, 6), torch.full((1, 1, 6, 6), 99.0)]
    measure_norm(model, batches, OFF)
    features = [model[0](batch).detach().mean((0, 2, 3)) for batch in batches[:2]]
    torch.testing.assert_close(model[1].running_mean, (6 * features[0] + 2 * features[1]) / 8)


def test_without_a_batch_the_statistics_stay() -> None:
    model = net()
    model[1].running_mean.fill_(7.0)
    measure_norm(model, [torch.zeros(1, 1, 6, 6)], OFF)
    assert (model[1].running_mean == 7.0).all()


def test_what_a_net_keeps_in_evaluation_itself_is_left_alone() -> None:
    class Frozen(nn.BatchNorm2d):
        def train(self, mode: bool = True) -> Frozen:
            super().train(False)
            return self

    model = nn.Sequential(nn.Conv2d(1, 4, 3), Frozen(4), nn.BatchNorm2d(4))
    model[1].running_mean.fill_(7.0)
    measure_norm(model, [torch.randn(4, 1, 6, 6)], OFF)
    assert (model[1].running_mean == 7.0).all()
    assert (model[2].running_mean != 0.0).all()


def test_nothing_else_changes_and_no_random_number_is_drawn() -> None:
    model = net()
    weights = {name: each.clone() for name, each in model.named_parameters()}
    state = torch.get_rng_state()
    measure_norm(model.train(), [torch.randn(4, 1, 6, 6, generator=torch.Generator().manual_seed(0))], OFF)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(each, weights[name]) for name, each in model.named_parameters())
    assert not any(each.training for each in model.modules())
    assert model[1].momentum == 0.1


def test_a_net_without_batch_norm_is_not_shown_an_image() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    batches = iter([torch.zeros(1, 1, 2, 2)])
    measure_norm(model, batches, OFF)
    assert len(list(batches)) == 1


@pytest.mark.parametrize("averaging", ["none", "ema"])
def test_a_run_scores_with_the_statistics_of_its_weights(averaging: str) -> None:
    values = {"evaluation.norm_batches": 2, "regularisation.averaging.kind": averaging, "optimizer.lr": 0.5}
    run = make_run(small_recipe(values), data=data_set())
    result = run.step()
    again = run.score("validation")
    assert result.val_loss == pytest.approx(again.loss, rel=1e-6)  # measured again, to the same numbers
    stem = run.weights()["stem.weight"]
    positions = seeds.sample(run.recipe.loop.seed, run.info.train_images, 2 * 16).numpy()
    ((images, _),) = run.images.loader.evaluate("train", positions)
    features = nn.functional.conv2d(images, stem, padding=1)
    torch.testing.assert_close(run.weights()["stem_norm.running_mean"], features.mean((0, 2, 3)))
    variances = torch.stack([each.var((0, 2, 3)) for each in features.split(16)]).mean(0)
    torch.testing.assert_close(run.weights()["stem_norm.running_var"], variances)


def test_the_batch_of_the_evaluation_changes_no_score() -> None:
    scores = set()
    for batch in (7, 16, 512):
        run = make_run(small_recipe({"evaluation.batch_size": batch, "loop.epochs": 1}), data=data_set())
        scores.add(round(run.step().val_loss, 6))
    assert len(scores) == 1


def test_lagging_statistics_mislead_an_early_score_and_measured_ones_do_not() -> None:
    values = {"loop.epochs": 20, "optimizer.lr": 1.0, "model.width": 8, "schedule.kind": "constant"}
    lagging = make_run(small_recipe({**values, "evaluation.norm_batches": 0}), data=data_set()).step()
    measured = make_run(small_recipe({**values, "evaluation.norm_batches": 3}), data=data_set()).step()
    assert measured.train_loss == lagging.train_loss  # training itself does not see them
    assert measured.val_loss < lagging.val_loss


@pytest.mark.parametrize("images", [17, 33, 49])
def test_a_last_image_that_stands_alone_does_no_harm(images: int) -> None:
    model = nn.Sequential(nn.Conv2d(1, 4, 8), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, CLASSES))
    recipe = small_recipe({"evaluation.batch_size": 16, "loop.epochs": 1})
    result = make_run(recipe, data=data_set(train=images), model=model).step()
    assert not result.diverged


def test_measuring_takes_no_more_memory_than_training() -> None:
    class Narrow(nn.Sequential):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            if len(images) > 5:
                raise torch.OutOfMemoryError("planted")
            logits: torch.Tensor = super().forward(images)  # type: ignore[no-untyped-call]
            return logits

    model = Narrow(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, CLASSES))
    result = make_run(small_recipe({"loop.epochs": 1}), data=data_set(), model=model).step()
    assert result.micro_batch == 4


def test_a_score_after_the_run_is_that_of_its_last_epoch_where_the_body_stayed_frozen() -> None:
    run = make_run(small_recipe({"model.freeze_epochs": 3, "loop.epochs": 3}), data=data_set())
    while not run.finished:
        result = run.step()
    before = {name: each.clone() for name, each in run.weights().items()}
    assert run.score("validation").loss == result.val_loss
    assert all(torch.equal(each, before[name]) for name, each in run.weights().items())


@pytest.mark.parametrize("values", [{"model.freeze_norm": True}, {"model.freeze_epochs": 3}])
def test_frozen_statistics_are_not_measured(values: dict[str, object]) -> None:
    run = make_run(small_recipe({**values, "evaluation.norm_batches": 2}), data=data_set())
    before = run.weights()["stem_norm.running_mean"].clone()
    run.step()
    assert torch.equal(run.weights()["stem_norm.running_mean"], before)
