"""Joins a trained network with all that happens to an image before and after it, as one module.

Images are made square inside the network's graph, of any height and width, pixel for pixel as they are
decoded. torch's own resizing of uint8 images cannot be exported with its rounding, and runtimes of ONNX
disagree on antialiasing. Here it is two matrix products, which all of them have.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, assert_never, final

import torch
from torch import Tensor, nn

from trainable.data.decode import Form, Resize
from trainable.recipe.data import Interpolation
from trainable.recipe.training import CenterCrop, Stretch
from trainable.training.evaluate import View

# torch and Pillow hold the weights of uint8 pixels as int16: multiples of 2^-p, with the largest p up to 22
# at which the largest weight stays below this number (torch, UpSampleKernelAVXAntialias.h)
LARGEST_WEIGHT, FINEST_UNIT = 2**15 - 0.5, 22


@final
class Classifier(nn.Module):
    """Images as they are stored -> probabilities: uint8 [N, H, W, C] -> float32 [N, classes].

    H and W are of any size, C is 1 (grey) or 3 (RGB). Images are made square, normalised and shown to the
    network in every view of `evaluation.flip` and `evaluation.scales`; probabilities are the mean over views.
    """

    def __init__(
        self,
        network: nn.Module,
        form: Form,
        *,
        mean: Sequence[float],
        std: Sequence[float],
        views: Sequence[View],
    ) -> None:
        super().__init__()
        self.network, self.form, self.views = network, form, tuple(views)
        self.mean: Tensor
        self.std: Tensor
        for name, values in (("mean", mean), ("std", std)):
            self.register_buffer(name, torch.tensor(values).mul(255.0).view(1, -1, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        stored = images.permute(0, 3, 1, 2).to(torch.float32)
        pixels = squared(stored, self.form.side, self.form.resize, self.form.interpolation)
        shown = (pixels - self.mean) / self.std
        sizes = dict.fromkeys(view.size for view in self.views)
        seen = torch.cat([self._seen_at(size, shown) for size in sizes])
        return seen.view(len(self.views), images.shape[0], -1).mean(0)  # len() would fix it

    def _seen_at(self, size: int | None, shown: Tensor) -> Tensor:
        """Return the probabilities of all views of one size, one view after the other: an exported graph has
        the network once for each size."""
        alike = [view.of(shown) for view in self.views if view.size == size]
        logits: Tensor = self.network(torch.cat(alike))
        return torch.softmax(logits, 1)


class Span(NamedTuple):
    """The part of a row or a column that is used: where it begins and its length, in pixels.

    Both are whole numbers, float64 without dimensions: an exported graph computes them from the image.
    """

    start: Tensor
    length: Tensor


def squared(images: Tensor, side: int, resize: Resize, interpolation: Interpolation) -> Tensor:
    """Return images float [N, C, side, side] with whole levels in [0, 255], of images [N, C, H, W].

    Rows are resized first, and levels are rounded after rows and after columns, as torch does with uint8.
    """
    height, width = images.shape[2:]
    rows, columns = _used(_as_tensor(height), _as_tensor(width), resize)
    wide = _levels(images @ filter_matrix(width, columns, side, interpolation))
    return _levels(wide.mT @ filter_matrix(height, rows, side, interpolation)).mT


def filter_matrix(pixels: int, used: Span, side: int, interpolation: Interpolation) -> Tensor:
    """Return the weights, float32 [pixels, side], of the pixels of a row for each pixel of the resized row.

    Where images shrink, the filter is as much wider, so that nothing aliases; weights add up to 1 within the
    part that is used (torch.nn.functional.interpolate with antialias=True).
    """
    scale = used.length / side
    centres = used.start + (torch.arange(side, dtype=torch.float64) + 0.5) * scale
    at = torch.arange(pixels, dtype=torch.float64)[:, None]
    weights = _filtered((at + 0.5 - centres) / scale.clamp(min=1.0), interpolation)
    inside = (at >= used.start) & (at < used.start + used.length)
    weights = torch.where(inside, weights, 0.0)
    return _whole_units(weights / weights.sum(0)).float()


def _filtered(distances: Tensor, interpolation: Interpolation) -> Tensor:
    """Return the filter's value at distances in pixels: the triangle, or Keys' cubic with a = -1/2
    (Keys, 1981, equation 15)."""
    away = distances.abs()
    match interpolation:
        case "bilinear":
            return (1.0 - away).clamp(min=0.0)
        case "bicubic":
            near = (1.5 * away - 2.5) * away * away + 1.0
            far = ((-0.5 * away + 2.5) * away - 4.0) * away + 2.0
            return torch.where(away < 1.0, near, torch.where(away < 2.0, far, 0.0))
        case _:
            assert_never(interpolation)


def _whole_units(weights: Tensor) -> Tensor:
    """Return weights rounded to the multiples that int16 holds, halves away from zero."""
    finest = (LARGEST_WEIGHT / weights.max()).log2().floor().clamp(max=FINEST_UNIT).exp2()
    return weights.sign() * (weights.abs() * finest + 0.5).floor() / finest


def _levels(pixels: Tensor) -> Tensor:
    return (pixels + 0.5).floor().clamp(0.0, 255.0)


def _used(height: Tensor, width: Tensor, resize: Resize) -> tuple[Span, Span]:
    """Return which part of the columns, and which part of the rows, becomes the square."""
    match resize:
        case Stretch():
            zero = torch.zeros((), dtype=torch.float64)
            return Span(zero, height), Span(zero, width)
        case CenterCrop(ratio=ratio):
            # a tensor: an exported graph would hold a Python number in float32
            exact = torch.tensor(ratio, dtype=torch.float64)
            side = (torch.minimum(height, width) * exact).round().clamp(min=1.0)
            top, left = ((each - side).div(2.0).floor() for each in (height, width))
            return Span(top, side), Span(left, side)
        case _:
            assert_never(resize)


def _as_tensor(pixels: int) -> Tensor:
    """Return a number of pixels, which depends on the image in an exported graph, as a tensor."""
    return torch.ones(pixels, dtype=torch.float64).sum()
