"""Describes images by simple statistics: what differs first between cameras, rooms and programs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import avg_pool2d, interpolate

from trainable.data.source import Pixels

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
PIXELS = 600
"""Quantiles are of about so many pixels of an image: sorting all takes longer than everything else."""
SCALES = 3
"""Sharpness is measured at full size, at half and at a quarter of it."""
THUMBNAIL = 8
BLOCK = 512

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Statistics:
    """Holds statistics of images [n, F]; the first columns have names for people, and all are in grey levels
    from 0 to 255."""

    values: Floats
    names: tuple[str, ...]


def statistics_of(images: Pixels) -> Statistics:
    """Return statistics of images, uint8 [n, C, H, W]: mean, deviation and quantiles of each channel,
    sharpness at three scales, and a grey thumbnail."""
    blocks = [
        _block(torch.from_numpy(np.array(images[at : at + BLOCK]))) for at in range(0, len(images), BLOCK)
    ]
    colours = ("brightness",) if images.shape[1] == 1 else ("red", "green", "blue")
    return Statistics(np.concatenate(blocks), (*colours, "contrast", "sharpness"))


def _block(pixels: Tensor) -> Floats:
    images = pixels.float()
    grey = images.mean(1, keepdim=True)
    deviations = images.std((2, 3), correction=0)
    columns = [
        images.mean((2, 3)),
        grey.std((2, 3), correction=0),
        _sharpness(grey),
        deviations,
        _quantiles(pixels),
        interpolate(grey, (THUMBNAIL, THUMBNAIL), mode="area").flatten(1),
    ]
    found: Floats = torch.cat(columns, 1).double().numpy()
    return found


def _sharpness(grey: Tensor) -> Tensor:
    """Return the root mean square of the differences of neighbours, at each scale [n, SCALES]."""
    found = []
    for _ in range(SCALES):
        down, across = grey[:, :, 1:] - grey[:, :, :-1], grey[:, :, :, 1:] - grey[:, :, :, :-1]
        found.append((down.square().mean((1, 2, 3)) + across.square().mean((1, 2, 3))).sqrt())
        grey = avg_pool2d(grey, 2) if min(grey.shape[2:]) >= 4 else grey
    return torch.stack(found, 1)


def _quantiles(pixels: Tensor) -> Tensor:
    """Return the quantiles of each channel, [n, C * quantiles]."""
    flat = pixels.flatten(2).numpy()
    step = max(1, flat.shape[2] // PIXELS) | 1  # odd: an even one takes the same columns of each row
    ordered = np.sort(flat[:, :, ::step], axis=2)
    chosen = [round(each * (ordered.shape[2] - 1)) for each in QUANTILES]
    return torch.from_numpy(ordered[:, :, chosen]).float().flatten(1)
