"""Tests the scores of masks against loops over pixels."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from tests.trainable.training.test_synchronisation import Watch
from trainable.errors import UserError
from trainable.ranks import Ranks
from trainable.recipe.metrics import BoundaryF1
from trainable.recipe.tasks import IGNORED, Classification, Segmentation
from trainable.tasks.segmentation.losses import enlarged
from trainable.tasks.segmentation.scores import MaskTally, boundary_f1, worst_mask_scores
from trainable.training.evaluate import Scores
from trainable.training.extra_metrics import Metric, make_extra_metrics

CPU = torch.device("cpu")
CLASSES = 6
ABSENT, ONLY_PREDICTED = 4, 5
Batches = list[tuple[Tensor, Tensor]]


@pytest.fixture
def batches() -> Batches:
    """Return logits and masks of 3 and 2 images of different sizes, with ignored pixels.

    Class 4 is nowhere, class 5 is only predicted.
    """
    generator = torch.Generator().manual_seed(0)
    made = []
    for images, height, width in ((3, 9, 12), (2, 16, 8)):
        masks = torch.randint(0, 4, (images, height, width), generator=generator)
        masks[torch.rand(masks.shape, generator=generator) < 0.2] = IGNORED
        logits = torch.randn(images, CLASSES, height, width, generator=generator)
        logits += 2 * functional.one_hot(masks.clamp(max=5), CLASSES).movedim(3, 1) * (masks < 4)[:, None]
        logits[:, ABSENT] = -9.0
        made.append((logits, masks))
    return made


def score(batches: Batches, **settings: object) -> Scores:
    tally = MaskTally(CLASSES, CPU, **settings)  # type: ignore[arg-type]
    for logits, masks in batches:
        tally.add(logits, masks)
    return tally.scores()


def pairs(batches: Batches) -> list[tuple[int, int]]:
    """Return the true and the predicted class of every counted pixel."""
    found = []
    for logits, masks in batches:
        labels = zip(masks.flatten().tolist(), logits.argmax(1).flatten().tolist(), strict=True)
        found += [(true, predicted) for true, predicted in labels if true != IGNORED]
    return found


def test_scores_equal_a_loop_over_pixels(batches: Batches) -> None:
    got, counted = score(batches, confusion=True), pairs(batches)
    ious, dices, recalls = [], [], []
    for label in range(CLASSES):
        right = counted.count((label, label))
        truly = sum(true == label for true, _ in counted)
        predicted = sum(answer == label for _, answer in counted)
        both = truly + predicted
        ious.append(right / (both - right) if both else None)
        dices.append(2 * right / both if both else None)
        recalls += [right / truly] if truly else []
    assert got.accuracy == sum(true == answer for true, answer in counted) / len(counted)
    assert got.balanced_accuracy == pytest.approx(sum(recalls) / 4)
    assert got.by_class == {"iou": pytest.approx(ious), "dice": pytest.approx(dices)}
    assert got.confusion is not None
    assert sum(map(sum, got.confusion)) == len(counted)
    assert all(got.confusion[true][answer] == counted.count((true, answer)) for true, answer in set(counted))
    assert (got.images, got.top5_accuracy) == (5, None)


def test_means_are_over_the_classes_that_occur_in_masks_or_predictions(batches: Batches) -> None:
    got = score(batches)
    for name in ("iou", "dice"):
        values = got.by_class[name]
        assert values[ABSENT] is None
        assert values[ONLY_PREDICTED] == 0.0
        assert got.extra[f"mean_{name}"] == pytest.approx(sum(value or 0.0 for value in values) / 5)


def test_the_loss_is_the_mean_over_images_of_a_sum_divided_by_all_pixels(batches: Batches) -> None:
    losses = []
    for logits, masks in batches:
        for image, mask in zip(logits.double().log_softmax(1), masks, strict=True):
            columns = zip(image.flatten(1).T.tolist(), mask.flatten().tolist(), strict=True)
            losses.append(-sum(row[label] for row, label in columns if label != IGNORED) / mask.numel())
    assert score(batches).loss == pytest.approx(sum(losses) / 5, rel=1e-6)


def test_smaller_outputs_are_enlarged_to_the_masks(batches: Batches) -> None:
    small = [(logits[..., ::3, ::2], masks) for logits, masks in batches]
    large = [(enlarged(logits, masks), masks) for logits, masks in small]
    assert score(small, tolerance=0.1) == score(large, tolerance=0.1)


def test_the_size_of_batches_does_not_matter(batches: Batches) -> None:
    single = [(logits[i : i + 1], masks[i : i + 1]) for logits, masks in batches for i in range(len(masks))]
    whole, parts = (score(each, confusion=True, tolerance=0.1, own=OWN) for each in (batches, single))
    assert parts.by_name() == pytest.approx(whole.by_name(), rel=1e-7)
    assert parts.confusion == whole.confusion


def test_the_sums_of_all_ranks_are_scored(batches: Batches) -> None:
    sums: list[Tensor] = []

    def collect(tensor: Tensor) -> Tensor:
        sums.append(tensor.clone())
        return sum(sums, torch.zeros_like(tensor))

    for rank, batch in enumerate(batches):
        tally = MaskTally(CLASSES, CPU, confusion=True, tolerance=0.1, own=OWN)
        tally.add(*batch)
        got = tally.scores(Ranks(rank, 2, reduce=collect))
    assert len(sums) == 2
    assert got == score(batches, confusion=True, tolerance=0.1, own=OWN)


def test_a_perfect_prediction_has_perfect_scores(batches: Batches) -> None:
    perfect = [
        (50.0 * functional.one_hot(masks.masked_fill(masks == IGNORED, 0), CLASSES).movedim(3, 1), masks)
        for _, masks in batches
    ]
    got = score(perfect, tolerance=0.01)
    assert set(got.metrics("val").values()) == {got.loss, 1.0}
    assert got.loss < 1e-9


def test_images_without_counted_pixels_count_as_images_but_a_part_of_them_cannot_be_scored(
    batches: Batches,
) -> None:
    ignored = (batches[0][0], torch.full_like(batches[0][1], IGNORED))
    alone, together = score(batches[1:]), score([ignored, *batches[1:]])
    assert together.by_class == alone.by_class
    assert (alone.images, together.images) == (2, 5)
    assert together.loss == pytest.approx(alone.loss * 2 / 5)
    with pytest.raises(ValueError, match="no pixels to score: all of them are ignored"):
        score([ignored], tolerance=0.1)
    with pytest.raises(ValueError, match="no images to score"):
        score([])


# --- boundaries ----------------------------------------------------------------------------------------


def test_boundary_scores_are_means_over_images_of_a_class_then_over_classes(batches: Batches) -> None:
    got = score(batches, tolerance=0.05)
    found: dict[int, list[float]] = {}
    for logits, masks in batches:
        scores, there = boundary_f1(logits.argmax(1), masks, CLASSES, 0.05)
        for image, label in there.nonzero().tolist():
            found.setdefault(label, []).append(scores[image, label].item())
    means = [sum(found[label]) / len(found[label]) if label in found else None for label in range(CLASSES)]
    assert got.by_class["boundary_f1"] == pytest.approx(means)
    assert means[ABSENT] is None
    assert got.extra["boundary_f1"] == pytest.approx(sum(value or 0.0 for value in means) / 5)
    assert "boundary_f1" not in score(batches).extra


def test_boundary_scores_are_of_masks_and_all_other_kinds_of_labels() -> None:
    assert Segmentation.metrics == ("boundary_f1",)
    assert "macro_f1" in Classification.metrics
    assert "boundary_f1" not in Classification.metrics


# --- functions of the caller's -------------------------------------------------------------------------


def errors(predicted: Tensor, mask: Tensor) -> float:
    """Return the share of counted pixels that are wrong; changes what it was given."""
    counted = mask != IGNORED
    value = float((predicted[counted] != mask[counted]).double().mean())
    predicted.zero_()
    mask.zero_()
    return value


def height(predicted: Tensor, mask: Tensor) -> float:
    assert predicted.dtype == mask.dtype == torch.int64
    assert predicted.shape == mask.shape
    return len(mask)


OWN = {"errors": Metric(errors, mode="min", worst=1.0), "height": Metric(height)}


def test_functions_of_the_callers_see_each_image_and_are_averaged_over_images(batches: Batches) -> None:
    got = score(batches, own=OWN, confusion=True)
    wrong = [
        float((logits.argmax(0) != mask)[mask != IGNORED].double().mean())
        for batch in batches
        for logits, mask in zip(*batch, strict=True)
    ]
    assert got.extra["errors"] == pytest.approx(sum(wrong) / 5)
    assert got.extra["height"] == pytest.approx((3 * 9 + 2 * 16) / 5)
    assert got.confusion == score(batches, confusion=True).confusion


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda p, m: math.nan, "metric mine: your function returned nan, expected a finite number"),
        (lambda p, m: 1 / 0, "metric mine: your function raised ZeroDivisionError: division by zero"),
    ],
)
def test_a_function_that_fails_is_one_clear_message(
    function: Callable[[Tensor, Tensor], float], message: str, batches: Batches
) -> None:
    with pytest.raises(UserError, match=message):
        score(batches, own={"mine": Metric(function)})


def test_no_function_is_asked_about_a_model_that_is_lost(batches: Batches) -> None:
    lost = [(torch.full_like(logits, math.nan), masks) for logits, masks in batches]
    got = score(lost, own={"mine": Metric(lambda p, m: 1 / 0)}, tolerance=0.1)
    assert not got.finite


@pytest.mark.parametrize("name", ["mean_iou", "mean_dice", "boundary_f1"])
def test_a_function_cannot_have_the_name_of_a_score_of_masks(name: str) -> None:
    with pytest.raises(UserError, match="a function cannot be called"):
        make_extra_metrics((), {name: height}, ("a", "b"))


# --- a lost model, and waiting -------------------------------------------------------------------------


def test_lost_scores_are_finite_and_worst_in_every_metric() -> None:
    worst = make_extra_metrics((BoundaryF1(),), OWN, ("a", "b")).worst_of(worst_mask_scores(20, images=7))
    assert worst.finite
    assert worst.loss > math.log(20)
    assert worst.images == 7
    assert worst.accuracy == worst.balanced_accuracy == 0.0
    assert worst.extra == {
        "mean_iou": 0.0,
        "mean_dice": 0.0,
        "boundary_f1": 0.0,
        "errors": 1.0,
        "height": 0.0,
    }


def test_a_batch_is_added_without_waiting_for_the_device(batches: Batches) -> None:
    tally = MaskTally(CLASSES, CPU, confusion=True, tolerance=0.1)
    with Watch() as watch:
        for batch in batches:
            tally.add(*batch)
    assert watch.waited == []
