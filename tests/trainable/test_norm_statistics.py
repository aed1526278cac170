"""BatchNorm's statistics measured anew, against their definition."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.trainable.small_runs import data_set, small_recipe
from trainable.norm_statistics import measure_norm
from trainable.run import Run

torch.set_num_threads(1)
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


def test_nothing_else_changes_and_no_random_number_is_drawn() -> None:
    model = net()
    weights = {name: each.clone() for name, each in model.named_parameters()}
    state = torch.get_rng_state()
    measure_norm(model.train(), [torch.randn(4, 1, 6, 6, generator=torch.Generator().manual_seed(0))], OFF)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(each, weights[name]) for name, each in model.named_parameters())
    assert not any(each.training for each in model.modules())
    assert model[1].momentum == 0.1


def test_a_net_without_batch_norm_is_left_in_peace() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 2)).train()
    measure_norm(model, iter([torch.zeros(1, 1, 2, 2)]), OFF)
    assert model.training


@pytest.mark.parametrize("weights", ["raw", "ema"])
def test_a_run_scores_with_the_statistics_of_its_weights(weights: str) -> None:
    values = {
        "evaluation.norm_batches": 2,
        "evaluation.weights": weights,
        "regularisation.ema_decay": 0.99,
        "optimizer.lr": 0.5,
    }
    run = Run(small_recipe(values), data=data_set())
    result = run.step()
    again = run.score("validation")
    assert result.val_loss == pytest.approx(again.loss, rel=1e-6)  # measured again, to the same numbers
    stem = run.weights()["stem.weight"]
    positions = run._sample(2 * 16).numpy()
    ((images, _),) = run._loader.evaluate("train", positions)
    features = nn.functional.conv2d(images, stem, padding=1)
    torch.testing.assert_close(run.weights()["stem_norm.running_mean"], features.mean((0, 2, 3)))


def test_lagging_statistics_mislead_an_early_score_and_measured_ones_do_not() -> None:
    values = {"loop.epochs": 20, "optimizer.lr": 1.0, "model.width": 8, "schedule.kind": "constant"}
    lagging = Run(small_recipe({**values, "evaluation.norm_batches": 0}), data=data_set()).step()
    measured = Run(small_recipe({**values, "evaluation.norm_batches": 3}), data=data_set()).step()
    assert measured.train_loss == lagging.train_loss  # training itself does not see them
    assert measured.val_loss < lagging.val_loss


@pytest.mark.parametrize("values", [{"model.freeze_norm": True}, {"model.freeze_epochs": 3}])
def test_frozen_statistics_are_not_measured(values: dict[str, object]) -> None:
    run = Run(small_recipe({**values, "evaluation.norm_batches": 2}), data=data_set())
    before = run.weights()["stem_norm.running_mean"].clone()
    run.step()
    assert torch.equal(run.weights()["stem_norm.running_mean"], before)
