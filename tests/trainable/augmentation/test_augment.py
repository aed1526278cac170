"""Tests the augmentations of a batch, each image by its own draws."""

import numpy as np
import pytest
import torch
from scipy import stats
from torchvision.transforms.v2 import functional

from trainable.augmentation.augment import make_augment
from trainable.augmentation.draws import Draws
from trainable.augmentation.geometry import BOX_DRAWS, crop_boxes, flip, pad_crop, padding, resized_crop
from trainable.recipe.augmentations import (
    Augmentation,
    AutoAugment,
    NoCrop,
    PadCrop,
    RandAugment,
    ResizedCrop,
    TrivialAugment,
)

SCALE, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)
PLAIN = Augmentation(crop=NoCrop(), flip_probability=0.0)
EACH = {
    "pad": Augmentation(crop=PadCrop(), flip_probability=0.0),
    "resized": Augmentation(crop=ResizedCrop(), flip_probability=0.0),
    "flip": Augmentation(crop=NoCrop(), flip_probability=0.5),
    "randaugment": Augmentation(crop=NoCrop(), flip_probability=0.0, policy=RandAugment()),
    "trivialaugment": Augmentation(crop=NoCrop(), flip_probability=0.0, policy=TrivialAugment()),
    "autoaugment": Augmentation(crop=NoCrop(), flip_probability=0.0, policy=AutoAugment()),
}


def noise(count: int, channels: int = 3, side: int = 16) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (count, channels, side, side), dtype=torch.uint8, generator=generator)


def augmented(spec: Augmentation, images: torch.Tensor, indices: np.ndarray, epoch: int = 1) -> torch.Tensor:
    for change in make_augment(spec, ("horizontal", "vertical"), images.shape[-1]):
        images = change(images, Draws(0, epoch, indices))
    return images


def test_nothing_asked_for_changes_nothing() -> None:
    assert make_augment(PLAIN, ("horizontal",), 16) == ()


@pytest.mark.parametrize("name", EACH)
def test_two_equal_images_of_a_batch_become_different(name: str) -> None:
    images = noise(1).expand(32, -1, -1, -1).contiguous()

    changed = augmented(EACH[name], images, np.arange(32))

    assert len({image.numpy().tobytes() for image in changed}) > 2
    assert changed.dtype == torch.uint8
    assert changed.shape == images.shape


@pytest.mark.parametrize("name", EACH)
def test_an_image_is_augmented_alike_in_any_batch_and_otherwise_in_another_epoch(name: str) -> None:
    images = noise(24)
    indices = np.arange(100, 124)

    together = augmented(EACH[name], images, indices)
    halves = [augmented(EACH[name], images[half], indices[half]) for half in (slice(9), slice(9, 24))]

    assert torch.equal(together, torch.cat(halves))
    assert not torch.equal(together, augmented(EACH[name], images, indices, epoch=2))


@pytest.mark.parametrize("name", EACH)
def test_the_batch_itself_is_left_alone(name: str) -> None:
    images = noise(16)
    before = images.clone()

    augmented(EACH[name], images, np.arange(16))

    assert torch.equal(images, before)


def test_switching_one_augmentation_off_leaves_the_others_draws_alone() -> None:
    images = noise(16)
    both = Augmentation(crop=PadCrop(), flip_probability=0.5)

    step_by_step = augmented(EACH["flip"], augmented(EACH["pad"], images, np.arange(16)), np.arange(16))

    assert torch.equal(augmented(both, images, np.arange(16)), step_by_step)


def test_pad_crop_equals_padding_and_cutting_each_image() -> None:
    images = noise(25, side=8)
    offsets = np.array([(row, column) for row in range(5) for column in range(5)])

    cropped = pad_crop(images, offsets, border=2)

    for image, (row, column), result in zip(images, offsets, cropped, strict=True):
        padded = torch.nn.functional.pad(image, (2, 2, 2, 2))
        assert torch.equal(result, padded[:, row : row + 8, column : column + 8])


