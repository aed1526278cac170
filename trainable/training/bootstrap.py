"""How sure the scores of a part are: 95 % intervals by resampling its images (Efron, 1979).

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
from scipy.sparse import csc_array

from trainable.errors import UserError
from trainable.recipe.metrics import (
    AUROC,
    NO_SPREAD,
    AveragePrecision,
    CalibrationError,
    Cost,
    MacroF1,
    OfLabels,
    RecallAtPrecision,
)
from trainable.training.answers import Answers
from trainable.training.evaluate import TOP_FROM_CLASSES, Array, ByImage, Scores
from trainable.training.extra_metrics import (
    GUESSING,
    ExtraMetrics,
    bin_of,
    called,
    costs_of,
    sureness,
)
from trainable.training.metrics import CLASSES_ALIKE, SHARES, wilson_interval

logger = logging.getLogger(__name__)


RESAMPLES = 1_000
PERCENTS = (2.5, 97.5)
# With more images times classes, a curve for each class takes more than about a minute to resample
MOST_PROBABILITIES = 2**24
AT_ONCE = 4_000_000  # so many counts (images times resamples) are held at once, which take 16 MB


@dataclass(frozen=True)
class Intervals:
    """Between which values each metric lies, by the names of `Scores.metrics` without their part."""

    bounds: dict[str, tuple[float, float]]
    resamples: int
    # Of masks, the scores of each class by name, such as `iou`; None for a class that does not occur
    by_class: Mapping[str, tuple[tuple[float, float] | None, ...]] = field(default_factory=dict)

    def tree(self, prefix: str, classes: Sequence[str] = ()) -> dict[str, Any]:
        """Return plain data for `metrics.json`; `classes` are the names of those that are scored."""
        named = {f"{prefix}_{name}": list(bounds) for name, bounds in self.bounds.items()}
        of_classes = {
            name: {
                each: None if bounds is None else list(bounds)
                for each, bounds in zip(classes, of_each, strict=True)
            }
            for name, of_each in self.by_class.items()
        }
        return {
            "level": (PERCENTS[1] - PERCENTS[0]) / 100.0,
            "method": "percentile bootstrap over images, not stratified; where all are equal, Wilson's of a "
            "share, and none of other metrics",
            "resamples": self.resamples,
            "intervals": named,
            **({"by_class": of_classes} if of_classes else {}),
        }


def resampled_metrics(answers: Answers, extra: ExtraMetrics, seed: int, resamples: int) -> dict[str, Array]:
    """Return each metric that a part is scored by, of every resample of its images: [resamples] by name;
    none of those that would take long, as they need the probabilities of many classes.

    Ten thousand images take a few seconds. A function of the caller's is called once for each resample; one
    that fails on a resample, where a class may be missing, is left out.
    """
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
    for spec in extra.of_labels:
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


def resampled(spec: OfLabels, answers: Answers, classes: Sequence[str], counts: Array) -> Array:
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


@dataclass(frozen=True)
class Ranked:
    """What the curves of one class need, for each of its images (rows) and each resample (columns)."""

    own: Array  # how often the image is there
    below: Array  # how many images have a lower score
    up_to: Array  # how many images have a lower score or the same
    own_below: Array  # how many images of the class have a lower score
    total: Array  # the number of images, [resamples]

    @property
    def positives(self) -> Array:
        found: Array = self.own.sum(0)
        return found


def ranked(scores: Array, positive: Array, counts: Array) -> Ranked:
    """Return the images of a class in order, by scores [images]; `positive` [images] says which they are."""
    levels, level = np.unique(scores[positive], return_inverse=True)
    steps = np.searchsorted(levels, scores, "left") + np.searchsorted(levels, scores, "right")
    own = counts[positive].astype(float)
    running = np.cumsum(
        sums_by_group(steps, np.ones(len(scores), dtype=bool), 2 * len(levels) + 1, counts), axis=0
    )
    own_running = np.cumsum(
        sums_by_group(level + 1, np.ones(len(own), dtype=bool), len(levels) + 1, own), axis=0
    )
    return Ranked(own, running[2 * level], running[2 * level + 1], own_running[level], running[-1])


def counted(group: Array, groups: int, counts: Array) -> Array:
    """Return the number of images of each group, [groups, resamples]."""
    return sums_by_group(group, np.ones(len(group), dtype=bool), groups, counts)


def sums_by_group(group: Array, values: Array, groups: int, counts: Array) -> Array:
    """Return the sums of values [images] over the images of each group, [groups, resamples]."""
    exact = values if values.dtype.kind == "f" else values.astype(counts.dtype)
    cells = exact, (group, np.arange(len(group)))
    found: Array = csc_array(cells, shape=(groups, len(group))) @ counts
    return found.astype(float)


def auroc(images: Ranked) -> tuple[Array, Array]:
    """Return the area under the ROC curve by resample, and where there is one.

    It is the Mann-Whitney U of images of the class against others. Pairs within the class count half of the
    square of their number, ties included.
    """
    positives = images.positives
    pairs = positives * (images.total - positives)
    wins = (images.own * (images.below + images.up_to)).sum(0) / 2 - positives**2 / 2
    return _quotient(wins, pairs), pairs > 0


def average_precision(images: Ranked) -> tuple[Array, Array]:
    """Return the average precision by resample, and where the class has an image."""
    recalled = images.positives - images.own_below
    precision = _quotient(recalled, images.total - images.below)
    return _quotient((images.own * precision).sum(0), images.positives), images.positives > 0


def recall_at(images: Ranked, precision: float) -> tuple[Array, Array]:
    """Return the highest recall at a precision by resample, and where the class has an image.

    Only thresholds at scores of the class can be the best: between them precision falls and recall stays.
    """
    recalled = images.positives - images.own_below
    precise = _quotient(recalled, images.total - images.below) >= precision
    best = np.where(precise, recalled, 0.0).max(0)
    return _quotient(best, images.positives), images.positives > 0


def _quotient(above: Array, below: Array) -> Array:
    """Return above / below, and 0 where below is 0."""
    return np.divide(above, below, out=np.zeros_like(above), where=below > 0)


@dataclass(frozen=True)
class Resampled:
    """The scores of resamples, [resamples] by name; of masks also those of all classes, [K, resamples]
    by name, which are nan where a resample has no such class."""

    metrics: Mapping[str, Array]
    count: int  # of the part's images
    of_classes: Array  # how many of them have each class, [K]
    by_class: Mapping[str, Array] = field(default_factory=dict)

    @property
    def images(self) -> dict[str, int]:
        """Of how many images each score is that is a share."""
        return images_behind(self.metrics, self.count, self.of_classes)

    def intervals(self) -> Intervals:
        """Return between which values each score lies."""
        found = intervals_of(self.metrics, self.images)
        by_class = {
            name: tuple(map(_bounds_where_known, each, self.of_classes.tolist()))
            for name, each in self.by_class.items()
        }
        return Intervals(found.bounds, found.resamples, by_class)


def resampled_scores(
    scores: Scores, extra: ExtraMetrics, seed: int, resamples: int = RESAMPLES
) -> Resampled | None:
    """Return the scores of a part on resamples of its images; None where the answers are not known, as those
    of a model that is lost."""
    if scores.by_image is not None:
        return _of_sums(scores.by_image, seed, resamples)
    if scores.answers is not None:
        of_classes = np.bincount(scores.answers.labels.numpy(), minlength=scores.answers.classes)
        return Resampled(resampled_metrics(scores.answers, extra, seed, resamples), scores.images, of_classes)
    return None


def _of_sums(images: ByImage, seed: int, resamples: int) -> Resampled:
    chunks = counts_of_images(np.random.default_rng(seed), len(images), resamples)
    parts = [images.resampled(counts) for counts in chunks]
    return Resampled(
        {name: np.concatenate([part.metrics[name] for part in parts]) for name in parts[0].metrics},
        len(images),
        images.of_classes,
        {name: np.concatenate([part.by_class[name] for part in parts], 1) for name in parts[0].by_class},
    )


def _bounds_where_known(values: Array, images: int) -> tuple[float, float] | None:
    known = values[~np.isnan(values)]
    return bounds_of(known, images) if len(known) else None
