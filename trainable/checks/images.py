"""Checks the pixels: are they decodable, in one range, and normalised?"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from trainable.checks.finding import Finding, Level, passed
from trainable.checks.sampling import pixels
from trainable.checks.subject import Subject
from trainable.data import DataInfo, DataSet
from trainable.data.decode import REPAIR, Broken, Form, decode
from trainable.data.info import FEW_LEVELS, LOST_DETAIL, MARKS_ASIDE, SCALE_ALL
from trainable.data.loading import statistics_of
from trainable.data.measure import count_values, some, span
from trainable.data.source import Pixels, Selection
from trainable.errors import listed
from trainable.models.pretrained_input import PretrainedInput

SAMPLE = 500  # at most so many training images are looked at

# From this share on, images of a single colour are a fault of the set rather than an oddity
MANY_BLANK = 0.01

# A set's darkest and brightest pixel are at least so many grey levels apart. Fewer levels are what remains of
# images in [0, 1] (or of a mask) after a cast to whole numbers.
LEAST_SPAN = 8

# Normalised training images may lie this far from mean 0 and deviation 1: the mean in addition to its
# standard error (of a sample), the deviation as a factor
OFF_CENTRE, OFF_SCALE = 0.1, 1.25
# Beyond these limits, initialisations (made for inputs of mean 0 and variance 1) and rates no longer fit
FAR_OFF_CENTRE, FAR_OFF_SCALE = 1.0, 2.0

MOST_PIXELS = 2**17  # of larger images, a mean and a deviation need no more pixels

BLOCK = 512  # so many images are decoded at once


def check_decoding(data: DataSet) -> Iterator[Finding]:
    """Yield a finding on decoding every image, for a set that is not in memory (others were decoded when
    loaded)."""
    broken: list[Broken] = []
    looked_at = 0
    for part in data.parts.values():
        if part.selection is not None:
            broken += _broken(part.selection, data.form)
        looked_at += len(part)
    if not broken:
        yield passed("decoding", f"all {looked_at:,} images can be decoded")
        return
    named = [f"{each.name} ({each.reason})" for each in broken]
    yield Finding(
        "decoding",
        "error",
        f"{len(broken):,} of {looked_at:,} images cannot be decoded: {listed(named, 10)}",
        "training stops at the first of them",
        REPAIR,
    )


def training_sample(data: DataSet) -> Pixels:
    """Return the training images that are looked at, uint8 [n, C, side, side]. Raises BrokenImages."""
    return pixels(data, data.train, some(len(data.train), SAMPLE))


def show_nothing(images: Pixels) -> NDArray[np.bool_]:
    """Return which images [n, C, H, W] are of one colour throughout, [n]."""
    shown: NDArray[np.bool_] = (images.max((2, 3)) > images.min((2, 3))).any(1)
    return ~shown


def check_pixels(data: DataSet, sample: Pixels | None = None) -> Generator[Finding, None, bool]:
    """Yield findings about the pixels of a sample of training images, `training_sample` by default; return
    whether these show anything, so that there is something to look for in them."""
    shows = True
    for finding in _values(training_sample(data) if sample is None else sample, data.info):
        shows = shows and finding.level != "error"
        yield finding
    return shows


def check_normalisation(subject: Subject, known: PretrainedInput | None = None) -> Iterator[Finding]:
    """Yield whether training images have mean 0 and deviation 1 in each channel after the loader has
    normalised them as the recipe says; or, where a network has weights that are `known` to see images
    normalised in some way, whether that is the recipe's."""
    data, loader = subject.data, subject.loader()
    positions = some(len(data.train), SAMPLE)
    batches = [_thinned(batch) for batch, _ in loader.evaluate("train", positions, subject.checks.at_once)]
    loader.close()
    by_channel = torch.cat([each.transpose(0, 1).flatten(1) for each in batches], 1).double()
    means, deviations = by_channel.mean(1).tolist(), by_channel.std(1, correction=0).tolist()
    what = "normalised training images: mean " + ", ".join(f"{mean:.2f}" for mean in means)
    what += "; deviation " + ", ".join(f"{each:.2f}" for each in deviations)
    if known is not None:
        used, weights = statistics_of(subject.recipe.data, data.info), known.statistics(data.info.channels)
        yield _as_weights_know(used, (weights.mean, weights.std), what)
        return
    spread = torch.cat([each.double().mean(2) for each in batches]).std(0, correction=0).tolist()
    noise = [4.0 * each / math.sqrt(len(positions)) for each in spread]
    yield _centred(list(zip(means, deviations, noise, strict=True)), data.info, what)


