"""Says how sure the scores of a part are: 95 % intervals by resampling its images (Efron, 1979).

A resample draws as many images as the part has, with replacement, and not stratified: so a class may have
more or fewer images in it, as in another part of the same size, and one that has none is left out of its
means. All resamples of a metric are computed together, of the count of each image in each resample; the
formulae are those of scikit-learn with these counts as weights.

Where all answers are right, or all wrong, every resample scores the same, and percentiles would claim to know
the score exactly. There the interval of a share is Wilson's (1927), which Brown, Cai and DasGupta (2001,
Statistical Science 16) recommend for few images. A loss, a cost and a function of the caller's are no shares
of images: there they have no interval.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, assert_never

import numpy as np

from trainable.errors import UserError
from trainable.recipe.metrics import (
    AUROC,
    NO_SPREAD,
    AveragePrecision,
    BoundaryF1,
    CalibrationError,
    Cost,
    Kind,
    MacroF1,
    RecallAtPrecision,
)
from trainable.training.answers import Answers
from trainable.training.evaluate import TOP_FROM_CLASSES
from trainable.training.extra_metrics import (
    GUESSING,
    OF_MASKS,
    Array,
    ExtraMetrics,
    bin_of,
    called,
    costs_of,
    sureness,
)
from trainable.training.metrics import CLASSES_ALIKE, SHARES
from trainable.training.resampled_curves import (
    Ranked,
    auroc,
    average_precision,
    counted,
    ranked,
    recall_at,
    sums_by_group,
)

logger = logging.getLogger(__name__)

RESAMPLES = 1_000
PERCENTS = (2.5, 97.5)
# With more images times classes, a curve for each class takes more than about a minute to resample
MOST_PROBABILITIES = 2**24
AT_ONCE = 4_000_000
"""So many counts (images times resamples) are held at once, which take 16 MB."""


@dataclass(frozen=True)
class Intervals:
    """Holds, by the names of `Scores.metrics` without their part, between which values each metric lies."""

    bounds: dict[str, tuple[float, float]]
    resamples: int
    by_class: Mapping[str, tuple[tuple[float, float] | None, ...]] = field(default_factory=dict)
    """Of masks, the scores of each class by name, such as `iou`; None for a class that does not occur."""

    def tree(self, prefix: str, classes: Sequence[str] = ()) -> dict[str, Any]:
        """Return plain data for `metrics.json`; `classes` are the names of those that are scored."""
        named = {f"{prefix}_{name}": list(bounds) for name, bounds in self.bounds.items()}
        of_classes = {
            name: dict(zip(classes, map(_as_list, each), strict=True)) for name, each in self.by_class.items()
        }
        return {
            "level": (PERCENTS[1] - PERCENTS[0]) / 100.0,
            "method": "percentile bootstrap over images, not stratified; where all are equal, Wilson's of a "
            "share, and none of other metrics",
            "resamples": self.resamples,
            "intervals": named,
            **({"by_class": of_classes} if of_classes else {}),
        }


def _as_list(bounds: tuple[float, float] | None) -> list[float] | None:
    return None if bounds is None else list(bounds)


def intervals(answers: Answers, extra: ExtraMetrics, seed: int, resamples: int = RESAMPLES) -> Intervals:
    """Return the interval of each metric that a part is scored by, from percentiles of its resamples.

    Ten thousand images take a few seconds. A function of the caller's is called once for each resample; one
    that fails on a resample, where a class may be missing, has no interval.
    """
    found = resampled_metrics(answers, extra, seed, resamples)
    return intervals_of(found, images_behind(found, len(answers.labels), np.bincount(answers.labels.numpy())))


def resampled_metrics(
    answers: Answers, extra: ExtraMetrics, seed: int, resamples: int = RESAMPLES
) -> dict[str, Array]:
    """Return each metric that a part is scored by, of every resample of its images: [resamples] by name;
    none of those that would take long, as they need the probabilities of many classes."""
    extra = _quick(answers, extra)
    random = np.random.default_rng(seed)
    chunks = counts_of_images(random, len(answers.labels), resamples)
    parts = [_measured(answers, extra, counts) for counts in chunks]
    names = [name for name in parts[0] if all(name in part for part in parts)]
    return {name: np.concatenate([part[name] for part in parts]) for name in names}


def intervals_of(found: Mapping[str, Array], images: Mapping[str, int]) -> Intervals:
    """Return the intervals of what `resampled_metrics` returned; `images_behind` each share."""
    resamples = len(next(iter(found.values())))
    bounds = {name: bounds_of(values, images.get(name)) for name, values in found.items()}
    return Intervals({name: each for name, each in bounds.items() if each is not None}, resamples)


def images_behind(names: Iterable[str], images: int, of_classes: Array) -> dict[str, int]:
    """Compute of how many images each share is, by name, if so many of a part's images have each class.

    A mean over K classes of n images each has the variance of a share of K^2 / sum(1 / n) images, which are
    fewer where some classes are rare. Losses, costs and functions of the caller's are no shares.
    """
    there = of_classes[of_classes > 0]
    alike = min(images, int(len(there) ** 2 / (1.0 / there).sum()))
    return {
        name: alike if f"val_{name}" in CLASSES_ALIKE else images for name in names if f"val_{name}" in SHARES
    }


def bounds_of(
    values: Array, images: int | None = None, percents: tuple[float, float] = PERCENTS
) -> tuple[float, float] | None:
    """Return the interval of a metric from its resamples. Where these have no spread it is Wilson's of a
    share of so many images, and None of what is no share: nothing is known of other images."""
    low, high = map(float, np.percentile(values, percents))
    if high - low > NO_SPREAD:
        return low, high
    if images is None:
        return None
    known = wilson_interval(round(low * images), images, (percents[1] - percents[0]) / 100.0)
    return min(low, known[0]), max(high, known[1])


def wilson_interval(right: int, images: int, level: float = 0.95) -> tuple[float, float]:
    """Return the interval of a share, such as accuracy or a recall, of which so many images were answered
    rightly (Wilson 1927, J. American Statistical Association 22)."""
    from scipy.stats import binomtest  # a second to import, and few runs need it

    found = binomtest(right, images).proportion_ci(level, method="wilson")
    return float(found.low), float(found.high)


def counts_of_images(random: np.random.Generator, images: int, resamples: int) -> Iterator[Array]:
    """Yield how often each image is in each resample, [images, resamples], some resamples at a time.

    The counts are float32, which holds sums of them exactly up to 2^24 images.
    """
    at_once = max(1, AT_ONCE // images)
    for first in range(0, resamples, at_once):
        count = min(at_once, resamples - first)
        drawn = random.integers(0, images, (count, images)) + images * np.arange(count)[:, None]
        flat = np.bincount(drawn.reshape(-1), minlength=count * images)
        yield np.ascontiguousarray(flat.reshape(count, images).T.astype(np.float32))


def _quick(answers: Answers, extra: ExtraMetrics) -> ExtraMetrics:
    """Return the metrics without those that need all probabilities, where these take long; say so then."""
    images, classes = len(answers.labels), answers.classes
    if not extra.needs_probabilities or images * classes <= MOST_PROBABILITIES:
        return extra
    logger.warning(
        "%s: no interval is given: resamples of %s images with the probabilities of %s classes take long",
        *(", ".join(extra.of_probabilities), f"{images:,}", f"{classes:,}"),
    )
    return replace(extra, specs=[each for each in extra.specs if not each.needs_probabilities], own={})


def _measured(answers: Answers, extra: ExtraMetrics, counts: Array) -> dict[str, Array]:
    found = _fixed(answers, counts)
    for spec in extra.specs:
        found[spec.kind] = resampled(spec, answers, extra.classes, counts)
    return found | dict(_of_functions(answers, extra, counts))


def _fixed(answers: Answers, counts: Array) -> dict[str, Array]:
    """Return, for every resample, what every run measures."""
    right = (answers.predicted == answers.labels).numpy()
    found = {
        "loss": _mean(answers.losses.numpy(), counts),
        "accuracy": _mean(right, counts),
        "balanced_accuracy": _recalls(right, answers, counts),
    }
    if answers.classes >= TOP_FROM_CLASSES:
        found["top5_accuracy"] = _mean(answers.in_top.numpy(), counts)
    return found


def resampled(spec: Kind, answers: Answers, classes: Sequence[str], counts: Array) -> Array:
    """Return a metric of every resample, [resamples]: `extra_metrics.measured` with weights."""
    match spec:
        case MacroF1():
            return _macro_f1(answers, counts)
        case AUROC():
            return _mean_of_classes(auroc, answers, counts)
        case AveragePrecision():
            return _mean_of_classes(average_precision, answers, counts)
        case RecallAtPrecision():
            return _mean_of_classes(partial(recall_at, precision=spec.precision), answers, counts)
        case Cost():
            each = costs_of(spec, classes)[answers.labels.numpy(), answers.predicted.numpy()]
            return _mean(each, counts)
        case CalibrationError():
            sure, right = sureness(answers)
            gaps = sums_by_group(bin_of(sure, spec.bins), right - sure, spec.bins, counts)
            distances: Array = np.abs(gaps).sum(0) / len(sure)
            return distances
        case BoundaryF1():
            raise AssertionError(OF_MASKS)
        case _:
            assert_never(spec)


def _mean(values: Array, counts: Array) -> Array:
    return values.astype(float) @ counts / len(values)


def _recalls(right: Array, answers: Answers, counts: Array) -> Array:
    classes, labels = answers.classes, answers.labels.numpy()
    seen = counted(labels, classes, counts)
    return _mean_where(seen > 0, sums_by_group(labels, right, classes, counts), seen)


def _macro_f1(answers: Answers, counts: Array) -> Array:
    classes = answers.classes
    labels, predicted = answers.labels.numpy(), answers.predicted.numpy()
    seen = counted(labels, classes, counts)
    taken = counted(predicted, classes, counts)
    right = sums_by_group(labels, predicted == labels, classes, counts)
    return _mean_where(seen > 0, 2 * right, seen + taken)


def _mean_of_classes(
    curve: Callable[[Ranked], tuple[Array, Array]], answers: Answers, counts: Array
) -> Array:
    """Return the mean over classes of what a curve gives, one against rest.

    It is that of guessing where a resample has one class alone, and the curve needs others.
    """
    labels, probabilities = answers.labels.numpy(), answers.probabilities.numpy()
    values, classes = np.zeros(counts.shape[1]), np.zeros(counts.shape[1])
    for each in np.unique(labels):
        found, there = curve(ranked(probabilities[:, each], labels == each, counts))
        values += np.where(there, found, 0.0)
        classes += there
    return np.divide(values, classes, out=np.full_like(values, GUESSING), where=classes > 0)


def _of_functions(answers: Answers, extra: ExtraMetrics, counts: Array) -> Iterator[tuple[str, Array]]:
    """Yield what each function of the caller's makes of every resample, if it fails on none."""

    def samples() -> Iterator[Answers]:  # one at a time: each has the probabilities of all classes
        for each in counts.T:
            yield answers.of(np.repeat(np.arange(len(each)), each.astype(int)))

    for name, metric in extra.own.items():
        with suppress(UserError):
            yield name, np.array([called(name, metric, sample) for sample in samples()])


def _mean_where(there: Array, above: Array, below: Array) -> Array:
    """Return the mean of quotients [classes, resamples] over the classes that are there."""
    quotients = np.divide(above, below, out=np.zeros_like(above), where=there)
    found: Array = quotients.sum(0) / there.sum(0)
    return found
