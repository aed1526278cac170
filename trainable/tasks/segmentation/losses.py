"""Computes the losses of a segmentation: each of them is one number an image, [B], on the device.

Logits are [B, K, H, W], in a format in which a loss may be computed, and masks [B, H, W] are int64 labels.
Pixels that are labelled `IGNORED` count nowhere. No loss makes the host wait for the device.

A loss of pixels is divided by all pixels of the image, ignored ones too. So every image counts alike, and a
batch of images of one size has the same loss, and the same gradient, whether it is computed at once, in
parts, or on several ranks. Divided by the counted pixels of a batch, it would depend on how the batch is cut;
divided by those of an image, a few pixels of a mostly ignored image would count as much as a whole image.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from trainable.recipe.tasks import IGNORED, MaskLoss


def mask_loss(
    logits: Tensor,
    masks: Tensor,
    spec: MaskLoss,
    *,
    weights: Tensor | None = None,
    label_smoothing: float = 0.0,
) -> Tensor:
    """Return the mean over images of the weighted sum of losses that a recipe asks for; no dimensions.

    Logits may be smaller than the masks: `spec.resolution` says which of them is resized. `weights` [K] are
    those of the classes in the losses of pixels, cross-entropy and focal; smoothing is of the cross-entropy.
    """
    logits, masks = at_one_size(logits, masks, enlarge=spec.resolution == "labels")
    terms = (
        (spec.cross_entropy, partial(cross_entropy, weights=weights, label_smoothing=label_smoothing)),
        (spec.dice, dice),
        (spec.focal, partial(focal, gamma=spec.focal_gamma, weights=weights)),
        (spec.lovasz, lovasz),
    )
    losses = [weight * term(logits, masks) for weight, term in terms if weight]
    return torch.stack(losses).sum(0).mean()


def at_one_size(logits: Tensor, masks: Tensor, enlarge: bool) -> tuple[Tensor, Tensor]:
    """Return logits, or images, enlarged to the masks, or else with masks of their own size."""
    if logits.shape[-2:] == masks.shape[-2:]:
        return logits, masks
    if enlarge:
        return enlarged(logits, masks), masks
    return logits, shrunk(masks, logits)


def enlarged(logits: Tensor, masks: Tensor) -> Tensor:
    """Return logits at the size of the masks, interpolated bilinearly between the centres of pixels."""
    if logits.shape[-2:] == masks.shape[-2:]:
        return logits
    return functional.interpolate(logits, size=masks.shape[-2:], mode="bilinear", align_corners=False)


def shrunk(masks: Tensor, logits: Tensor) -> Tensor:
    """Return masks at the size of the logits: each label is that of the pixel nearest to its centre.

    torch's mode `nearest` takes the pixel at the upper left corner instead, half an output away from what the
    logits are of.
    """
    # Labels are bytes, and of whole numbers torch resizes nothing larger.
    small = functional.interpolate(masks[:, None].byte(), size=logits.shape[-2:], mode="nearest-exact")
    return small[:, 0].to(masks.dtype)


def cross_entropy(
    logits: Tensor, masks: Tensor, *, weights: Tensor | None = None, label_smoothing: float = 0.0
) -> Tensor:
    """Return the sum of the cross-entropy over counted pixels, divided by the number of all pixels.

    `weights` [K] multiply the loss of each class's pixels; torch's own mean divides by their sum, which
    depends on the images that are in a batch. Smoothing with weights is torch's.
    """
    return _of_pixels(logits, masks, weights, label_smoothing).flatten(1).mean(1)


def focal(logits: Tensor, masks: Tensor, *, gamma: float, weights: Tensor | None = None) -> Tensor:
    """Return the cross-entropy with each pixel's multiplied by (1 - p)^gamma, where p is the probability of
    its class: arXiv 1708.02002, equations 4 and 5. With gamma 0 it is the cross-entropy."""
    losses = _of_pixels(logits, masks)
    # -expm1 is 1 - p with all its digits. A power below 1 has no finite gradient at 0.
    unsure = (-torch.expm1(-losses)).clamp_min(torch.finfo(losses.dtype).tiny)
    losses = unsure**gamma * losses
    if weights is not None:
        losses = losses * weights.to(losses.dtype)[masks.masked_fill(masks == IGNORED, 0)]
    return losses.flatten(1).mean(1)


def dice(logits: Tensor, masks: Tensor) -> Tensor:
    """Return 1 - 2|pt| / (|p| + |t|), the mean over the classes that the mask has.

    Here p are probabilities, t is 1 where a pixel is of the class and 0 elsewhere, and |x| is the sum over
    counted pixels.

    arXiv 1606.04797, section 3, squares p and t in the denominator, which changes nothing where they are 0
    or 1; libraries compute it as it stands here.
    """
    probabilities, truth = _by_class(logits, masks)
    overlaps = (probabilities * truth).sum(2)
    there = truth.sum(2)
    sums = probabilities.sum(2) + there
    # A class that is there has a sum of 1 or more; others are left out.
    return _mean_over_classes(1.0 - 2.0 * overlaps / sums.clamp_min(1.0), there)


def lovasz(logits: Tensor, masks: Tensor) -> Tensor:
    """Return the Lovasz-Softmax loss, the mean over the classes that the mask has (arXiv 1705.08790, section
    3.2 and algorithm 1).

    An ignored pixel has no error: it is sorted behind all that have one, and its product is 0. This loss
    sorts [B, K, H * W] numbers, and is the only one here that costs more than the cross-entropy by much.
    """
    probabilities, truth = _by_class(logits, masks)
    errors, order = (truth - probabilities).abs().sort(2, descending=True)
    with torch.no_grad():
        slopes = _lovasz_slopes(truth.bool().gather(2, order)).to(errors.dtype)
    return _mean_over_classes((errors * slopes).sum(2), truth.sum(2))


def _lovasz_slopes(truth: Tensor) -> Tensor:
    """Return how much each error adds to 1 - IoU of its class, for truth [B, K, N], largest error first."""
    hits = truth.cumsum(2, dtype=torch.int32)  # of floats, torch has no deterministic sum on a GPU
    wanted = hits[..., -1:]
    ranks = torch.arange(1, truth.shape[2] + 1, dtype=torch.int32, device=truth.device)
    losses = 1.0 - (wanted - hits) / (wanted + ranks - hits)
    return losses.diff(dim=2, prepend=torch.zeros_like(losses[..., :1]))


def _of_pixels(
    logits: Tensor, masks: Tensor, weights: Tensor | None = None, label_smoothing: float = 0.0
) -> Tensor:
    """Return the cross-entropy of each pixel, [B, H, W], 0 where it is ignored."""
    return functional.cross_entropy(
        logits,
        masks,
        None if weights is None else weights.to(logits.dtype),
        ignore_index=IGNORED,
        reduction="none",
        label_smoothing=label_smoothing,
    )


def _by_class(logits: Tensor, masks: Tensor) -> tuple[Tensor, Tensor]:
    """Return probabilities and one-hot labels, both [B, K, H * W] and 0 where a pixel is ignored."""
    labels = masks.flatten(1)[:, None]
    classes = torch.arange(logits.shape[1], device=logits.device)[:, None]
    probabilities = logits.flatten(2).softmax(1).masked_fill(labels == IGNORED, 0.0)
    return probabilities, (labels == classes).to(logits.dtype)


def _mean_over_classes(losses: Tensor, pixels: Tensor) -> Tensor:
    """Return the mean [B] of losses [B, K] over the classes that have pixels, 0 where none has."""
    there = (pixels > 0).to(losses.dtype)
    return (losses * there).sum(1) / there.sum(1).clamp_min(1.0)
