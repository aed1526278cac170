"""Tests that what is measured before a run is measured for runs that learn masks, too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainable.small_runs import numbers
from tests.trainable.small_segmentations import mask_data, mask_recipe, write_masks
from trainable.bench import ON_CPU, Bench
from trainable.data import DataSet
from trainable.models.segmentation_networks import PixelLogits, SegmentationNetwork
from trainable.probes import network_cost
from trainable.probes.batch_find import batch_find
from trainable.probes.endings import FLIP, SCALES, measure_endings
from trainable.probes.lr_find import lr_find
from trainable.probes.network_cost import key_of_cost, measure_cost
from trainable.probes.speed import measure_speeds
from trainable.recipe import Recipe
from trainable.recipe.training import AVERAGING, Precision
from trainable.run import make_run
from trainable.train import train
from trainable.training.precision import formats_of
from trainable.training.run import Run

CPU = torch.device("cpu")
PLENTY = 2**34


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_masks(tmp_path_factory.mktemp("masks"), sizes=((20, 24), (32, 16)))


@pytest.fixture(scope="module")
def data(root: Path) -> DataSet:
    return mask_data(mask_recipe(root))


@pytest.fixture
def run(root: Path, data: DataSet) -> Iterator[Run]:
    made = make_run(mask_recipe(root), data=data, bench=ON_CPU)
    yield made
    made.close()


class TwoHeads(SegmentationNetwork):
    """A network that answers at half the image's size, in training with a second head."""

    def __init__(self) -> None:
        super().__init__("layer", ["head", "other"])
        self.layer = torch.nn.Conv2d(3, 4, 3, stride=2, padding=1)
        self.head, self.other = torch.nn.Conv2d(4, 3, 1), torch.nn.Conv2d(4, 3, 1)

    def forward(self, images: torch.Tensor) -> PixelLogits:
        features = self.layer(images)
        main: torch.Tensor = self.head(features)
        return (main, self.other(features)) if self.training else main


def test_every_format_is_timed_on_masks_and_on_every_head(data: DataSet) -> None:
    net = TwoHeads()
    before = net.other.weight.detach().clone()
    assert data.info.task.windowed
    found = measure_speeds(net, data.info, CPU, Precision())
    ways = [(each.number_format, each.channels_last) for each in found]
    assert ways == [(each, last) for each in formats_of(CPU) for last in (True, False)]
    assert min(each.images_per_second for each in found) > 0.0
    assert not torch.equal(net.other.weight, before)


@pytest.mark.slow("trains for a probe")
def test_a_segmentation_trains_in_the_format_that_is_fastest_here(root: Path, data: DataSet) -> None:
    said: list[str] = []
    recipe = mask_recipe(root, {"precision.kind": "auto", "loop.epochs": 1})
    outcome = train(recipe, data=data, bench=Bench(device_name="cpu", say=said.append))
    assert outcome.recipe.precision.kind in formats_of(CPU)
    assert any(line.startswith("precision: ") for line in said)


@pytest.mark.slow("trains for a probe")
def test_the_micro_batch_that_fits_is_counted_in_windows(run: Run) -> None:
    found = batch_find(run, limit_bytes=PLENTY)
    assert found.largest == run.info.train_images
    assert found.bound == "images"
    assert found.image_bytes is not None
    assert found.image_bytes > 16 * 16 * 4 * 8  # one feature map of the net in fp32


@pytest.mark.slow("trains for a probe")
def test_the_rate_finder_follows_the_loss_of_masks(root: Path, data: DataSet) -> None:
    def first_loss(**loss: float) -> float:
        recipe = mask_recipe(root, {f"task.loss.{name}": weight for name, weight in loss.items()})
        run = make_run(recipe, data=data, bench=ON_CPU)
        band = lr_find(run, steps=40, sweeps=1)
        run.close()
        return band.sweeps[0].losses[0]

    both = first_loss(dice=1.0)
    assert both == pytest.approx(first_loss() + first_loss(cross_entropy=0.0, dice=1.0), rel=1e-4)


