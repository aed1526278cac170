"""Tests what hides pixels: how many, where, how often, and that nothing else changes."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torchvision.transforms.v2 import functional

from trainable.augmentation.draws import Draws
from trainable.augmentation.geometry import (
    BOX_DRAWS,
    GRID_DRAWS,
    Stripes,
    between_stripes,
    between_turned_stripes,
    cell_sides,
    drawn_stripes,
    erasing_boxes,
)
from trainable.augmentation.masking import cutout_boxes, erase, make_masking, ramped
from trainable.recipe.augmentations import Cutout, GridMask, HideAndSeek, Masking, NoMasking, RandomErasing

CPU = torch.device("cpu")
EPOCHS = 10
EACH: dict[str, Masking] = {
    "erasing": RandomErasing(probability=1.0),
    "cutout": Cutout(),
    "gridmask": GridMask(probability=1.0),
    "turned": GridMask(probability=1.0, rotation=360.0),
    "hide and seek": HideAndSeek(),
}


def masked(
    spec: Masking, images: torch.Tensor, epoch: int = EPOCHS - 1, seed: int = 0, start: int = 0
) -> torch.Tensor:
    (change,) = make_masking(spec, EPOCHS)
    return change(images, Draws(seed, epoch, np.arange(start, start + len(images))))


def hidden(spec: Masking, count: int, side: int, epoch: int = EPOCHS - 1) -> np.ndarray:
    """Return which pixels of images of ones are hidden, bool [count, side, side]."""
    return (masked(spec, torch.ones(count, 1, side, side), epoch)[:, 0] == 0.0).numpy()


# --- every masking ------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", [RandomErasing, Cutout, GridMask, HideAndSeek])
def test_what_never_happens_is_no_change(spec: type[RandomErasing]) -> None:
    assert make_masking(NoMasking(), EPOCHS) == ()
    assert make_masking(spec(probability=0.0), EPOCHS) == ()


@pytest.mark.parametrize("side", [8, 28, 64])
@pytest.mark.parametrize("name", EACH)
def test_nothing_but_hidden_pixels_changes_and_those_are_the_mean_in_all_channels(
    name: str, side: int
) -> None:
    signs = torch.tensor([1.0, -1.0, 1.0]).view(3, 1, 1)
    images = signs * (0.5 + torch.rand(200, 3, side, side, generator=torch.Generator().manual_seed(0)))
    before = images.clone()

    result = masked(EACH[name], images)

    zeros = result == 0.0
    assert torch.equal(zeros.all(1), zeros.any(1))
    assert torch.equal(result[~zeros], images[~zeros])
    assert 0.0 < zeros.float().mean() < 0.9
    assert torch.equal(images, before)
    assert result.dtype == images.dtype


@pytest.mark.parametrize("name", EACH)
def test_an_image_is_masked_alike_in_any_batch_and_otherwise_by_epoch_and_seed(name: str) -> None:
    images, spec = torch.ones(50, 1, 28, 28), EACH[name]

    together = masked(spec, images)

    apart = [masked(spec, images[:20]), masked(spec, images[20:], start=20)]
    assert torch.equal(together, torch.cat(apart))
    assert len({image.numpy().tobytes() for image in together}) > 20
    assert not torch.equal(together, masked(spec, images, epoch=EPOCHS - 2))
    assert not torch.equal(together, masked(spec, images, seed=1))


@pytest.mark.parametrize(
    "spec", [RandomErasing(probability=0.25), Cutout(probability=0.25), GridMask(probability=0.25)]
)
def test_the_share_of_masked_images_is_the_probability(spec: Masking) -> None:
    hit = int(hidden(spec, 4000, 16).any((1, 2)).sum())

    assert stats.binomtest(hit, 4000, 0.25).pvalue > 1e-3


# --- random erasing -----------------------------------------------------------------------------------


def test_erase_equals_torchvisions_on_every_image() -> None:
    images = torch.rand(6, 3, 16, 16) + 1.0
    boxes = np.array([[0, 0, 4, 4], [3, 5, 7, 2], [15, 15, 1, 1], [0, 0, 0, 0], [8, 0, 8, 16], [2, 2, 5, 5]])

    erased = erase(images, boxes)

    for image, (top, left, height, width), result in zip(images, boxes.tolist(), erased, strict=True):
        reference = functional.erase(image, top, left, height, width, torch.zeros(3, 1, 1))
        assert torch.equal(result, reference)


@pytest.mark.parametrize(
    ("area", "ratio"), [((0.02, 0.33), (0.3, 3.3)), ((0.1, 0.2), (1.0, 2.0)), ((0.3, 0.9), (0.3, 3.3))]
)
def test_erasing_boxes_have_the_distribution_of_torchvisions(
    area: tuple[float, float], ratio: tuple[float, float]
) -> None:
    from torchvision.transforms import RandomErasing as Torchvisions

    torch.manual_seed(0)
    image = torch.empty(3, 32, 32)
    theirs = np.array([Torchvisions.get_params(image, area, ratio, [0.0])[:4] for _ in range(3000)])
    ours = erasing_boxes(np.random.default_rng(0).random((3000, BOX_DRAWS)), 32, 32, area, ratio)
    theirs[(theirs[:, 2:] == 32).all(1)] = 0  # none fitted: torchvision then erases nothing

    for name, reference, column in zip(("top", "left", "height", "width"), theirs.T, ours.T, strict=True):
        assert stats.ks_2samp(reference, column).pvalue > 1e-3, name


def test_the_share_that_erasing_hides_is_uniform_between_its_bounds() -> None:
    spec = RandomErasing(probability=1.0, area_min=0.1, area_max=0.3, ratio_min=0.8, ratio_max=1.25)

    shares = hidden(spec, 3000, 64).mean((1, 2))

    assert shares.min() == pytest.approx(0.1, abs=0.01)
    assert shares.max() == pytest.approx(0.3, abs=0.01)
    assert shares.mean() == pytest.approx(0.2, abs=0.005)
    assert shares.std() == pytest.approx(0.2 / math.sqrt(12), rel=0.05)


# --- cutout -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("side", "size"), [(16, 32), (112, 224), (7, 28), (1, 8), (60, 32)])
def test_a_cutout_is_a_square_of_its_side_around_its_centre_cut_off_at_the_border(
    side: int, size: int
) -> None:
    random = np.random.default_rng(0).random((500, 2))

    boxes = cutout_boxes(random, size, size, side)

    for (top, left, height, width), centre in zip(boxes.tolist(), random, strict=True):
        for start, length, middle in ((top, height, centre[0]), (left, width, centre[1])):
            first = int(middle * size) - side // 2
            covered = [pixel for pixel in range(first, first + side) if 0 <= pixel < size]
            assert (start, length) == (covered[0], len(covered))


@pytest.mark.parametrize(("share", "side"), [(0.5, 32), (0.5, 28), (0.25, 32), (0.3, 30), (1.0, 8)])
def test_cutout_hides_its_side_squared_inside_and_the_expected_share_in_all(share: float, side: int) -> None:
    square = round(share * side)

    hit = hidden(Cutout(side=share), 4000, side)

    tall, wide = hit.any(2).sum(1), hit.any(1).sum(1)
    assert np.array_equal(hit.sum((1, 2)), tall * wide)  # a rectangle
    assert tall.max() == wide.max() == square
    starts = np.arange(side) - square // 2
    covered = np.minimum(starts + square, side) - np.maximum(starts, 0)
    assert tall.mean() == pytest.approx(covered.mean(), rel=0.02)
    assert hit.mean() == pytest.approx((covered.mean() / side) ** 2, rel=0.03)
    whole = (covered == square).mean()  # centres from which nothing is cut off
    assert stats.binomtest(int((tall == square).sum()), 4000, whole).pvalue > 1e-3


def test_every_pixel_is_as_often_the_centre_of_a_cutout() -> None:
    boxes = cutout_boxes(np.random.default_rng(0).random((6400, 2)), 8, 8, 1)

    assert stats.chisquare(np.bincount(boxes[:, 0] * 8 + boxes[:, 1], minlength=64)).pvalue > 1e-3


# --- gridmask -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("rotation", [0.0, 360.0])
@pytest.mark.parametrize("kept", [0.4, 0.5, 0.6, 0.7])
@pytest.mark.parametrize("side", [28, 48])
def test_gridmask_keeps_the_share_that_its_stripes_say(side: int, kept: float, rotation: float) -> None:
    spec = GridMask(probability=1.0, kept=kept, rotation=rotation)
    periods = np.arange(round(side * 96 / 224), side + 1)
    stripes = np.floor(periods * kept + 0.5)
    expected = 1 - np.mean((1 - stripes / periods) ** 2)

    share = 1 - hidden(spec, 4000, side).mean()

    assert share == pytest.approx(expected, abs=0.01)
    assert share == pytest.approx(1 - (1 - kept) ** 2, abs=0.01 + 0.5 / periods[0])


def test_gridmask_hides_what_is_in_neither_a_kept_row_nor_a_kept_column() -> None:
    uniform = np.random.default_rng(0).random((40, GRID_DRAWS))
    stripes = drawn_stripes(uniform, 28, (0.2, 0.6), 0.6, rotation=0.0)

    down, across = between_stripes(stripes, 28, 24)

    for each in range(40):
        period, kept, top, left = (int(field[each]) for field in stripes[:4])
        for row in range(28):
            for column in range(24):
                shown = (row - top) % period < kept or (column - left) % period < kept
                assert (down[each, row] and across[each, column]) != shown


def test_periods_and_offsets_of_grids_are_uniform_and_stripes_leave_something_of_both() -> None:
    uniform = np.random.default_rng(0).random((20_000, GRID_DRAWS))

    stripes = drawn_stripes(uniform, 28, (96 / 224, 1.0), 0.6, rotation=90.0)

    assert (stripes.period.min(), stripes.period.max()) == (12, 28)
    assert stats.chisquare(np.bincount(stripes.period - 12)).pvalue > 1e-3
    assert np.array_equal(stripes.kept, np.floor(stripes.period * 0.6 + 0.5))
    for offset in (stripes.top, stripes.left):
        assert stats.chisquare(np.bincount(offset[stripes.period == 20], minlength=20)).pvalue > 1e-3
    assert stats.kstest(stripes.angle / 90.0, "uniform").pvalue > 1e-3
    tiny = drawn_stripes(uniform, 4, (0.01, 1.0), 0.999, rotation=0.0)
    assert tiny.period.min() == 2
    assert ((tiny.kept >= 1) & (tiny.kept < tiny.period)).all()


@pytest.mark.parametrize(("angle", "turns"), [(0.0, 0), (90.0, 1), (180.0, 2), (270.0, 3)])
def test_a_grid_turned_by_right_angles_is_the_grid_turned(angle: float, turns: int) -> None:
    period, kept, top, left = (np.array([value]) for value in (9, 5, 2, 4))
    grid = Stripes(period, kept, top, left, angle=np.array([0.0]))
    down, across = between_stripes(grid, 20, 20)
    plain = torch.from_numpy(down[:, :, None] & across[:, None, :])

    turned = between_turned_stripes(grid._replace(angle=np.array([angle])), 20, 20, CPU)

    assert torch.equal(turned, plain.rot90(turns, dims=(1, 2))) or torch.equal(
        turned, plain.rot90(-turns, dims=(1, 2))
    )


def test_a_turned_grid_covers_the_corners_too() -> None:
    share = hidden(EACH["turned"], 4000, 32).mean(0)

    for corner in (share[:6, :6], share[:6, -6:], share[-6:, :6], share[-6:, -6:]):
        assert corner.mean() == pytest.approx(share.mean(), abs=0.02)


def test_gridmask_comes_in_over_the_ramp_and_never_in_the_first_epoch() -> None:
    spec = GridMask(probability=0.8, ramp=0.8)

    shares = [hidden(spec, 2000, 16, epoch).any((1, 2)).mean() for epoch in range(EPOCHS)]

    assert shares[0] == 0.0
    for epoch, share in enumerate(shares):
        expected = 0.8 * min(1.0, epoch / 8)
        assert ramped(0.8, 0.8, epoch, EPOCHS) == pytest.approx(expected)
        assert share == pytest.approx(expected, abs=0.04)


def test_gridmask_without_a_ramp_is_there_from_the_start() -> None:
    assert hidden(GridMask(probability=1.0, ramp=0.0), 50, 28, epoch=0).any((1, 2)).all()


# --- hide and seek ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("side", "cells"),
    [
        (224, [0, 16, 32, 44, 56]),
        (28, [0, 2, 4, 6, 7]),
        (32, [0, 2, 5, 6, 8]),
        (64, [0, 5, 9, 13, 16]),
        (8, [0, 1, 1, 2, 2]),
        (4, [0, 1, 1, 1, 1]),
    ],
)
def test_cells_scale_with_the_image_and_have_one_pixel_at_least(side: int, cells: list[int]) -> None:
    assert cell_sides(side).tolist() == cells


@pytest.mark.parametrize("probability", [0.2, 0.5])
@pytest.mark.parametrize("side", [8, 28, 64])
def test_hide_and_seek_hides_its_share_in_four_images_of_five(side: int, probability: float) -> None:
    hit = hidden(HideAndSeek(probability=probability), 6000, side)

    assert hit.mean() == pytest.approx(0.8 * probability, abs=0.01)
    assert hit.mean(0) == pytest.approx(0.8 * probability, abs=0.04)  # everywhere alike


@pytest.mark.slow("draws many grids")
def test_hide_and_seek_hides_whole_cells_of_grids_drawn_evenly() -> None:
    hit = hidden(HideAndSeek(), 2000, 28)

    fitting = {0: 0, 2: 0, 4: 0, 6: 0, 7: 0}
    for image in hit:
        sizes = [size for size in (7, 6, 4, 2) if whole_cells(image, size)] if image.any() else [0]
        assert sizes, "no grid has these cells"
        fitting[sizes[0]] += 1
    assert stats.chisquare(list(fitting.values())).pvalue > 1e-3


def whole_cells(image: np.ndarray, size: int) -> bool:
    starts = range(0, len(image), size)
    cells = [image[row : row + size, column : column + size] for row in starts for column in starts]
    return all(cell.all() or not cell.any() for cell in cells)


def test_cells_are_hidden_independently() -> None:
    corners = hidden(HideAndSeek(), 6000, 28)[:, [0, 0, 27, 27], [0, 27, 0, 27]]
    some = hidden(HideAndSeek(), 6000, 28).any((1, 2))

    correlations = np.corrcoef(corners[some].T)[np.triu_indices(4, 1)]
    assert np.abs(correlations).max() < 4 / math.sqrt(some.sum())


def test_never_hidden_and_always_hidden_cells() -> None:
    hit = hidden(HideAndSeek(probability=1.0), 500, 28)

    assert set(hit.mean((1, 2))) == {0.0, 1.0}
