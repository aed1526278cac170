"""Tests CutMix and ClassMix of masks against a loop over one image at a time."""

from __future__ import annotations

from types import UnionType
from typing import get_args

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from tests.trainable.training.test_synchronisation import Watch
from trainable.augmentation.mixing import MixingDraw, cut_box
from trainable.errors import RecipeError
from trainable.recipe import Recipe
from trainable.recipe.augmentations import (
    ClassMix,
    CropOfLabels,
    CutMix,
    MixingOfLabels,
    MixingOfMasks,
    NoMixing,
)
from trainable.recipe.tasks import IGNORED, MOST_CLASSES, Classification, Segmentation
from trainable.tasks.segmentation.mixing import in_box, make_mask_mixing, of_half

GENERATOR = torch.Generator().manual_seed(0)
MASKS = torch.randint(0, 6, (5, 9, 12), generator=GENERATOR)
MASKS[MASKS == 5] = IGNORED
MASKS[3] = 2  # one class alone
MASKS[4] = IGNORED
IMAGES = torch.rand(5, 3, 9, 12, generator=GENERATOR)
both_kinds = pytest.mark.parametrize("spec", [CutMix(), ClassMix()], ids=lambda spec: spec.kind)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def mix(spec: CutMix | ClassMix, seed: int = 0) -> tuple[Tensor, Tensor]:
    mixing = make_mask_mixing(spec)
    assert mixing is not None
    return mixing(IMAGES, MASKS, seeded(seed))


def test_no_mixing_is_none() -> None:
    assert make_mask_mixing(NoMixing()) is None


def test_each_task_has_its_own_kinds_and_its_recipe_refuses_the_others() -> None:
    def kinds(union: UnionType) -> tuple[str, ...]:
        return tuple(each().kind for each in get_args(union))

    assert kinds(MixingOfMasks) == Segmentation.mixings == ("none", "cutmix", "classmix")
    assert kinds(MixingOfLabels) == Classification.mixings == ("none", "mixup", "cutmix")
    assert kinds(CropOfLabels) == Classification.crops
    for path, kind in {"augmentation.mixing.kind": "classmix", "augmentation.crop.kind": "scaled"}.items():
        with pytest.raises(RecipeError, match=f"{path} {kind} does not go with task.kind classification"):
            Recipe().with_values({path: kind})


@pytest.mark.parametrize("draw", [(0.5, 0.5, 0.5), (0.1, 0.0, 0.99), (0.99, 0.3, 0.3), (0.0, 0.5, 0.5)])
def test_cutmix_chooses_the_same_box_of_every_image(draw: MixingDraw) -> None:
    chosen = in_box(MASKS, draw)
    top, bottom, left, right = cut_box(draw, 9, 12)
    for mask in chosen:
        for row in range(9):
            for column in range(12):
                assert mask[row, column] == (top <= row < bottom and left <= column < right)


