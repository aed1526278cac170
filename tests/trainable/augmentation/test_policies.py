"""Tests the policies against torchvision's, image by image: operations, strengths, how often each comes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torchvision.transforms import v2

from trainable.augmentation.operations import RANDOM, SIGNED, Operation, apply, apply_each
from trainable.augmentation.policies import (
    AUTO_AUGMENT_DRAWS,
    TRIVIAL_AUGMENT_DRAWS,
    PolicyName,
    auto_augment,
    learnt_pairs,
    narrow_strengths,
    rand_augment,
    trivial_augment,
    wide_strengths,
)

RAND, TRIVIAL, AUTO = v2.RandAugment(), v2.TrivialAugmentWide(), v2.AutoAugment()
POLICIES: tuple[PolicyName, ...] = ("imagenet", "cifar10", "svhn")
SIDE = 24  # with fewer pixels than grey levels there would be nothing to equalise
MANY = 14_000


def torchvisions_name(operation: Operation) -> str:
    return operation.name.title().replace("_", "")


def noise(count: int, channels: int = 3, side: int = SIDE) -> torch.Tensor:
    """Return random images: the first has the whole range of values, the others less contrast."""
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (count, channels, side, side), dtype=torch.uint8, generator=generator)
    pixels[1:] = pixels[1:] // 4 + 60
    return pixels


def reference(operation: Operation, image: torch.Tensor, amount: float) -> torch.Tensor:
    changed: torch.Tensor = RAND._apply_image_or_video_transform(
        image, torchvisions_name(operation), amount, interpolation=RAND.interpolation, fill={}
    )
    return changed


def assert_same_pixels(images: torch.Tensor, references: torch.Tensor) -> None:
    """Assert that images are equal but for one pixel in 200: between two pixels, the last digit decides."""
    assert images.shape == references.shape
    assert images.dtype == references.dtype
    assert (images != references).double().mean() <= 0.005


# --- operations and strengths -------------------------------------------------------------------------


def test_the_operations_are_torchvisions() -> None:
    names = [torchvisions_name(operation) for operation in Operation]

    assert names[: len(RANDOM)] == list(RAND._AUGMENTATION_SPACE) == list(TRIVIAL._AUGMENTATION_SPACE)
    assert set(names[1:]) == set(AUTO._AUGMENTATION_SPACE)


@pytest.mark.parametrize(
    ("space", "bins", "ours"),
    [
        (RAND._AUGMENTATION_SPACE, 31, narrow_strengths(31, 28)),
        (TRIVIAL._AUGMENTATION_SPACE, 31, wide_strengths(31)),
        (AUTO._AUGMENTATION_SPACE, 10, narrow_strengths(10, 28)),
    ],
    ids=["randaugment", "trivialaugment", "autoaugment"],
)
def test_strengths_and_signs_are_torchvisions(space: dict[str, Any], bins: int, ours: np.ndarray) -> None:
    for name, (magnitudes, signed) in space.items():
        (operation,) = [each for each in Operation if torchvisions_name(each) == name]
        table = magnitudes(bins, 28, 28)

        assert (operation in SIGNED) == signed
        assert ours[operation].tolist() == ([0.0] * bins if table is None else table.tolist())


def test_trivialaugment_moves_by_pixels_and_the_others_by_a_share_of_the_side() -> None:
    assert wide_strengths(31)[Operation.TRANSLATE_X, -1] == 32.0
    for side in (28, 224):
        moved = narrow_strengths(31, side)[Operation.TRANSLATE_Y, -1]
        assert moved == pytest.approx(side * 150 / 331)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("operation", Operation)
def test_images_changed_together_are_changed_as_torchvision_changes_each(
    operation: Operation, channels: int
) -> None:
    amounts = np.concatenate([wide_strengths(31)[operation, ::6], narrow_strengths(10, SIDE)[operation, ::3]])
    amounts = np.concatenate([amounts, -amounts]) if operation in SIGNED else amounts
    images = noise(3, channels).repeat_interleave(len(amounts), 0)
    amounts = np.tile(amounts, 3)

    changed = apply(operation, images, amounts)

    expected = [
        reference(operation, image, float(amount)) for image, amount in zip(images, amounts, strict=True)
    ]
    assert_same_pixels(changed, torch.stack(expected))


@pytest.mark.parametrize("operation", set(RANDOM) - {Operation.IDENTITY})
def test_an_operation_at_its_strongest_changes_an_image(operation: Operation) -> None:
    images = noise(2)[1:]

    changed = apply(operation, images, wide_strengths(31)[operation, -1:])

    assert not torch.equal(changed, images)


def test_colour_leaves_grey_images_alone() -> None:
    images = noise(2, channels=1)

    assert torch.equal(apply(Operation.COLOR, images, np.array([0.9, -0.9])), images)


def test_an_image_too_small_to_be_sharpened_is_left_alone() -> None:
    images = noise(2, side=2)

    assert torch.equal(apply(Operation.SHARPNESS, images, np.array([0.9, -0.9])), images)


def test_each_image_of_a_batch_gets_its_own_operation_and_amount() -> None:
    chosen = np.array([list(Operation)[row % 15] for row in np.random.default_rng(0).permutation(45)])
    amounts = np.array([narrow_strengths(31, SIDE)[one, 5 + row % 20] for row, one in enumerate(chosen)])
    images = noise(45)
    before = images.clone()

    changed = apply_each(images, chosen, amounts)

    for row, (operation, amount) in enumerate(zip(chosen, amounts, strict=True)):
        assert_same_pixels(changed[row], reference(Operation(operation), images[row], float(amount)))
    assert torch.equal(images, before)


def test_a_batch_that_drew_nothing_comes_back_as_a_copy() -> None:
    images = noise(3)

    same = apply_each(images, np.zeros(3, np.int64), np.zeros(3))

    assert torch.equal(same, images)
    assert same.data_ptr() != images.data_ptr()


# --- what is drawn ------------------------------------------------------------------------------------


def outcomes(image: torch.Tensor, strengths: np.ndarray) -> dict[bytes, tuple[Operation, int, int]]:
    """Return what an image becomes -> the (operation, bin, sign) that make it so, wherever only one does."""
    found: dict[bytes, list[tuple[Operation, int, int]]] = {}
    for operation in RANDOM:
        for sign in (1, -1) if operation in SIGNED else (1,):
            for number, strength in enumerate(strengths[operation]):
                pixels = apply(operation, image, np.array([sign * strength])).numpy().tobytes()
                found.setdefault(pixels, []).append((operation, number, sign))
    return {pixels: made[0] for pixels, made in found.items() if len(made) == 1}


def test_randaugment_does_one_operation_after_another() -> None:
    images = noise(28)
    chosen = np.tile(np.arange(14), 2)
    first = np.stack([(chosen + 0.5) / 14, np.repeat([0.9, 0.1], 14)], axis=1)
    second = np.stack([(chosen[::-1] + 0.5) / 14, np.full(28, 0.9)], axis=1)
    strengths = narrow_strengths(31, SIDE)[:, 9]

    changed = rand_augment(images, np.concatenate([first, second], axis=1), magnitude=9)

    for row, image in enumerate(images):
        one, two = Operation(chosen[row]), Operation(chosen[::-1][row])
        sign = -1 if one in SIGNED and row >= 14 else 1
        expected = reference(one, image, sign * float(strengths[one]))
        assert_same_pixels(changed[row], reference(two, expected, float(strengths[two])))


def test_randaugments_operations_are_drawn_evenly_and_go_either_way() -> None:
    image = noise(2)[1:]
    made = outcomes(image, narrow_strengths(31, SIDE)[:, [30]])
    uniform = np.random.default_rng(0).random((MANY, 2))

    changed = rand_augment(image.expand(MANY, -1, -1, -1), uniform, magnitude=30)

    drawn = [made[each.numpy().tobytes()] for each in changed]
    assert stats.chisquare([sum(one is each for one, _, _ in drawn) for each in RANDOM]).pvalue > 1e-3
    signs = [sign for operation, _, sign in drawn if operation in SIGNED]
    assert stats.binomtest(signs.count(-1), len(signs)).pvalue > 1e-3


def test_trivialaugment_is_one_operation_of_the_drawn_strength_and_sign() -> None:
    images = noise(45)
    random = np.random.default_rng(1)
    uniform = random.random((45, TRIVIAL_AUGMENT_DRAWS))

    changed = trivial_augment(images, uniform)

    for image, (which, strong, direction), result in zip(images, uniform, changed, strict=True):
        operation = Operation(int(which * 14))
        table = TRIVIAL._AUGMENTATION_SPACE[torchvisions_name(operation)][0](31, SIDE, SIDE)
        amount = 0.0 if table is None else float(table[int(strong * 31)])
        sign = -1.0 if operation in SIGNED and direction < 0.5 else 1.0
        assert_same_pixels(result, reference(operation, image, sign * amount))


def test_trivialaugments_operations_strengths_and_signs_are_drawn_evenly() -> None:
    image = noise(2)[1:]
    made = outcomes(image, wide_strengths(31))
    uniform = np.random.default_rng(0).random((4000, TRIVIAL_AUGMENT_DRAWS))

    changed = trivial_augment(image.expand(4000, -1, -1, -1), uniform)

    drawn = [made.get(each.numpy().tobytes()) for each in changed]
    # Turning leaves no two strengths alike but the weakest, which looks like any other identity.
    turned = [one for one in drawn if one is not None and one[0] is Operation.ROTATE]
    bins = np.bincount([number for _, number, _ in turned], minlength=31)
    assert bins[0] == 0
    assert stats.chisquare(bins[1:]).pvalue > 1e-3
    assert stats.binomtest([sign for *_, sign in turned].count(-1), len(turned)).pvalue > 1e-3
    assert stats.binomtest(len(turned), 4000, 30 / 31 / 14).pvalue > 1e-3
    shares = {
        operation: len({number for one, number, _ in made.values() if one is operation}) / 31
        for operation in (Operation.SHEAR_X, Operation.BRIGHTNESS, Operation.SHARPNESS, Operation.SOLARIZE)
    }
    for operation, share in shares.items():
        count = sum(one is not None and one[0] is operation for one in drawn)
        assert stats.binomtest(count, 4000, share / 14).pvalue > 1e-3


@pytest.mark.parametrize("policy", POLICIES)
def test_the_learnt_pairs_are_those_of_torchvisions_v2(policy: PolicyName) -> None:
    pairs = learnt_pairs(policy)

    assert pairs.operations.shape == (25, 2)
    for row, listed in enumerate(v2.AutoAugment(v2.AutoAugmentPolicy(policy))._policies):
        for index, (name, probability, magnitude) in enumerate(listed):
            assert torchvisions_name(Operation(pairs.operations[row, index])) == name
            assert pairs.probabilities[row, index] == probability
            assert pairs.magnitudes[row, index] == (magnitude or 0)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("policy", POLICIES)
def test_autoaugment_does_the_drawn_pair_each_by_its_own_chance(policy: PolicyName, channels: int) -> None:
    images = noise(100, channels)
    uniform = np.random.default_rng(2).random((100, AUTO_AUGMENT_DRAWS))
    uniform[:, 0] = (np.arange(100) % 25 + 0.5) / 25

    changed = auto_augment(images, uniform, policy)

    pairs = v2.AutoAugment(v2.AutoAugmentPolicy(policy))._policies
    for row, image in enumerate(images):
        for index, (name, probability, magnitude) in enumerate(pairs[row % 25]):
            chance, direction = uniform[row, 1 + 2 * index], uniform[row, 2 + 2 * index]
            if chance < probability:
                table, signed = AUTO._AUGMENTATION_SPACE[name]
                amount = 0.0 if magnitude is None else float(table(10, SIDE, SIDE)[magnitude])
                amount = -amount if signed and direction < 0.5 else amount
                image = AUTO._apply_image_or_video_transform(
                    image, name, amount, interpolation=AUTO.interpolation, fill={}
                )
        assert_same_pixels(changed[row], image)


def test_autoaugments_inversion_comes_as_often_as_its_policy_says() -> None:
    """In SVHN's policy an image is inverted, and nothing else, for as many reasons as the table gives."""
    pairs = learnt_pairs("svhn")
    image = noise(2)[1:]
    uniform = np.random.default_rng(3).random((20_000, AUTO_AUGMENT_DRAWS))

    changed = auto_augment(image.expand(20_000, -1, -1, -1), uniform, "svhn")

    inverted = int((changed == 255 - image).flatten(1).all(1).sum())
    chance = 0.0
    for operations, (first, second) in zip(pairs.operations, pairs.probabilities, strict=True):
        if operations[0] == Operation.INVERT:
            chance += first * (1 - second) / 25
        if operations[1] == Operation.INVERT:
            chance += (1 - first) * second / 25
    assert chance > 0.05
    assert stats.binomtest(inverted, 20_000, chance).pvalue > 1e-3
