"""Tests the sizes of a run's images: what is allowed, when it changes, and that everyone agrees."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats
from torchvision.transforms.v2 import functional

from trainable.augmentation.sizes import extreme_sizes, on_grid, resized, size_at
from trainable.recipe.augmentations import FixedSize, MultiScale, Progressive, SizeSchedule


def curve(spec: SizeSchedule, side: int, epochs: int = 8, steps: int = 50, seed: int = 0) -> list[int]:
    """Return the size of every step of a run."""
    return [
        size_at(spec, side, seed=seed, done=epoch * steps + step, steps=epochs * steps)
        for epoch in range(epochs)
        for step in range(steps)
    ]


def test_a_fixed_size_is_the_datas() -> None:
    assert set(curve(FixedSize(), 29)) == {29}
    assert extreme_sizes(FixedSize(), 29) == (29, 29)


@pytest.mark.parametrize(
    ("side", "smallest", "largest", "allowed"),
    [
        (224, 0.75, 1.25, {192, 224, 256}),  # 168 to 280
        (224, 0.5, 1.0, {128, 160, 192, 224}),
        (64, 0.5, 1.5, {32, 64, 96}),
        (60, 0.75, 1.25, {48, 52, 56, 60, 64, 68, 72}),
        (28, 0.75, 1.25, {24, 28, 32}),  # 21 to 35
        (8, 0.5, 2.0, {4, 8, 12, 16}),
        (100, 1.0, 1.0, {100}),  # no multiple: its own
        (65, 0.6, 1.2, {64}),
    ],
)
def test_multi_scale_sizes_are_the_multiples_within_its_bounds(
    side: int, smallest: float, largest: float, allowed: set[int]
) -> None:
    spec = MultiScale(smallest=smallest, largest=largest, every=1)

    assert set(curve(spec, side)) == allowed
    assert extreme_sizes(spec, side) == (min(allowed), max(allowed))


def test_multi_scale_sizes_are_drawn_evenly_and_anew() -> None:
    sizes = curve(MultiScale(every=1), 224, epochs=30, steps=100)

    counts = [sizes.count(size) for size in (192, 224, 256)]
    assert stats.chisquare(counts).pvalue > 1e-3
    pairs = np.unique(np.stack([sizes[::2], sizes[1::2]]), axis=1, return_counts=True)[1]
    assert stats.chisquare(pairs).pvalue > 1e-3
    assert len(pairs) == 9


def test_a_size_holds_for_so_many_steps_across_the_ends_of_epochs() -> None:
    sizes = curve(MultiScale(every=7), 224, steps=10)

    changes = [step for step in range(1, len(sizes)) if sizes[step] != sizes[step - 1]]
    assert all(step % 7 == 0 for step in changes)
    assert any(step % 10 for step in changes)


def test_sizes_depend_on_the_seed_and_not_on_how_long_the_run_is() -> None:
    spec = MultiScale(every=3)

    assert curve(spec, 224) == curve(spec, 224)
    assert curve(spec, 224) != curve(spec, 224, seed=1)
    assert curve(spec, 224, epochs=9)[:400] == curve(spec, 224, epochs=8)


@pytest.mark.parametrize(
    ("side", "start", "allowed"),
    [
        (224, 0.5, [128, 160, 192, 224]),
        (28, 0.5, [16, 20, 24, 28]),
        (30, 0.5, [16, 20, 24, 28, 30]),  # the last is the data's own
        (32, 0.25, [8, 12, 16, 20, 24, 28, 32]),
        (100, 0.99, [100]),
        (4, 0.9, [4]),
    ],
)
def test_progressive_sizes_rise_through_the_multiples_to_the_datas_own(
    side: int, start: float, allowed: list[int]
) -> None:
    spec = Progressive(start=start)
    sizes = curve(spec, side)

    assert list(dict.fromkeys(sizes)) == allowed
    assert sizes == sorted(sizes)
    assert extreme_sizes(spec, side) == (allowed[0], side)


@pytest.mark.parametrize("until", [0.3, 0.75, 1.0])
def test_progressive_steps_are_equally_long_and_end_at_its_share_of_the_run(until: float) -> None:
    sizes = curve(Progressive(until=until), 224, epochs=10, steps=90)

    assert sizes.count(224) == round(900 * (1 - until))
    assert {sizes.count(size) for size in (128, 160, 192)} == {round(900 * until / 3)}


@pytest.mark.parametrize(
    ("pixels", "side", "size"), [(246.4, 224, 256), (10, 224, 32), (35, 28, 36), (1, 28, 4), (32, 64, 32)]
)
def test_the_grid_is_of_32_pixels_and_of_4_for_small_images(pixels: float, side: int, size: int) -> None:
    assert on_grid(pixels, side) == size


@pytest.mark.parametrize("size", [12, 20, 32])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_resizing_equals_torchvisions_and_keeps_the_memory_format(
    size: int, memory_format: torch.memory_format
) -> None:
    images = torch.randn(4, 3, 20, 20).contiguous(memory_format=memory_format)

    made = resized(images, size)

    torch.testing.assert_close(made, functional.resize(images, [size, size], antialias=True))
    assert made.is_contiguous(memory_format=memory_format)
    assert made.dtype == images.dtype


def test_images_of_the_size_asked_for_are_not_touched() -> None:
    images = torch.randn(2, 1, 20, 20)

    assert resized(images, 20) is images


def test_shrinking_does_not_alias() -> None:
    """A checkerboard is grey from afar; sampled without smoothing it would be black or white."""
    board = (torch.arange(32)[:, None] + torch.arange(32)).remainder(2).float().view(1, 1, 32, 32)

    assert (resized(board, 8) - 0.5).abs().max() < 0.15