def test_classmix_chooses_the_pixels_of_the_first_half_of_the_classes_that_a_mask_has() -> None:
    order = np.random.default_rng(0).random((5, MOST_CLASSES))
    chosen = of_half(MASKS, order)
    for mask, numbers, got in zip(MASKS, order, chosen, strict=True):
        there = sorted(set(mask.flatten().tolist()) - {IGNORED}, key=lambda each: numbers[each])
        first = there[: len(there) // 2]
        expected = [[label in first for label in row] for row in mask.tolist()]
        assert got.tolist() == expected
    assert chosen.sum((1, 2)).tolist()[3:] == [0, 0]  # one class, and none
    assert chosen[:3].any()


def test_a_mask_may_have_every_class_there_is() -> None:
    mask = torch.arange(256).view(1, 16, 16)
    chosen = of_half(mask, np.random.default_rng(0).random((1, MOST_CLASSES)))
    assert chosen.sum() == MOST_CLASSES // 2
    assert not chosen[0, 15, 15]


@both_kinds
@pytest.mark.parametrize("seed", range(5))
def test_each_pixel_and_its_label_are_an_images_own_or_both_its_neighbours(
    spec: CutMix | ClassMix, seed: int
) -> None:
    images, masks = mix(spec, seed)
    for i in range(len(IMAGES)):
        for row in range(9):
            for column in range(12):
                place = (slice(None), row, column)
                pasted = torch.equal(images[i][place], IMAGES[i - 1][place])
                assert pasted or torch.equal(images[i][place], IMAGES[i][place])
                assert masks[i, row, column] == MASKS[i - pasted, row, column]


def test_as_many_pixels_of_a_class_are_pasted_as_the_neighbour_has() -> None:
    images = torch.arange(5.0).view(5, 1, 1, 1).expand(5, 1, 9, 12)
    mixing = make_mask_mixing(ClassMix())
    assert mixing is not None
    shown, masks = mixing(images, MASKS, seeded(0))  # an image's pixels are its number
    for i in range(5):
        pasted = shown[i, 0] == (i - 1) % 5
        for label in range(5):
            count = int((masks[i][pasted] == label).sum())
            assert count in (0, int((MASKS[i - 1] == label).sum()))
        assert not (masks[i][pasted] == IGNORED).any()


@both_kinds
def test_a_batch_is_mixed_by_its_generator_and_its_inputs_are_left_alone(spec: CutMix | ClassMix) -> None:
    before = IMAGES.clone(), MASKS.clone()
    first, again = mix(spec, 1), mix(spec, 1)
    others = [mix(spec, seed)[0] for seed in range(2, 6)]
    assert all(torch.equal(*pair) for pair in zip(first, again, strict=True))
    assert not all(torch.equal(first[0], other) for other in others)
    assert torch.equal(IMAGES, before[0])
    assert torch.equal(MASKS, before[1])


def test_each_class_is_pasted_equally_often() -> None:
    masks = torch.tensor([7, 7, 7, 1, 1, 3]).view(1, 1, 6).expand(600, 1, 6)
    chosen = of_half(masks, np.random.default_rng(0).random((600, MOST_CLASSES)))
    counts = [int(chosen[:, 0, place].sum()) for place in (0, 3, 5)]
    assert sum(counts) == 600
    assert stats.chisquare(counts).pvalue > 1e-3


@both_kinds
def test_every_call_takes_one_draw_mixed_or_not(spec: CutMix | ClassMix) -> None:
    never = make_mask_mixing(spec.model_copy(update={"probability": 0.0}))
    always = make_mask_mixing(spec)
    assert never is not None
    assert always is not None
    first, second, third = seeded(0), seeded(0), seeded(0)
    always(IMAGES, MASKS, first)
    images, masks = never(IMAGES, MASKS, second)
    torch.randint(2**63 - 1, (), generator=third)
    assert torch.equal(first.get_state(), second.get_state())
    assert torch.equal(first.get_state(), third.get_state())
    assert torch.equal(images, IMAGES)
    assert torch.equal(masks, MASKS)


@both_kinds
def test_the_share_of_mixed_batches_is_the_probability(spec: CutMix | ClassMix) -> None:
    mixing = make_mask_mixing(spec.model_copy(update={"probability": 0.3}))
    assert mixing is not None
    generator = seeded(0)
    mixed = sum(mixing(IMAGES, MASKS, generator)[0] is not IMAGES for _ in range(500))
    assert stats.binomtest(mixed, 500, 0.3).pvalue > 1e-3


@both_kinds
def test_a_batch_of_one_image_is_mixed_with_itself(spec: CutMix | ClassMix) -> None:
    mixing = make_mask_mixing(spec)
    assert mixing is not None
    images, masks = mixing(IMAGES[:1], MASKS[:1], seeded(0))
    assert torch.equal(images, IMAGES[:1])
    assert torch.equal(masks, MASKS[:1])


@both_kinds
def test_mixing_reads_nothing_of_the_device_but_the_hosts_own_seed(spec: CutMix | ClassMix) -> None:
    with Watch() as watch:
        mix(spec)
    assert watch.waited == ["aten._local_scalar_dense.default"]
