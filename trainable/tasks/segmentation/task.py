"""The task of segmentation: a label for each pixel, learnt in windows and answered by a sliding window."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainable.augmentation.sizes import of_size, resized
from trainable.recipe import augmentations as specs
from trainable.recipe.metrics import BoundaryF1
from trainable.recipe.tasks import IGNORED, Segmentation
from trainable.tasks.segmentation.data.loading import PIXELS_AT_ONCE
from trainable.tasks.segmentation.losses import at_one_size, mask_loss
from trainable.tasks.segmentation.mixing import make_mask_mixing
from trainable.tasks.segmentation.scores import MaskTally, worst_mask_scores
from trainable.training.answers import RankRows
from trainable.training.evaluate import BatchLimit, Outputs, Scores, View, full_precision, in_parts, joined
from trainable.training.extra_metrics import ExtraMetrics
from trainable.training.imbalance import ALIKE, ClassTerms
from trainable.training.task import BatchMixing, Compared, Comparison, Task


@dataclass(frozen=True, eq=False)
class SlidingWindow:
    """A square window of `side` pixels that moves over an image, so that neighbours overlap by `overlap` of
    its side or more."""

    side: int
    overlap: float
    black: Tensor | None = None  # [C], a black pixel as the network sees it; None is zeros


@final
class SegmentationTask(Task):
    """Masks int64 [B, H, W], learnt from logits [B, classes, h, w], which may be smaller.

    Images are trained on in windows of the side of `window`, and scored by sliding it. The weights of
    `terms` multiply the losses of pixels; `extra` are the metrics that are measured beside the usual ones.
    """

    measures_itself = True
    compared = ("mean_iou",)

    def __init__(
        self,
        spec: Segmentation,
        classes: int,
        window: SlidingWindow,
        *,
        label_smoothing: float = 0.0,
        terms: ClassTerms = ALIKE,
        extra: ExtraMetrics | None = None,
    ) -> None:
        self.classes, self._spec, self._window = classes, spec, window
        self.most_at_once, self._limit = max(1, PIXELS_AT_ONCE // window.side**2), BatchLimit()
        self._smoothing, self._weights = label_smoothing, terms.weights
        self._adjustments = None if terms.adjustments is None else terms.adjustments[:, None, None]
        metrics, self._own = (extra.specs, extra.own) if extra is not None else ((), {})
        self._tolerance = next((each.tolerance for each in metrics if isinstance(each, BoundaryF1)), None)

    @property
    def guessing(self) -> float:
        """The loss of equal probabilities for every class, without that of a second head."""
        spec, of_pixels = self._spec.loss, math.log(max(self.classes, 2))
        return (spec.cross_entropy + spec.focal) * of_pixels + spec.dice + spec.lovasz

    def loss(self, outputs: Outputs, targets: Tensor) -> Tensor:
        """Return the loss of the main head, and `loss.auxiliary` times that of each other one."""
        main, *others = outputs if isinstance(outputs, tuple) else (outputs,)
        total = self._of_head(main, targets)
        for each in others if self._spec.loss.auxiliary else ():
            total = total + self._spec.loss.auxiliary * self._of_head(each, targets)
        return total

    def _of_head(self, logits: Tensor, masks: Tensor) -> Tensor:
        if self._adjustments is not None:
            logits = logits + self._adjustments.to(logits.dtype)
        return mask_loss(
            logits, masks, self._spec.loss, weights=self._weights, label_smoothing=self._smoothing
        )

    def comparison(self) -> Comparison:
        return compared_masks

    def right(self, output: Tensor, targets: Tensor) -> Tensor:
        """Return the share of the counted pixels of each image that are right, at the size of the output."""
        _, masks = at_one_size(output, targets, enlarge=False)
        counted = (masks != IGNORED).flatten(1).sum(1)
        hits = (output.argmax(1) == masks).flatten(1).sum(1)
        return hits / counted.clamp_min(1)

    def mixing(self, spec: specs.Mixing) -> BatchMixing | None:
        assert isinstance(spec, specs.MixingOfMasks)  # the recipe has refused others
        return make_mask_mixing(spec)

    def resized(self, images: Tensor, targets: Tensor, size: int) -> tuple[Tensor, Tensor]:
        """Return images of `size` pixels, and masks of that size by the nearest pixels."""
        return at_one_size(resized(images, size), targets, enlarge=False)

    def answer(
        self, model: nn.Module, images: Tensor, autocast: torch.autocast, views: Sequence[View]
    ) -> Tensor:
        """Return logits [B, classes, H, W] of images [B, C, H, W]; for several views, the logarithm of the
        mean of their probabilities. A view's size is that of a window: an image is scaled by its share of
        one."""
        return joined([self._seen(model, images, autocast, view) for view in views])

    def _seen(self, model: nn.Module, images: Tensor, autocast: torch.autocast, view: View) -> Tensor:
        size = images.shape[-2:]
        scale = 1.0 if view.size is None else view.size / self._window.side
        shown = images
        if scale != 1.0:
            scaled = [max(1, round(each * scale)) for each in size]
            shown = functional.interpolate(images, size=scaled, mode="bilinear", antialias=scale < 1.0)
        if view.mirrored:
            shown = shown.flip(-1)
        logits = answer_in_windows(
            model, shown, autocast, self._window, at_once=self.most_at_once, limit=self._limit
        )
        if view.mirrored:
            logits = logits.flip(-1)
        if logits.shape[-2:] == size:
            return logits
        return functional.interpolate(logits, size=size, mode="bilinear")

    def tally(self, device: torch.device, confusion: bool = False, rows: RankRows | None = None) -> MaskTally:
        return MaskTally(self.classes, device, confusion, tolerance=self._tolerance, own=self._own, rows=rows)

    def worst(self, images: int = 0) -> Scores:
        return worst_mask_scores(self.classes, images)


def compared_masks(output: Tensor, targets: Tensor, answers: Tensor) -> Compared:
    """Return the logits of both networks at the size of the student's, to which the mask shrinks."""
    _, truth = at_one_size(output, targets, enlarge=False)
    return Compared(output, of_size(answers, output.shape[-2:]).to(output.dtype), truth, truth != IGNORED)


def answer_in_windows(
    model: nn.Module,
    images: Tensor,
    autocast: torch.autocast,
    window: SlidingWindow,
    *,
    at_once: int = 1,
    limit: BatchLimit | None = None,
) -> Tensor:
    """Return logits [B, K, H, W] of images [B, C, H, W], computed in windows, `at_once` of them
    together, or fewer if memory runs out.

    Where windows overlap, logits are averaged (arXiv 1612.01105, section 5.1). An image that is smaller
    than a window is filled up with black, as in training. So an image's answers do not depend on the
    images that are scored with it.
    """
    side, (height, width) = window.side, images.shape[-2:]
    filled = _filled(images, max(side, height), max(side, width), window.black)
    rows, columns = (window_starts(each, side, window.overlap) for each in filled.shape[-2:])
    places = [(..., slice(top, top + side), slice(left, left + side)) for top, left in product(rows, columns)]
    answer, limit = partial(_answer, model, autocast=autocast, side=side), limit or BatchLimit()
    if len(places) == 1:
        return in_parts(answer, filled, limit)[..., :height, :width]
    sums, counts = None, torch.zeros(filled.shape[-2:], device=images.device)
    step = max(1, at_once // len(images))
    for some in (places[start : start + step] for start in range(0, len(places), step)):
        found = in_parts(answer, torch.cat([filled[place] for place in some]), limit)
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