def test_pad_crop_offsets_are_uniform_over_both_directions() -> None:
    side, border = 16, 2
    image = torch.zeros(1, 1, side, side, dtype=torch.uint8)
    image[..., 8, 8] = 255
    images = image.expand(5000, -1, -1, -1)

    moved = augmented(EACH["pad"], images, np.arange(5000)).flatten(1).argmax(1)

    offsets = np.stack([moved.numpy() // side, moved.numpy() % side]) - 8 + border
    counts = np.bincount(offsets[0] * 5 + offsets[1], minlength=25)
    assert len(counts) == 25
    assert stats.chisquare(counts).pvalue > 1e-3


@pytest.mark.parametrize(
    ("fraction", "side", "border"), [(0.125, 32, 4), (0.125, 28, 4), (0.125, 8, 1), (0.01, 8, 1)]
)
def test_padding_is_a_fraction_of_the_side_and_one_pixel_at_least(
    fraction: float, side: int, border: int
) -> None:
    assert padding(fraction, side) == border


def test_flip_mirrors_only_the_chosen_images() -> None:
    images = noise(3)

    flipped = flip(images, np.array([True, False, True]), axis=-1)

    assert torch.equal(flipped[0], functional.horizontal_flip(images[0]))
    assert torch.equal(flipped[1], images[1])
    assert torch.equal(flip(images, np.ones(3, bool), axis=-2), functional.vertical_flip(images))


def test_the_share_of_flipped_images_is_the_probability_and_directions_are_independent() -> None:
    image = torch.arange(4, dtype=torch.uint8).view(1, 1, 2, 2)
    spec = Augmentation(crop=NoCrop(), flip_probability=0.3)

    corner = augmented(spec, image.expand(10_000, -1, -1, -1), np.arange(10_000))[:, 0, 0, 0]

    counts = torch.bincount(corner.long(), minlength=4).numpy()
    expected = 10_000 * np.outer([0.7, 0.3], [0.7, 0.3]).ravel()
    assert stats.chisquare(counts, expected).pvalue > 1e-3


def test_only_the_flips_that_the_data_allow_are_made() -> None:
    images = noise(64)
    spec = Augmentation(crop=NoCrop(), flip_probability=1.0)

    (change,) = make_augment(spec, ("vertical",), 16)

    assert torch.equal(change(images, Draws(0, 1, np.arange(64))), images.flip(-2))
    assert make_augment(spec, (), 16) == ()


def drawn_boxes(count: int, scale: tuple[float, float] = SCALE, side: int = 64) -> np.ndarray:
    uniform = np.random.default_rng(0).random((count, BOX_DRAWS))
    return crop_boxes(uniform, side, side, scale, RATIO)


def test_crop_boxes_stay_in_the_image() -> None:
    top, left, height, width = drawn_boxes(5000).T

    assert min(top.min(), left.min()) == 0
    assert (top + height).max() == (left + width).max() == 64
    assert min(height.min(), width.min()) > 0


def test_crop_boxes_have_the_distribution_of_torchvisions() -> None:
    from torchvision.transforms import RandomResizedCrop

    torch.manual_seed(0)
    image = torch.empty(3, 64, 64)
    theirs = np.array([RandomResizedCrop.get_params(image, list(SCALE), list(RATIO)) for _ in range(4000)])
    ours = drawn_boxes(4000)

    for name, reference, column in zip(("top", "left", "height", "width"), theirs.T, ours.T, strict=True):
        assert stats.ks_2samp(reference, column).pvalue > 1e-3, name
    assert stats.ks_2samp(theirs[:, 2] / theirs[:, 3], ours[:, 2] / ours[:, 3]).pvalue > 1e-3


def test_a_crop_that_never_fits_is_the_largest_central_one() -> None:
    uniform = np.random.default_rng(0).random((3, BOX_DRAWS))

    assert crop_boxes(uniform, 64, 64, (1.0, 1.0), (2.0, 3.0)).tolist() == [[16, 0, 32, 64]] * 3
    assert crop_boxes(uniform, 64, 64, (1.0, 1.0), (0.25, 0.5)).tolist() == [[0, 16, 64, 32]] * 3


def test_resized_crop_equals_torchvisions_on_every_image() -> None:
    images = noise(40, side=24)
    boxes = drawn_boxes(40, side=24)

    resized = resized_crop(images, boxes, 24)

    for image, box, result in zip(images, boxes.tolist(), resized, strict=True):
        reference = functional.resized_crop(image.float(), *box, size=[24, 24], antialias=False)
        assert (result.float() - reference).abs().max() <= 0.5 + 1e-2  # half a grey level, by rounding


def test_the_whole_image_as_its_box_is_the_image() -> None:
    images = noise(2)

    assert torch.equal(resized_crop(images, np.array([[0, 0, 16, 16]] * 2), 16), images)


def test_a_box_is_the_same_part_of_a_larger_square_of_the_image() -> None:
    """A ramp shows where it was cut, and not how sharp it is."""
    ramps = [torch.linspace(0.0, 255.0, 2 * side + 1)[1::2].expand(2, 1, side, side) for side in (24, 28)]
    boxes = np.array([[0, 6, 12, 12], [3, 0, 20, 24]])

    plain, detail = (resized_crop(ramp.round().to(torch.uint8), boxes, 24).float() for ramp in ramps)

    assert detail.shape == (2, 1, 24, 24)
    inner = (..., slice(2, -2))
    assert (plain[inner] - detail[inner]).abs().max() <= 2.0


def test_crops_and_flips_of_views_are_those_of_copies() -> None:
    whole = noise(12, side=20)
    view = whole[::2, :, 2:18, 3:19]

    offsets, chosen = np.tile([[3, 1], [0, 4]], (3, 1)), np.arange(6) % 2 == 0
    for layout in (torch.contiguous_format, torch.channels_last):
        copy = view.clone(memory_format=layout)
        assert torch.equal(pad_crop(view, offsets, border=2), pad_crop(copy, offsets, border=2))
        assert torch.equal(flip(view, chosen, axis=-1), flip(copy, chosen, axis=-1))


def test_the_policy_comes_after_the_crop() -> None:
    """Solarising by a threshold of 0 makes black white: the border too, if it was there before."""
    black = torch.zeros(64, 1, 16, 16, dtype=torch.uint8)
    spec = Augmentation(crop=PadCrop(fraction=0.5), flip_probability=0.0, policy=RandAugment(magnitude=30))

    images = augmented(spec, black, np.arange(64))

    assert (images == 255).flatten(1).all(1).sum() >= 3
