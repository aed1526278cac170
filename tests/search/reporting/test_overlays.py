"""Tests the pictures of masks: their sizes, their colours, and that everything wrong is seen."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
from PIL import Image

from search.reporting.mask_answers import (
    BRIGHT,
    COVER,
    DARK,
    OKABE_ITO,
    PALEST,
    PANEL_PIXELS,
    WRONG,
    class_colours,
    in_hexadecimal,
    panels,
    tinted,
    with_errors,
)
from trainable.recipe.tasks import IGNORED

GREY = np.full((6, 8), 100, np.uint8)


def mask(*rows: int) -> np.ndarray:
    return np.repeat(np.array(rows, np.uint8)[:, None], 8, 1)


def test_the_first_colours_are_those_of_okabe_and_ito_and_the_next_are_others() -> None:
    colours = class_colours(24)
    assert [tuple(each) for each in colours[:8].tolist()] == list(OKABE_ITO)
    assert len(np.unique(colours, axis=0)) == 24
    assert class_colours(30)[24].tolist() == colours[0].tolist()
    assert in_hexadecimal(colours[1]) == "#e69f00"


def test_a_class_is_its_colour_over_the_grey_image() -> None:
    colours = class_colours(2)
    got = tinted(GREY, mask(0, 0, 0, 1, 1, 1), colours)
    assert got[0, 0].tolist() == [40, 40, 40]
    assert got[5, 7] == pytest.approx(COVER * colours[1] + (1 - COVER) * 100, abs=1)


def test_ignored_pixels_are_hatched_in_every_picture_of_masks() -> None:
    truth = mask(0, 0, 0, IGNORED, IGNORED, IGNORED)
    for got in (tinted(GREY, truth, class_colours(2)), with_errors(GREY, truth, mask(*[1] * 6))):
        assert {tuple(each) for each in got[3:].reshape(-1, 3).tolist()} == {(DARK,) * 3, (BRIGHT,) * 3}


def test_wrong_pixels_alone_have_the_colour_of_errors() -> None:
    got = with_errors(GREY, mask(0, 0, 0, 1, 1, 1), mask(0, 0, 1, 1, 1, 1))
    wrong = (got == WRONG).all(-1)
    assert wrong[2].all()
    assert not np.delete(wrong, 2, 0).any()
    assert np.delete(got, 2, 0).min() >= PALEST


@pytest.mark.parametrize(
    ("channels", "size", "shown"),
    [(3, (40, 20), (40, 20)), (1, (400, 200), (PANEL_PIXELS, 96)), (3, (2, 4000), (1, PANEL_PIXELS))],
)
def test_pictures_keep_their_shape_and_no_side_is_too_long(
    channels: int, size: tuple[int, int], shown: tuple[int, int]
) -> None:
    truth = np.zeros(size[::-1], np.uint8)
    found = panels(np.full((channels, *size[::-1]), 9, np.uint8), truth, truth, class_colours(2))
    assert list(found) == ["image", "truth", "prediction", "errors"]
    for uri in found.values():
        assert uri.startswith("data:image/jpeg;base64,")
        assert Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))).size == shown
