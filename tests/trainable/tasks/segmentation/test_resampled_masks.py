"""Tests the answers to each image of a part with masks, and the scores of resamples of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.trainable.small_segmentations import mask_data, mask_recipe, write_masks
from tests.trainable.tasks.segmentation.test_mask_scores import (
    ABSENT,
    CLASSES,
    CPU,
    OWN,
    Batches,
    batches,
    score,
)
from trainable.array_types import Integers
from trainable.ranks import Ranks
from trainable.recipe.tasks import IGNORED
from trainable.run import make_run
from trainable.tasks.segmentation.answers import MaskAnswers
from trainable.tasks.segmentation.data.parts import MaskedPart
from trainable.tasks.segmentation.scores import MaskTally
from trainable.training.answers import RankRows
from trainable.training.bootstrap import resampled_scores
from trainable.training.evaluate import Scores
from trainable.training.extra_metrics import ExtraMetrics

__all__ = ["batches"]
NONE = ExtraMetrics((), {}, ())


def answered(batches: Batches) -> MaskAnswers:
    images = sum(len(masks) for _, masks in batches)
    found = score(batches, rows=RankRows(torch.arange(images), images), tolerance=0.1, own=OWN).by_image
    assert isinstance(found, MaskAnswers)
    return found


def singles(batches: Batches) -> Batches:
    return [(logits[i : i + 1], masks[i : i + 1]) for logits, masks in batches for i in range(len(masks))]


def test_each_score_of_a_resample_is_that_of_the_images_drawn(batches: Batches) -> None:
    images, random = singles(batches), np.random.default_rng(0)
    counts = random.multinomial(5, np.full(5, 0.2), size=6).T
    got = answered(batches).resampled(counts.astype(np.float32))
    for number, each in enumerate(counts.T):
        drawn = [images[at] for at in np.repeat(np.arange(5), each)]
        expected = score(drawn, tolerance=0.1, own=OWN)
        assert {name: values[number] for name, values in got.metrics.items()} == pytest.approx(
            expected.by_name()
        )
        for name, values in expected.by_class.items():
            of_classes = [np.nan if value is None else value for value in values]
            assert got.by_class[name][:, number] == pytest.approx(of_classes, nan_ok=True)


def test_the_answers_add_up_to_the_scores_of_the_part(batches: Batches) -> None:
    found, scores = answered(batches), score(batches, confusion=True)
    matrix = np.array(scores.confusion)
    assert found.true.sum(0).tolist() == matrix.sum(1).tolist()
    assert found.predicted.sum(0).tolist() == matrix.sum(0).tolist()
    assert found.right.sum(0).tolist() == matrix.diagonal().tolist()
    assert found.losses.mean() == pytest.approx(scores.loss)


def test_the_mean_iou_of_an_image_is_that_of_scoring_it_alone(batches: Batches) -> None:
    alone = [score([each]).extra["mean_iou"] for each in singles(batches)]
    assert answered(batches).mean_ious() == pytest.approx(alone)


def test_an_image_of_which_no_pixel_counts_adds_nothing(batches: Batches) -> None:
    batches[0][1][1] = IGNORED
    found = score(batches, rows=RankRows(torch.arange(5), 5)).by_image
    assert isinstance(found, MaskAnswers)
    assert found.true[1].sum() == found.predicted[1].sum() == found.losses[1] == 0
    assert found.mean_ious()[1] == 1.0
    counts = np.array([[0], [5], [0], [0], [0]], np.float32)
    got = found.resampled(counts).metrics
    assert {got[name].item() for name in ("accuracy", "mean_iou", "mean_dice")} == {0.0}


def test_ranks_gather_the_answers_in_the_order_of_the_part(batches: Batches) -> None:
    sums: list[Tensor] = []

    def collect(tensor: Tensor) -> Tensor:
        sums.append(tensor.clone())
        return sum(sums, torch.zeros_like(tensor))

    for rank, (batch, rows) in enumerate(zip(batches, ([3, 0, 4], [2, 1]), strict=True)):
        tally = MaskTally(CLASSES, CPU, rows=RankRows(torch.tensor(rows), 5))
        tally.add(*batch)
        got = tally.scores(Ranks(rank, 2, reduce=collect)).by_image
    assert isinstance(got, MaskAnswers)
    assert np.array_equal(got.right[[3, 0, 4, 2, 1]], answered(batches).right)


def test_a_class_that_occurs_nowhere_has_no_interval_and_others_hold_their_score(batches: Batches) -> None:
    scores = score(batches, rows=RankRows(torch.arange(5), 5))
    found = resampled_scores(scores, NONE, seed=0, resamples=200)
    assert found is not None
    got = found.intervals()
    assert got.resamples == 200
    assert got.by_class["iou"][ABSENT] is None
    for name in ("accuracy", "mean_iou"):
        low, high = got.bounds[name]
        assert low <= scores.by_name()[name] <= high
    tree = got.tree("test", [f"class {label}" for label in range(CLASSES)])
    assert tree["by_class"]["iou"][f"class {ABSENT}"] is None
    assert len(tree["by_class"]["dice"]["class 0"]) == 2


def test_scores_without_answers_are_not_resampled() -> None:
    assert resampled_scores(Scores(1.0, 0.5, 0.5, None, 3), NONE, seed=0) is None


def test_a_run_answers_in_the_order_of_its_part_whatever_the_images_sizes(tmp_path: Path) -> None:
    recipe = mask_recipe(write_masks(tmp_path, 24, sizes=((32, 32), (20, 40), (40, 20))))
    data, shown = mask_data(recipe), dict[int, Tensor]()
    run = make_run(recipe, data=data)

    def take(positions: Integers, outputs: Tensor) -> None:
        shown.update(zip(positions.tolist(), outputs.argmax(1), strict=True))

    found = run.score("train", answers=True, take=take).by_image
    run.close()
    assert isinstance(found, MaskAnswers)
    assert sorted(shown) == list(range(data.info.train_images))
    sizes = [tuple(shown[at].shape) for at in sorted(shown)]
    assert isinstance(data.train, MaskedPart)
    assert sizes == [tuple(size) for size in data.train.sizes.tolist()]
    counted = [torch.bincount(shown[at].flatten(), minlength=3).tolist() for at in sorted(shown)]
    assert found.predicted.tolist() == counted


def test_masks_that_are_all_right_have_wilsons_intervals_of_their_images() -> None:
    masks = torch.arange(2).repeat(9, 4, 2)
    logits = torch.nn.functional.one_hot(masks, CLASSES).permute(0, 3, 1, 2).float() * 9
    found = score([(logits, masks)], rows=RankRows(torch.arange(9), 9))

    sure = resampled_scores(found, NONE, 0)

    assert sure is not None
    bounds = sure.intervals()
    for name in ("accuracy", "balanced_accuracy", "mean_iou", "mean_dice"):
        assert bounds.bounds[name] == pytest.approx((0.7009, 1.0), abs=1e-4), name
    assert bounds.by_class["iou"][0] == pytest.approx((0.7009, 1.0), abs=1e-4)
    assert bounds.by_class["iou"][-1] is None
