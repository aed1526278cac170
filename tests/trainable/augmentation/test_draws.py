"""Tests the numbers that belong to an image."""

import numpy as np
import pytest
from scipy import stats

from trainable.augmentation.draws import Draws, Stream, _splitmix, integers

EVERYONE = np.arange(20_000)


def test_splitmix_gives_the_published_numbers_for_seed_1234567() -> None:
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]

    assert _splitmix(1234567, np.arange(4, dtype=np.uint64)).tolist() == published


def test_numbers_are_uniform_in_each_column() -> None:
    uniform = Draws(0, 1, EVERYONE).uniform(Stream.CROP, 3)

    assert uniform.shape == (20_000, 3)
    assert uniform.min() >= 0.0
    assert uniform.max() < 1.0
    for column in uniform.T:
        assert stats.kstest(column, "uniform").pvalue > 1e-3


@pytest.mark.parametrize(
    "other",
    [
        Draws(0, 2, EVERYONE).uniform(Stream.CROP, 2),
        Draws(1, 1, EVERYONE).uniform(Stream.CROP, 2),
        Draws(0, 1, EVERYONE).uniform(Stream.POLICY, 2),
        Draws(0, 1, EVERYONE + 1).uniform(Stream.CROP, 2),
    ],
    ids=["epoch", "seed", "stream", "index"],
)
def test_numbers_of_another_epoch_seed_stream_or_image_are_independent(other: np.ndarray) -> None:
    uniform = Draws(0, 1, EVERYONE).uniform(Stream.CROP, 2)

    correlation = np.corrcoef(uniform[:, 0], other[:, 0])[0, 1]
    assert abs(correlation) < 4 / np.sqrt(len(EVERYONE))


def test_an_image_has_the_same_numbers_in_any_batch() -> None:
    alone = Draws(7, 3, np.array([42])).uniform(Stream.ERASING, 5)
    among = Draws(7, 3, np.array([3, 42, 9])).uniform(Stream.ERASING, 5)

    np.testing.assert_array_equal(alone[0], among[1])


def test_integers_cover_their_range_evenly() -> None:
    drawn = integers(Draws(0, 0, EVERYONE).uniform(Stream.CROP, 1)[:, 0], 9)

    counts = np.bincount(drawn, minlength=9)
    assert len(counts) == 9
    assert stats.chisquare(counts).pvalue > 1e-3


def test_every_use_of_random_numbers_has_a_stream_of_its_own_for_good() -> None:
    """Saved runs depend on these values: new ones are added, none is changed; 6 was once in use."""
    assert [(stream.name, stream.value) for stream in Stream] == [
        ("CROP", 1),
        ("HORIZONTAL_FLIP", 2),
        ("VERTICAL_FLIP", 3),
        ("POLICY", 4),
        ("ERASING", 5),
        ("CUTOUT", 7),
        ("GRID_MASK", 8),
        ("HIDE_AND_SEEK_GRID", 9),
        ("HIDE_AND_SEEK_CELLS", 10),
        ("SIZE", 11),
    ]
