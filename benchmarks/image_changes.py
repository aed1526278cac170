"""Changes images as another camera, another room or another program does."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

Images = NDArray[np.uint8]
"""Images are [n, C, H, W]."""
Change = Callable[[Image.Image], Image.Image]


def each_of(change: Change) -> Callable[[Images], Images]:
    def changed(images: Images) -> Images:
        found = [
            np.asarray(change(Image.fromarray(each[0] if len(each) == 1 else each.transpose(1, 2, 0))))
            for each in images
        ]
        whole = np.stack(found)
        return whole[:, None] if whole.ndim == 3 else whole.transpose(0, 3, 1, 2)

    return changed


def _saved(quality: int) -> Change:
    def change(image: Image.Image) -> Image.Image:
        file = io.BytesIO()
        image.save(file, "JPEG", quality=quality)
        return Image.open(file)

    return change


def _cropped(image: Image.Image) -> Image.Image:
    margin, side = round(0.05 * image.width), image.width
    return image.crop((margin, margin, side - margin, side - margin)).resize((side, side))


def _levels(change: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> Callable[[Images], Images]:
    return lambda images: np.clip(change(images.astype(np.float64)), 0, 255).astype(np.uint8)


def elsewhere(images: Images) -> Images:
    """Return photographs as of another camera in another room: softer, paler, warmer, saved smaller."""
    soft = each_of(lambda image: image.filter(ImageFilter.GaussianBlur(0.8)))(images)
    tint = np.array([25.0, 0.0, -20.0])[:, None, None]
    pale = _levels(lambda values: 128 + 0.8 * (values - 128) + tint)(soft)
    return each_of(_saved(30))(pale)


CHANGES: Mapping[str, Callable[[Images], Images]] = {
    "a tenth darker": _levels(lambda values: 0.9 * values),
    "a fifth darker": _levels(lambda values: 0.8 * values),
    "a tenth less contrast": _levels(lambda values: 128 + 0.9 * (values - 128)),
    "blurred by 0.5 px": each_of(lambda image: image.filter(ImageFilter.GaussianBlur(0.5))),
    "blurred by 1 px": each_of(lambda image: image.filter(ImageFilter.GaussianBlur(1))),
    "saved as JPEG, quality 50": each_of(_saved(50)),
    "saved as JPEG, quality 20": each_of(_saved(20)),
    "noise of 8 levels": _levels(lambda values: values + np.random.default_rng(0).normal(0, 8, values.shape)),
    "cropped by 5 % a side": each_of(_cropped),
}
