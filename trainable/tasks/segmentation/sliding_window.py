"""Computes the answers to images of any size in square windows of one size, which may overlap."""

from __future__ import annotations

import math
from functools import partial
from itertools import product

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainable.training.evaluate import Room, full_precision, in_parts


def answer_in_windows(
    model: nn.Module,
    images: Tensor,
    autocast: torch.autocast,
    side: int,
    overlap: float,
    *,
    black: Tensor | None = None,
    at_once: int = 1,
    room: Room | None = None,
) -> Tensor:
    """Return logits [B, K, H, W] of images [B, C, H, W], computed in windows of `side` pixels, `at_once` of
    them together, or fewer if memory runs out.

    Where windows overlap, by `overlap` of their side or more, logits are averaged (arXiv 1612.01105, section
    5.1). An image that is smaller than a window is filled up with `black` [C] (zeros if None), as in
    training. So an image's answers do not depend on the images that are scored with it.
    """
    height, width = images.shape[-2:]
    filled = _filled(images, max(side, height), max(side, width), black)
    rows, columns = (window_starts(each, side, overlap) for each in filled.shape[-2:])
    places = [(..., slice(top, top + side), slice(left, left + side)) for top, left in product(rows, columns)]
    answer, room = partial(_answer, model, autocast=autocast, side=side), room or Room()
    if len(places) == 1:
        return in_parts(answer, filled, room)[..., :height, :width]
    sums, counts = None, torch.zeros(filled.shape[-2:], device=images.device)
    step = max(1, at_once // len(images))
    for some in (places[start : start + step] for start in range(0, len(places), step)):
        found = in_parts(answer, torch.cat([filled[place] for place in some]), room)
        for place, logits in zip(some, found.split(len(images)), strict=True):
            if sums is None:
                sums = logits.new_zeros(*logits.shape[:2], *filled.shape[-2:])
            sums[place] += logits
            counts[place[1:]] += 1.0
    assert sums is not None
    answered: Tensor = (sums / counts)[..., :height, :width]
    return answered


def _filled(images: Tensor, height: int, width: int, black: Tensor | None) -> Tensor:
    """Return images [B, C, height, width], with black below and beside what was there."""
    if images.shape[-2:] == (height, width):
        return images
    levels = 0.0 if black is None else black.to(images.dtype)[:, None, None]
    filled = images.new_zeros(*images.shape[:2], height, width) + levels
    filled[..., : images.shape[-2], : images.shape[-1]] = images
    return filled


def window_starts(length: int, side: int, overlap: float) -> list[int]:
    """Return where windows begin on an axis: evenly from one end to the other, as few as overlap enough."""
    if length <= side:
        return [0]
    stride = max(1, math.floor(side * (1.0 - overlap)))
    count = math.ceil((length - side) / stride) + 1
    return [round(number * (length - side) / (count - 1)) for number in range(count)]


def _answer(model: nn.Module, images: Tensor, *, autocast: torch.autocast, side: int) -> Tensor:
    with autocast:
        outputs: Tensor = model(images)
    logits = full_precision(outputs)
    if logits.shape[-2:] == (side, side):
        return logits
    return functional.interpolate(logits, size=(side, side), mode="bilinear")
