"""Answers images of any size with a model that answers windows, in numpy alone.

`predict.py` of a bundle holds what follows the imports. It repeats `answer_in_windows` of
`trainable.tasks.segmentation.task` and the views of `SegmentationTask`, pixel for pixel. `about` says how:
the `side` of windows and their `overlap`, and `views`, each a scale and whether the image is mirrored.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

WINDOWS_AT_ONCE = 8

# Takes windows float32 [N, side, side, C], in [0, 255], and returns logits float32 [N, K, side, side]
WindowModel = Callable[[Any], Any]


def class_logits(model: WindowModel, pixels: Any, about: dict[str, Any]) -> Any:
    """Return logits float32 [K, H, W] of an image uint8 [H, W, C]; of several views, the logarithm of their
    mean probabilities."""
    levels = pixels.astype(np.float32)
    seen = [_seen(model, levels, scale, mirrored, about) for scale, mirrored in about["views"]]
    if len(seen) == 1:
        return seen[0]
    return np.logaddexp.reduce([_log_softmax(each) for each in seen]) - math.log(len(seen))


def _seen(model: WindowModel, levels: Any, scale: float, mirrored: bool, about: dict[str, Any]) -> Any:
    """Return the logits of one view, at the size of the image."""
    size = levels.shape[:2]
    if scale != 1.0:
        levels = _resized(levels, [max(1, round(each * scale)) for each in size], antialias=scale < 1.0)
    logits = _in_windows(model, levels[:, ::-1] if mirrored else levels, about)
    logits = logits[:, :, ::-1] if mirrored else logits
    if logits.shape[1:] == size:
        return logits
    return np.moveaxis(_resized(np.moveaxis(logits, 0, -1), list(size), antialias=False), -1, 0)


def _in_windows(model: WindowModel, levels: Any, about: dict[str, Any]) -> Any:
    """Return the logits of all windows, averaged where they overlap. Beyond the image, windows are black."""
    (height, width), side = levels.shape[:2], about["side"]
    filled = np.zeros((max(height, side), max(width, side), levels.shape[2]), np.float32)
    filled[:height, :width] = levels
    tops, lefts = (_starts(each, side, about["overlap"]) for each in filled.shape[:2])
    corners = [(top, left) for top in tops for left in lefts]
    sums, counts = None, np.zeros(filled.shape[:2], np.float32)
    for first in range(0, len(corners), WINDOWS_AT_ONCE):
        some = corners[first : first + WINDOWS_AT_ONCE]
        windows = np.stack([filled[top : top + side, left : left + side] for top, left in some])
        for (top, left), logits in zip(some, model(windows), strict=True):
            if sums is None:
                sums = np.zeros((len(logits), *counts.shape), np.float32)
            sums[:, top : top + side, left : left + side] += logits
            counts[top : top + side, left : left + side] += 1.0
    return (sums / counts)[:, :height, :width]


def _starts(length: int, side: int, overlap: float) -> list[int]:
    """Return where windows begin on an axis."""
    if length <= side:
        return [0]
    stride = max(1, math.floor(side * (1.0 - overlap)))
    count = math.ceil((length - side) / stride) + 1
    return [round(number * (length - side) / (count - 1)) for number in range(count)]


def _resized(values: Any, size: list[int], antialias: bool) -> Any:
    """Return values [H, W, C] at another height and width, bilinear."""
    rows, columns = (_weights(*each, antialias) for each in zip(values.shape[:2], size, strict=True))
    wide = np.einsum("hwc,vw->hvc", values, columns, optimize=True)
    return np.einsum("hvc,uh->uvc", wide, rows, optimize=True).astype(np.float32)


def _weights(pixels: int, size: int, antialias: bool) -> Any:
    """Return the weights of the pixels of an axis for each pixel of the resized one, [size, pixels]."""
    scale = pixels / size
    centres = (np.arange(size)[:, None] + 0.5) * scale
    distances = np.abs(np.arange(pixels) + 0.5 - centres) / (max(scale, 1.0) if antialias else 1.0)
    weights = np.clip(1.0 - distances, 0.0, None)
    return weights / weights.sum(1, keepdims=True)


def _log_softmax(logits: Any) -> Any:
    shifted = logits - logits.max(0)
    return shifted - np.log(np.exp(shifted).sum(0))
