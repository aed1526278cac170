"""RandAugment by groups against torchvision's, image by image."""

import numpy as np
import pytest
import torch
from scipy import stats
from torchvision.transforms import v2

from trainable.augmentation.randaugment import BINS, SIGNED, Operation, apply, rand_augment, strength

torch.set_num_threads(1)

REFERENCE = v2.RandAugment()
SPACE = REFERENCE._AUGMENTATION_SPACE


def torchvisions_name(operation: Operation) -> str:
    return operation.name.title().replace("_", "")


def noise(count: int, channels: int = 3, side: int = 16) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (count, channels, side, side), dtype=torch.uint8, generator=generator)


def test_the_operations_are_torchvisions_in_its_order() -> None:
    assert [torchvisions_name(operation) for operation in Operation] == list(SPACE)


@pytest.mark.parametrize("operation", Operation)
def test_strengths_and_signs_are_torchvisions(operation: Operation) -> None:
    magnitudes, signed = SPACE[torchvisions_name(operation)]
    table = magnitudes(BINS, 28, 28)

    assert (operation in SIGNED) == signed
    for magnitude in range(BINS):
        expected = 0.0 if table is None else float(table[magnitude])
        assert strength(operation, magnitude, 28) == expected


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("operation", Operation)
def test_a_group_is_changed_as_torchvision_changes_each_of_its_images(
    operation: Operation, channels: int
) -> None:
    images = noise(4, channels)
    for sign in (1, -1) if operation in SIGNED else (1,):
        amount = sign * strength(operation, 12, 16)

        changed = apply(operation, images, amount)

        for image, result in zip(images, changed, strict=True):
            reference = REFERENCE._apply_image_or_video_transform(
                image, torchvisions_name(operation), amount, interpolation=REFERENCE.interpolation, fill={}
            )
            assert torch.equal(result, reference)


def test_each_image_gets_its_own_operations_in_order() -> None:
    images = noise(28)
    chosen = np.tile(np.arange(14), 2)
    first = np.stack([(chosen + 0.5) / 14, np.repeat([0.9, 0.1], 14)], axis=1)
    second = np.stack([(chosen[::-1] + 0.5) / 14, np.full(28, 0.9)], axis=1)

    changed = rand_augment(images, np.concatenate([first, second], axis=1), magnitude=9)

    for row, image in enumerate(images):
        one, two = Operation(chosen[row]), Operation(chosen[::-1][row])
        sign = -1 if one in SIGNED and row >= 14 else 1
        expected = apply(one, image[None], sign * strength(one, 9, 16))
        expected = apply(two, expected, strength(two, 9, 16))
        assert torch.equal(changed[row], expected[0])


def test_operations_are_drawn_evenly_and_go_either_way() -> None:
    image = noise(1)
    outcomes = {
        apply(operation, image, sign * strength(operation, 30, 16)).numpy().tobytes(): (operation, sign)
        for operation in Operation
        for sign in ((1, -1) if operation in SIGNED else (1,))
    }
    uniform = np.random.default_rng(0).random((14_000, 2))

    changed = rand_augment(image.expand(14_000, -1, -1, -1), uniform, magnitude=30)

    drawn = [outcomes[each.numpy().tobytes()] for each in changed]
    assert stats.chisquare([sum(one is each for one, _ in drawn) for each in Operation]).pvalue > 1e-3
    signed = [sign for operation, sign in drawn if operation in SIGNED]
    assert stats.binomtest(signed.count(-1), len(signed)).pvalue > 1e-3