def test_a_band_of_rates_is_found_for_masks(root: Path, data: DataSet) -> None:
    run = make_run(mask_recipe(root, {"optimizer.kind": "sgd"}), data=data, bench=ON_CPU)
    band = lr_find(run, steps=60, sweeps=1)
    assert band.found, band.reason
    assert band.notes == ()
    run.close()


def test_a_loss_with_an_upper_bound_is_named_as_it_hides_rates_that_are_too_high(
    root: Path, data: DataSet
) -> None:
    bounded = {"task.loss.cross_entropy": 0.0, "task.loss.lovasz": 1.0}
    run = make_run(mask_recipe(root, bounded), data=data, bench=ON_CPU)
    (note,) = lr_find(run, steps=30, sweeps=1).notes
    assert note.startswith("task.loss: dice and lovasz are at most 1")
    run.close()


@pytest.mark.slow("trains for a probe")
def test_a_run_that_was_probed_trains_as_one_that_was_not(root: Path, data: DataSet, run: Run) -> None:
    untouched = make_run(mask_recipe(root), data=data, bench=ON_CPU)
    batch_find(run, limit_bytes=PLENTY)
    lr_find(run, steps=30, sweeps=1)
    assert numbers((run.step(),)) == numbers((untouched.step(),))
    untouched.close()


def test_a_network_for_masks_costs_parameters_time_and_memory(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network_cost, "SECONDS", 0.0)
    cost = measure_cost(run)
    assert cost.parameters == sum(each.numel() for each in run.model.parameters())
    assert cost.latency_ms > 0.0
    assert cost.memory_gib > 0.0


@pytest.mark.parametrize(
    ("values", "same"),
    [
        ({"task.loss.cross_entropy": 0.5}, True),
        ({"task.overlap": 0.5}, True),
        ({"task.loss.lovasz": 1.0}, False),
        ({"task.loss.resolution": "outputs"}, False),
    ],
)
def test_costs_are_measured_again_where_another_loss_takes_memory(
    root: Path, values: dict[str, Any], same: bool
) -> None:
    recipe = mask_recipe(root)
    assert (key_of_cost(recipe) == key_of_cost(recipe.with_values(values))) is same


@pytest.mark.slow("trains for a probe")
def test_each_ending_of_a_segmentation_scores_as_a_run_that_says_so(root: Path, data: DataSet) -> None:
    recipe = mask_recipe(root, {"loop.epochs": 1, "data.flips": ["horizontal"]})
    flipping = Recipe.from_tree(recipe.tree()).with_values({AVERAGING: "none", FLIP: True})
    data = mask_data(flipping)
    run = make_run(flipping, data=data, bench=ON_CPU)
    run.step()
    wanted = run.evaluate("validation")
    run.close()
    found = {
        (each.values[AVERAGING], each.values[FLIP], tuple(each.values[SCALES])): each
        for each in measure_endings(recipe, data=data)
    }
    assert len(found) == 8
    ending = found["none", True, (1.0,)]
    assert ending.scores["val_mean_iou"] == pytest.approx(wanted["val_mean_iou"], rel=1e-5)
    assert ending.latency_ms > 0.0


def test_a_scale_is_of_whole_images_and_needs_no_other_size_of_the_network(root: Path, data: DataSet) -> None:
    class OneSize(TwoHeads):
        def forward(self, images: torch.Tensor) -> PixelLogits:
            assert images.shape[-2:] == (16, 16), "takes 16 px alone"
            return super().forward(images)

    recipe = mask_recipe(root, {"evaluation.scales": [1.0, 1.5], "evaluation.norm_batches": 0})
    run = make_run(recipe, data=data, model=OneSize(), bench=ON_CPU)
    assert run.score("validation").images == data.info.validation_images
    run.close()


def test_the_iou_of_training_images_is_measured_at_the_end(root: Path, data: DataSet) -> None:
    run = make_run(mask_recipe(root), data=data, bench=ON_CPU)
    first, last = run.step(), run.step()
    assert "clean_train_mean_iou" not in first.extra_metrics
    assert 0.0 < last.extra_metrics["clean_train_mean_iou"] <= 1.0
    assert last.clean_train_accuracy is not None
    run.close()