def _thinned(images: torch.Tensor) -> torch.Tensor:
    """Return pixels [B, C, P] of images, at most about MOST_PIXELS of each."""
    flat = images.cpu().flatten(2)
    return flat[:, :, :: max(1, flat.shape[2] // MOST_PIXELS) | 1]  # odd: not the same columns of each row


MeanAndStd = tuple[tuple[float, ...], tuple[float, ...]]


def _as_weights_know(used: MeanAndStd, known: MeanAndStd, what: str) -> Finding:
    """Return whether pixels are normalised for the first layer as in the weights' pretraining."""
    moved = max(abs(mean - own) / std for mean, own, std in zip(used[0], known[0], known[1], strict=True))
    scaled = max(max(std / own, own / std) for std, own in zip(used[1], known[1], strict=True))
    if moved <= OFF_CENTRE and scaled <= OFF_SCALE:
        return passed("normalisation", f"{what}; as the pretrained weights know images")
    return Finding(
        "normalisation",
        "warning",
        f"images are normalised by mean {_per_channel(used[0])} and std {_per_channel(used[1])}, in "
        f"pretraining they were by mean {_per_channel(known[0])} and std {_per_channel(known[1])}",
        "colours and contrast arrive at the first layer otherwise than in pretraining: features fit less, "
        "most of all with frozen BatchNorm",
        "data.normalisation: pretrained (the default where weights are loaded)",
    )


def _centred(channels: Sequence[tuple[float, float, float]], info: DataInfo, what: str) -> Finding:
    """Return whether channels have mean 0 and deviation 1; each has its mean, deviation and noise."""
    faults = [
        (abs(mean), deviation)
        for mean, deviation, noise in channels
        if deviation > 0.0 and _is_off(mean, deviation, noise)
    ]
    if not faults:
        return passed("normalisation", what)
    far = any(
        mean > FAR_OFF_CENTRE or not 1 / FAR_OFF_SCALE <= deviation <= FAR_OFF_SCALE
        for mean, deviation in faults
    )
    return Finding(
        "normalisation",
        "error" if far else "warning",
        what,
        "initialisations and learning rates are made for mean 0 and deviation 1: slow or unstable training",
        "data.normalisation: data, or measure mean and std on these training images (loading the data with "
        f"trainable.data does): now mean {_per_channel(info.mean)}, std {_per_channel(info.std)}",
    )


def _broken(images: Selection, form: Form) -> Iterator[Broken]:
    source, indices = images
    for start in range(0, len(indices), BLOCK):
        yield from decode(Selection(source, indices[start : start + BLOCK]), form)[1]


def _values(images: Pixels, info: DataInfo) -> Iterator[Finding]:
    channels = info.channels
    low, high = images.min((0, 2, 3)).astype(int), images.max((0, 2, 3)).astype(int)
    constant = [str(channel) for channel in range(channels) if low[channel] == high[channel]]
    blank = float(show_nothing(images).mean())
    what = f"{len(images):,} training images, values from {low.min()} to {high.max()} where 255 is white"
    faults: list[Finding] = []
    if constant:
        found = f"{what}; channel {', '.join(constant)} has one value throughout"
        means = "it tells the model nothing: the channel was lost when the images were prepared"
        level: Level = "error" if len(constant) == channels else "warning"
        faults.append(
            Finding("pixel values", level, found, means, "look at the files, or set data.channels: 1")
        )
    elif high.max() - low.min() < LEAST_SPAN:
        means = (
            "images in [0, 1] were cast to whole numbers, masks are taken for images, or images of 16 bits "
            "use 11 of them or fewer, of which the upper 8 are read: detail is lost"
        )
        faults.append(Finding("pixel values", "error", what, means, "store images as 0 to 255"))
    elif info.deep_span is not None and info.deep_span < FEW_LEVELS:
        found = f"{what}: {info.deep_span + 1} levels are in use by images of 16 bits, {MARKS_ASIDE}"
        faults.append(Finding("pixel values", "warning", found, LOST_DETAIL, SCALE_ALL))
    elif (levels := span(count_values(images)) + 1) <= FEW_LEVELS:
        found = f"{what}: {levels} levels are in use"
        faults.append(Finding("pixel values", "warning", found, LOST_DETAIL, SCALE_ALL))
    if len(constant) < channels and len(images) > 1 and bool((images == images[:1]).all()):
        found = f"all of {len(images):,} training images are the same image"
        means = "nothing tells one class from another"
        do = "look at the files: they were written or copied from one image, under many names"
        faults.append(Finding("pixel values", "error", found, means, do))
    if blank > 0.0 and len(constant) < channels:
        found = f"{blank:.1%} of {len(images):,} training images are of one colour"
        means = "their labels can only be learnt by heart"
        level = "warning" if blank >= MANY_BLANK else "note"
        faults.append(
            Finding("pixel values", level, found, means, "look at them, and remove the broken ones")
        )
    yield from faults
    if not faults:
        yield passed("pixel values", what)
    if channels == 3 and bool((images == images[:, :1]).all()):
        found = f"{what}; the three channels are equal in every image"
        means = "the images are grey: two thirds of the memory, and part of the first layer, are wasted"
        yield Finding("pixel values", "note", found, means, "data.channels: 1")


def _is_off(mean: float, deviation: float, noise: float) -> bool:
    return abs(mean) > OFF_CENTRE + noise or not 1 / OFF_SCALE <= deviation <= OFF_SCALE


def _per_channel(values: tuple[float, ...]) -> str:
    return "(" + ", ".join(f"{value:.3g}" for value in values) + ")"
