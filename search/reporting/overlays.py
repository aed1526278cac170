"""Draws masks over images, and where a mask is wrong, as small pictures inside a page."""

from __future__ import annotations

import base64
import io

import numpy as np
from PIL import Image

from trainable.data.source import Pixels
from trainable.recipe.tasks import IGNORED

PANEL_PIXELS = 192  # no side of a picture is longer
# eight colours that readers without red or green tell apart: Okabe and Ito, https://jfly.uni-koeln.de/color
OKABE_ITO = (
    (0, 0, 0),
    (230, 159, 0),
    (86, 180, 233),
    (0, 158, 115),
    (240, 228, 66),
    (0, 114, 178),
    (213, 94, 0),
    (204, 121, 167),
)
# how much of which grey is mixed in: the first eight classes have these colours, the next eight paler ones,
# then darker ones, and so again
TINTS = ((0.0, 0), (0.55, 255), (0.55, 90))
WRONG = (213, 94, 0)
PALEST = 165  # no pixel of an image that is made pale is darker
COVER = 0.6  # so much of a picture is the mask's colour; the rest is the image, in grey
HATCH, STRIPE = 6, 2  # ignored pixels are grey with a brighter stripe, in pixels
DARK, BRIGHT = 110, 200


def class_colours(count: int) -> Pixels:
    """Return the colour of each class, uint8 [count, 3]."""
    colours = np.array(OKABE_ITO, float)
    shades = [(1.0 - part) * colours + part * grey for part, grey in TINTS]
    table = np.concatenate(shades).round().astype(np.uint8)
    found: Pixels = table[np.arange(count) % len(table)]
    return found


def in_hexadecimal(colour: Pixels) -> str:
    return "#" + "".join(f"{each:02x}" for each in colour.tolist())


def panels(image: Pixels, truth: Pixels, predicted: Pixels, colours: Pixels) -> dict[str, str]:
    """Return four pictures as data URIs: the image, its true mask, the predicted one, and its errors.

    The image is uint8 [C, H, W]; masks are classes or IGNORED, uint8 [H, W].
    """
    size = _shown_size(truth.shape[1], truth.shape[0])
    pixels = np.ascontiguousarray(np.moveaxis(image, 0, -1)).squeeze()
    shown = Image.fromarray(pixels).convert("RGB").resize(size, Image.Resampling.LANCZOS)
    masks = [
        np.asarray(Image.fromarray(each).resize(size, Image.Resampling.NEAREST))
        for each in (truth, predicted)
    ]
    return {
        "image": _as_uri(np.asarray(shown)),
        "truth": _as_uri(tinted(np.asarray(shown.convert("L")), masks[0], colours)),
        "prediction": _as_uri(tinted(np.asarray(shown.convert("L")), masks[1], colours)),
        "errors": _as_uri(with_errors(np.asarray(shown.convert("L")), *masks)),
    }


def tinted(grey: Pixels, mask: Pixels, colours: Pixels) -> Pixels:
    """Return a grey image [H, W] under the colours of a mask [H, W], uint8 [H, W, 3]; ignored pixels are
    hatched."""
    table = np.concatenate([colours, np.zeros((IGNORED + 1 - len(colours), 3), np.uint8)])
    mixed = COVER * table[mask] + (1.0 - COVER) * grey[:, :, None]
    return _hatched(mixed.astype(np.uint8), mask)


def with_errors(grey: Pixels, truth: Pixels, predicted: Pixels) -> Pixels:
    """Return a grey image made pale, with its wrong pixels in one colour, uint8 [H, W, 3]."""
    pale = np.repeat((PALEST + (255 - PALEST) * (grey / 255.0)).astype(np.uint8)[:, :, None], 3, axis=2)
    pale[truth != predicted] = WRONG
    return _hatched(pale, truth)


def _hatched(picture: Pixels, mask: Pixels) -> Pixels:
    rows, columns = np.indices(mask.shape)
    stripes = np.where((rows + columns) % HATCH < STRIPE, BRIGHT, DARK).astype(np.uint8)
    found: Pixels = np.where((mask == IGNORED)[:, :, None], stripes[:, :, None], picture)
    return found


def _shown_size(width: int, height: int) -> tuple[int, int]:
    scale = min(1.0, PANEL_PIXELS / max(width, height))
    return max(1, round(scale * width)), max(1, round(scale * height))


def _as_uri(picture: Pixels) -> str:
    out = io.BytesIO()
    Image.fromarray(picture).save(out, "JPEG", quality=85, subsampling=0)  # colours keep their edges
    return f"data:image/jpeg;base64,{base64.b64encode(out.getvalue()).decode()}"
