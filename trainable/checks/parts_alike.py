"""Checks that the images of validation and test are of the training images' kind.

A test part from elsewhere (another hospital, other varieties of a fruit) is not known by its classes, nor
always by its brightness. A classifier that tells its images from the others finds it before a search.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, interpolate

from trainable.array_types import Floats, Integers
from trainable.checks.finding import Advice, Finding
from trainable.checks.sampling import pixels
from trainable.checks.subject import Subject
from trainable.checks.two_samples import (
    PartAdvice,
    PartDifference,
    PartWords,
    Sample,
    class_weights,
    compare_parts,
    tell_apart,
)
from trainable.data import DataSet, Split
from trainable.data.measure import some
from trainable.data.source import Pixels
from trainable.training.part_features import PartFeatures, part_features

MOST = 1_000  # at most so many images of a part are looked at
# A network's features are not computed if there is no time for FEWEST images of each part, by the time that
# TIMED of each take
FEWEST, TIMED = 200, 16

# Parts differ if the interval of the AUC is above this: if one number told them apart, its means would be
# half a standard deviation apart, which Cohen (1988, section 2.2) calls a medium effect. docs/decisions/0028
# has how often parts of one kind are above it, and which differences are found
MEDIUM = 0.64

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
# Quantiles are of about so many pixels of an image: sorting all takes longer than everything else
PIXELS = 600
SCALES = 3  # sharpness is measured at full size, at half and at a quarter of it
THUMBNAIL = 8
BLOCK = 512

# The positions of each part's images to compare, and features of them [n, F], if there are any
KnownImages = tuple[dict[Split, Integers], dict[Split, Floats] | None]

PREPARED_ALIKE = Advice("prepare all parts alike (colours, crop, size, saving)")
WORDS = PartWords(
    test=PartAdvice(
        "test images are of another kind than those that recipes are chosen by: validation scores may say "
        "little about theirs",
        (
            Advice("take validation images from the test's kind"),
            PREPARED_ALIKE,
            Advice("keep what was taken together in one part (data.group)"),
        ),
    ),
    validation=PartAdvice(
        "validation images are of another kind than training images: scores are of what no network has seen",
        (
            Advice("split anew (data.split_seed) or by group (data.group)", "split here"),
            PREPARED_ALIKE,
            Advice("add such images to training, if the model is for their kind"),
        ),
    ),
    both=PartAdvice(
        "validation images are of the test's kind, so recipes are chosen for it, but trained on another",
        (Advice("add images of that kind to training, if there are any"),),
    ),
)


def check_parts_alike(
    data: DataSet, chosen: Mapping[Split, Integers], known: Mapping[Split, Floats] | None = None
) -> Iterator[Finding]:
    """Yield a finding for validation against training, and for the test part against both.

    Images at the `chosen` positions of each part are compared, by simple statistics and by what is `known` of
    them besides, features [n, F]. Of the test part, labels say only which images are of one class. Raises
    DataError naming images that cannot be decoded.
    """
    simple = {part: statistics_of(pixels(data, data.parts[part], at)) for part, at in chosen.items()}
    samples = {
        part: Sample(
            each.values if known is None else np.concatenate([each.values, known[part]], axis=1),
            data.parts[part].labels[chosen[part]],
            None if data.groups is None else data.groups[part][chosen[part]],
        )
        for part, each in simple.items()
    }
    compare = partial(_difference, names=simple["train"].names)
    yield from compare_parts("parts alike", samples, Sample.joined, compare, WORDS)


def some_of_each(data: DataSet, most: int = MOST) -> dict[Split, Integers]:
    """Return the positions of a sample of each part's images."""
    return {name: some(len(part), most) for name, part in data.parts.items()}


def known_images(subject: Subject, seconds: float) -> KnownImages:
    """Return the positions of a sample of each part's images, and what the body of the recipe's pretrained
    network makes of them: features [n, F], or None if it has no such network, or not in so many seconds."""
    data = subject.data
    if subject.is_own or subject.recipe.model.weights is None:
        return some_of_each(data), None
    network, recipe = subject.network(), subject.recipe.with_values({"loop.workers": 0})

    def look(chosen: Mapping[Split, Integers]) -> dict[Split, PartFeatures] | None:
        return part_features(network, subject.loader(), recipe, data.info, chosen)

    few = some_of_each(data, TIMED)
    afforded = int(TIMED * seconds / min(_seconds(look, few) for _ in range(2)))
    chosen = some_of_each(data, min(MOST, afforded))
    found = look(chosen) if afforded >= FEWEST else None
    if found is None:
        return some_of_each(data), None
    return chosen, {part: features.astype(np.float64) for part, (features, _) in found.items()}


def _seconds(look: Callable[[Mapping[Split, Integers]], object], chosen: Mapping[Split, Integers]) -> float:
    began = time.perf_counter()
    look(chosen)
    return time.perf_counter() - began


def _difference(first: Sample, second: Sample, names: Sequence[str]) -> PartDifference | None:
    found = tell_apart(first, second)
    if found is None:
        return None
    what = f"images are told apart with {found}; chance is 0.50"
    if found.low <= MEDIUM:
        return PartDifference(False, what)
    return PartDifference(
        True, f"{what}; the figure that differs most is {_most_different(first, second, names)}"
    )


def _most_different(first: Sample, second: Sample, names: Sequence[str]) -> str:
    """Return the name and the means of the figure that lies furthest apart, in standard deviations, among
    images of the same classes."""
    held = class_weights(
        np.concatenate([first.labels, second.labels]),
        np.repeat([False, True], [len(first.labels), len(second.labels)]),
    )
    means, variances = [], []
    for sample, weights in zip((first, second), np.split(held, [len(first.labels)]), strict=True):
        figures = sample.features[:, : len(names)]
        means.append(np.average(figures, axis=0, weights=weights))
        variances.append(np.average((figures - means[-1]) ** 2, axis=0, weights=weights))
    apart = np.abs(means[1] - means[0])
    deviations = np.sqrt((variances[0] + variances[1]) / 2)
    effects = np.divide(apart, deviations, out=np.where(apart > 0.0, np.inf, 0.0), where=deviations > 0.0)
    most = int(effects.argmax())
    return (
        f"{names[most]}, {means[1][most]:.0f} against {means[0][most]:.0f} of 255 "
        f"({effects[most]:.1f} standard deviations)"
    )


# --- what differs first between cameras, rooms and programs ------------------------------------------


@dataclass(frozen=True)
class ImageStatistics:
    """Statistics of images [n, F]; the first columns have names for people, and all are in grey levels from 0
    to 255."""

    values: Floats
    names: tuple[str, ...]


def statistics_of(images: Pixels) -> ImageStatistics:
    """Return statistics of images, uint8 [n, C, H, W]: mean, deviation and quantiles of each channel,
    sharpness at three scales, and a grey thumbnail."""
    blocks = [
        _block(torch.from_numpy(np.array(images[at : at + BLOCK]))) for at in range(0, len(images), BLOCK)
    ]
    colours = ("brightness",) if images.shape[1] == 1 else ("red", "green", "blue")
    return ImageStatistics(np.concatenate(blocks), (*colours, "contrast", "sharpness"))


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
