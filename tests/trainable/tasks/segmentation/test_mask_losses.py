"""Tests the losses of a segmentation against loops over pixels, torch and segmentation_models_pytorch."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import pytest
import segmentation_models_pytorch as smp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from tests.trainable.training.test_synchronisation import Watch
from trainable.recipe.tasks import IGNORED, MaskLoss
from trainable.tasks.segmentation.losses import (
    cross_entropy,
    dice,
    enlarged,
    focal,
    lovasz,
    mask_loss,
    shrunk,
)

CLASSES = 4
WEIGHTS = torch.tensor([0.5, 2.0, 1.0, 3.0])
Loss = Callable[[Tensor, Tensor], Tensor]
LOSSES: dict[str, Loss] = {
    "cross_entropy": cross_entropy,
    "smoothed": partial(cross_entropy, weights=WEIGHTS, label_smoothing=0.1),
    "dice": dice,
    "focal": partial(focal, gamma=2.0),
    "focal, weighted": partial(focal, gamma=0.5, weights=WEIGHTS),
    "lovasz": lovasz,
}
EVERY = MaskLoss(cross_entropy=0.5, dice=1.0, focal=2.0, lovasz=0.25)
each_loss = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)


def batch(images: int = 3, side: int = 7, seed: int = 0, ignored: float = 0.2) -> tuple[Tensor, Tensor]:
    """Return logits and masks that have no pixel of class 2, but some that are ignored."""
    generator = torch.Generator().manual_seed(seed)
    masks = torch.randint(0, CLASSES, (images, side, side + 1), generator=generator)
    masks[masks == 2] = 0
    masks[torch.rand(masks.shape, generator=generator) < ignored] = IGNORED
    return 2 * torch.randn(images, CLASSES, side, side + 1, generator=generator), masks


def pixels(logits: Tensor, mask: Tensor) -> list[tuple[list[float], int]]:
    """Return the probabilities and the label of every counted pixel of one image."""
    columns = logits.double().flatten(1).T.softmax(1).tolist()
    pairs = zip(columns, mask.flatten().tolist(), strict=True)
    return [(column, label) for column, label in pairs if label != IGNORED]


# --- against a loop over pixels ------------------------------------------------------------------------


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["alike", "weighted"])
def test_cross_entropy_is_a_sum_over_counted_pixels_divided_by_all(weights: Tensor | None) -> None:
    logits, masks = batch()
    for image, got in enumerate(cross_entropy(logits, masks, weights=weights).tolist()):
        each = [
            -math.log(column[label]) * (1.0 if weights is None else float(weights[label]))
            for column, label in pixels(logits[image], masks[image])
        ]
        assert got == pytest.approx(sum(each) / masks[image].numel(), rel=1e-5)


@pytest.mark.parametrize("gamma", [0.0, 0.3, 1.0, 2.0])
def test_focal_loss_equals_a_loop_over_pixels(gamma: float) -> None:
    logits, masks = batch()
    for image, got in enumerate(focal(logits, masks, gamma=gamma, weights=WEIGHTS).tolist()):
        each = [
            -math.log(column[label]) * (1 - column[label]) ** gamma * float(WEIGHTS[label])
            for column, label in pixels(logits[image], masks[image])
        ]
        assert got == pytest.approx(sum(each) / masks[image].numel(), rel=1e-5)


def test_dice_equals_a_loop_over_pixels() -> None:
    logits, masks = batch()
    for image, got in enumerate(dice(logits, masks).tolist()):
        there = pixels(logits[image], masks[image])
        each = []
        for label in {label for _, label in there}:
            overlap = sum(column[label] for column, true in there if true == label)
            sums = sum(column[label] + (true == label) for column, true in there)
            each.append(1 - 2 * overlap / sums)
        assert got == pytest.approx(sum(each) / len(each), rel=1e-5)


def test_lovasz_loss_equals_a_loop_over_sorted_errors() -> None:
    logits, masks = batch()
    for image, got in enumerate(lovasz(logits, masks).tolist()):
        there = pixels(logits[image], masks[image])
        each = []
        for label in {label for _, label in there}:
            errors = [(abs((true == label) - column[label]), true == label) for column, true in there]
            each.append(lovasz_of(sorted(errors, reverse=True)))
        assert got == pytest.approx(sum(each) / len(each), rel=1e-5)


def lovasz_of(errors: list[tuple[float, bool]]) -> float:
    """Return the sum of sorted errors, each times what its pixel adds to 1 - IoU when it is wrong, too."""
    total, before, wanted = 0.0, 0.0, sum(right for _, right in errors)
    for count in range(1, len(errors) + 1):
        missed = sum(right for _, right in errors[:count])
        jaccard = 1 - (wanted - missed) / (wanted + count - missed)
        total += errors[count - 1][0] * (jaccard - before)
        before = jaccard
    return total


# --- against libraries ---------------------------------------------------------------------------------


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy_is_torchs_where_no_pixel_is_ignored(smoothing: float) -> None:
    logits, masks = batch(ignored=0.0)
    theirs = functional.cross_entropy(logits, masks, label_smoothing=smoothing)
    torch.testing.assert_close(cross_entropy(logits, masks, label_smoothing=smoothing).mean(), theirs)


def test_smoothing_with_weights_is_torchs_sum_over_the_number_of_pixels() -> None:
    logits, masks = batch(ignored=0.0)
    theirs = functional.cross_entropy(logits, masks, WEIGHTS, reduction="sum", label_smoothing=0.1)
    ours = cross_entropy(logits, masks, weights=WEIGHTS, label_smoothing=0.1)
    torch.testing.assert_close(ours.mean(), theirs / masks.numel())


@pytest.mark.parametrize("ignored", [0.0, 0.3])
def test_dice_is_that_of_segmentation_models_over_the_classes_that_are_there(ignored: float) -> None:
    logits, masks = batch(ignored=ignored)
    theirs = smp.losses.DiceLoss("multiclass", ignore_index=IGNORED)
    for image in range(len(masks)):
        there = len(set(masks[image].flatten().tolist()) - {IGNORED})
        expected = theirs(logits[image : image + 1], masks[image : image + 1]) * CLASSES / there
        torch.testing.assert_close(dice(logits, masks)[image], expected)


@pytest.mark.parametrize("ignored", [0.0, 0.3])
def test_lovasz_loss_and_gradient_are_those_of_segmentation_models(ignored: float) -> None:
    logits, masks = batch(ignored=ignored)
    theirs = smp.losses.LovaszLoss("multiclass", per_image=True, ignore_index=IGNORED)
    for image in range(len(masks)):
        one, mask = logits[image : image + 1].clone().requires_grad_(), masks[image : image + 1]
        expected, got = theirs(one, mask), lovasz(one, mask)[0]
        torch.testing.assert_close(got, expected)
        gradients = [torch.autograd.grad(each, one)[0] for each in (got, expected)]
        torch.testing.assert_close(*gradients)


# --- what holds for all of them ------------------------------------------------------------------------


def test_focal_loss_without_gamma_is_the_cross_entropy() -> None:
    logits, masks = batch()
    for weights in (None, WEIGHTS):
        expected = cross_entropy(logits, masks, weights=weights)
        torch.testing.assert_close(focal(logits, masks, gamma=0.0, weights=weights), expected)


@each_loss
def test_ignored_pixels_have_no_influence_and_no_gradient(loss: Loss) -> None:
    logits, masks = batch()
    hidden = (masks == IGNORED)[:, None]
    others = torch.where(hidden, 5 * torch.randn_like(logits), logits).requires_grad_()
    losses = loss(others, masks)
    torch.testing.assert_close(losses, loss(logits, masks))
    losses.sum().backward()
    assert others.grad is not None
    assert not others.grad[hidden.expand_as(others)].any()
    assert others.grad.any()


@each_loss
def test_an_image_that_is_all_ignored_has_no_loss_and_no_gradient(loss: Loss) -> None:
    logits, masks = batch()
    masks[1] = IGNORED
    logits.requires_grad_()
    losses = loss(logits, masks)
    losses.sum().backward()
    assert losses[1].item() == 0.0
    assert losses[0].item() > 0.0
    assert logits.grad is not None
    assert not logits.grad[1].any()
    assert logits.grad.isfinite().all()


@pytest.mark.parametrize("loss", [cross_entropy, dice, partial(focal, gamma=2.0), lovasz])
def test_a_perfect_prediction_has_hardly_any_loss_and_a_wrong_one_has_much(loss: Loss) -> None:
    _, masks = batch()
    perfect = 40.0 * functional.one_hot(masks.masked_fill(masks == IGNORED, 0), CLASSES).movedim(3, 1)
    assert loss(perfect, masks).tolist() == pytest.approx([0.0] * 3, abs=1e-5)
    assert (loss(perfect.roll(1, 1), masks) > 0.5).all()


@each_loss
@pytest.mark.parametrize("size", [1e2, 1e4, 1e30])
def test_extreme_logits_have_finite_losses_and_gradients(loss: Loss, size: float) -> None:
    logits, masks = batch()
    extreme = (logits * size).requires_grad_()
    losses = loss(extreme, masks)
    losses.sum().backward()
    assert extreme.grad is not None
    assert losses.isfinite().all()
    assert extreme.grad.isfinite().all()


@each_loss
def test_gradients_are_those_of_small_differences(loss: Loss) -> None:
    logits, masks = batch(images=2, side=3)
    assert torch.autograd.gradcheck(lambda each: loss(each, masks), logits.double().requires_grad_())


def test_a_focal_loss_of_a_small_gamma_has_a_gradient_where_it_is_sure() -> None:
    logits = torch.tensor([1e4, 0.0]).view(1, 2, 1, 1).requires_grad_()
    focal(logits, torch.zeros(1, 1, 1, dtype=torch.int64), gamma=0.1).sum().backward()
    assert logits.grad is not None
    assert not logits.grad.any()


# --- the sum of a recipe -------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 6), st.integers(1, 5), st.integers(0, 1000), st.sampled_from(["labels", "outputs"]))
def test_a_batchs_loss_is_the_mean_of_the_losses_of_its_parts(
    images: int, first: int, seed: int, resolution: str
) -> None:
    spec = EVERY.model_copy(update={"resolution": resolution})
    logits, masks = batch(images, side=7, seed=seed, ignored=0.3)
    logits, first = logits[..., ::2, ::2], min(first, images - 1)
    loss = partial(mask_loss, spec=spec, weights=WEIGHTS, label_smoothing=0.1)
    parts = [(part, slice(*part)) for part in ((0, first), (first, images))]
    mean = sum((stop - start) * loss(logits[part], masks[part]) for (start, stop), part in parts) / images
    torch.testing.assert_close(loss(logits, masks), mean)


def test_the_loss_of_a_recipe_is_a_weighted_sum() -> None:
    logits, masks = batch()
    expected = (
        0.5 * cross_entropy(logits, masks, weights=WEIGHTS, label_smoothing=0.1)
        + dice(logits, masks)
        + 2.0 * focal(logits, masks, gamma=2.0, weights=WEIGHTS)
        + 0.25 * lovasz(logits, masks)
    )
    got = mask_loss(logits, masks, EVERY, weights=WEIGHTS, label_smoothing=0.1)
    torch.testing.assert_close(got, expected.mean())


def test_outputs_are_enlarged_to_the_labels_or_labels_shrink_to_the_outputs() -> None:
    logits, masks = batch(side=14)
    small, spec = logits[..., ::2, ::3], MaskLoss(dice=1.0)
    by_labels = mask_loss(small, masks, MaskLoss(dice=1.0, resolution="labels"))
    by_outputs = mask_loss(small, masks, MaskLoss(dice=1.0, resolution="outputs"))
    torch.testing.assert_close(by_labels, mask_loss(enlarged(small, masks), masks, spec))
    torch.testing.assert_close(by_outputs, mask_loss(small, shrunk(masks, small), spec))
    assert by_labels != by_outputs


def test_a_shrunk_mask_has_the_labels_at_the_centres() -> None:
    masks = torch.arange(36).view(1, 6, 6)
    masks[0, 5, 5] = IGNORED
    small = shrunk(masks, torch.zeros(1, 2, 2, 2))
    assert small.tolist() == [[[7, 10], [25, 28]]]
    assert shrunk(masks, torch.zeros(1, 2, 6, 6)).tolist() == masks.tolist()


def test_no_loss_waits_for_the_device() -> None:
    logits, masks = batch()
    small = logits[..., ::2, ::2].clone().requires_grad_()
    for resolution in ("labels", "outputs"):
        spec = EVERY.model_copy(update={"resolution": resolution})
        with Watch() as watch:
            mask_loss(small, masks, spec, weights=WEIGHTS, label_smoothing=0.1).backward()
        assert watch.waited == []
