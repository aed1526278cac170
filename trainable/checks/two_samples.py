"""Measures how well a classifier tells two samples of images apart (Lopez-Paz and Oquab, arXiv 1610.06545).

If the samples are of one kind, no classifier does better than chance on images that it has not seen. Images
are compared with those of their own class alone, so that other shares of the classes are no difference.

Which parts of a data set are compared with each other, and what it means if they differ, is here too.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from trainable.array_types import Floats, Integers
from trainable.checks.finding import Advice, CheckName, Finding, passed, unchecked
from trainable.data import Split
from trainable.recipe.metrics import NO_SPREAD
from trainable.training.bootstrap import auroc, ranked
from trainable.training.metrics import wilson_interval

FOLDS = 5
# scikit-learn's C, the inverse of the decay, is this by the number of standardised features, so that the
# prior of the logits is equally wide however many there are (docs/decisions/0028)
STRENGTH = 50.0
STEPS = 100
RESAMPLES = 200
PERCENTS = (2.5, 97.5)
# The interval is so much wider than that of the resamples, which know nothing of the chance in what the
# classifiers were fitted to, and any two of them share most of it (Nadeau and Bengio 2003, Machine Learning
# 52:239, section 3)
WIDER = math.sqrt(1.0 + FOLDS / (FOLDS - 1))

# Each sample needs so many images, and so many groups if images have groups, for an interval
FEW, FEW_GROUPS = 20, 8

Booleans = NDArray[np.bool_]

T = TypeVar("T")
SURE = 0.001  # classes differ in their shares if a test has a smaller p than this, and by MOVED
# At least so large a share of one part would have to be of other classes to have the shares of the other (the
# total variation distance). It bounds what shares alone do to accuracy: they change it by no more than this,
# times the difference between the best and the worst recall of a class.
MOVED = 0.1
NAMED = 3  # of the classes that differ most


@dataclass(frozen=True)
class Sample:
    """Images as a classifier sees them."""

    features: Floats  # [n, F]
    labels: Integers  # [n]
    groups: Integers | None = None  # [n]

    def joined(self, other: Sample) -> Sample:
        """Return both samples as one."""
        grouped = self.groups is not None and other.groups is not None
        return Sample(
            np.concatenate([self.features, other.features]),
            np.concatenate([self.labels, other.labels]),
            np.concatenate([self.groups, other.groups]) if grouped else None,
        )

    def of(self, chosen: Booleans) -> Sample:
        """Return the images at which `chosen` [n] is true."""
        groups = None if self.groups is None else self.groups[chosen]
        return Sample(self.features[chosen], self.labels[chosen], groups)


@dataclass(frozen=True)
class ToldApart:
    """The area under the ROC curve: the probability that the classifier takes an image of the second sample,
    rather than one of the first of the same class, for one of the second. 0.5 is chance, 1 is always."""

    auc: float
    low: float  # the ends of its 95 % interval
    high: float

    def __str__(self) -> str:
        return f"AUC {self.auc:.2f} (95 % interval {self.low:.2f} to {self.high:.2f})"


def tell_apart(first: Sample, second: Sample) -> ToldApart | None:
    """Return how well a logistic regression tells two samples apart, on images that it was not fitted to.

    Scores are from cross-validation, by groups if images have them: a classifier that knows a patient again
    has not found another kind of images. The interval is of percentiles of a bootstrap over images, or over
    groups, made WIDER. Return None if too few images are in classes of both samples, or in too few groups.
    """
    both = first.joined(second)
    is_second = np.repeat([False, True], [len(first.labels), len(second.labels)])
    weights = class_weights(both.labels, is_second)
    shared = weights > 0.0
    both, is_second, weights = both.of(shared), is_second[shared], weights[shared]
    if not _enough(both, is_second):
        return None
    scores, fold = _held_out_scores(both, is_second, weights)
    strata = both.labels * FOLDS + fold
    (auc,) = area_within(strata, scores, is_second, np.ones((len(scores), 1), np.float32))
    drawn = area_within(strata, scores, is_second, _resampled(both, is_second))
    low, high = np.clip(auc + WIDER * (np.percentile(drawn, PERCENTS) - auc), 0.0, 1.0)
    if high - low <= NO_SPREAD:  # every resample is told apart alike: Wilson's of the smaller sample
        samples = [both.of(each) for each in (is_second, ~is_second)]
        # images of one group do not count apart
        smaller = min(len(each.labels if each.groups is None else np.unique(each.groups)) for each in samples)
        low, high = wilson_interval(round(float(auc) * smaller), smaller)
    return ToldApart(float(auc), float(low), float(high))


def class_weights(labels: Integers, is_second: Booleans) -> Floats:
    """Return weights [n] by which each class counts alike in both samples: n1 n2 / (n1 + n2) of its images
    in each, nearly the weight of a stratum in van Elteren's test (1960). It is 0 if one sample lacks it."""
    held = np.stack(
        [np.bincount(labels[each], minlength=labels.max() + 1) for each in (~is_second, is_second)]
    )
    each_class = held.prod(0) / np.maximum(held.sum(0), 1)
    found: Floats = each_class[labels] / held[is_second.astype(int), labels]
    return found


def area_within(strata: Integers, scores: Floats, is_second: Booleans, counts: NDArray[np.float32]) -> Floats:
    """Return the mean of the strata's areas under the ROC curve, weighted as in `class_weights`, in each
    resample that has each image as often as counts [n, resamples] say; 0.5 in one without a pair."""
    total, weight = np.zeros(counts.shape[1]), np.zeros(counts.shape[1])
    for each in np.unique(strata[is_second]):
        own = strata == each
        area, there = auroc(ranked(scores[own], is_second[own], counts[own]))
        seconds, all_there = counts[own & is_second].sum(0), counts[own].sum(0)
        pairs = np.where(there, seconds * (all_there - seconds) / np.maximum(all_there, 1.0), 0.0)
        total, weight = total + pairs * np.where(there, area, 0.0), weight + pairs
    return np.divide(total, weight, out=np.full_like(total, 0.5), where=weight > 0.0)


def _enough(both: Sample, is_second: Booleans) -> bool:
    parts = [both.of(each) for each in (~is_second, is_second)]
    if min(len(part.labels) for part in parts) < FEW:
        return False
    return all(part.groups is None or len(np.unique(part.groups)) >= FEW_GROUPS for part in parts)


def _held_out_scores(both: Sample, is_second: Booleans, weights: Floats) -> tuple[Floats, Integers]:
    """Return for each image the logit that it is of the second sample, by a classifier that never saw it,
    and the fold that this classifier did not see.

    Logits of two folds must not be compared: each classifier was fitted to the images of the other fold, so
    that pairs tend to be the wrong way round.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    spread = both.features.std(0)
    features = (both.features - both.features.mean(0)) / np.where(spread > 0.0, spread, 1.0)
    scale = weights / weights.mean()
    scores, fold = np.empty(len(weights)), np.empty(len(weights), np.int64)
    for number, (fitted, held_out) in enumerate(_folds(both, is_second)):
        classifier = LogisticRegression(C=STRENGTH / features.shape[1], max_iter=STEPS, tol=1e-3)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # nearly converged tells images apart as well
            classifier.fit(features[fitted], is_second[fitted], sample_weight=scale[fitted])
        scores[held_out], fold[held_out] = classifier.decision_function(features[held_out]), number
    return scores, fold


def _folds(both: Sample, is_second: Booleans) -> Iterator[tuple[Integers, Integers]]:
    from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

    kind = StratifiedKFold if both.groups is None else StratifiedGroupKFold
    yield from kind(FOLDS, shuffle=True, random_state=0).split(both.features, is_second, both.groups)


def _resampled(both: Sample, is_second: Booleans) -> NDArray[np.float32]:
    """Return how often each image is in each resample, [n, RESAMPLES]: of each sample as many images, or
    groups, as it has are drawn with replacement."""
    random, counts = np.random.default_rng(0), np.empty((len(is_second), RESAMPLES), np.float32)
    for part in (~is_second, is_second):
        drawn_from = np.arange(part.sum()) if both.groups is None else both.groups[part]
        names, group = np.unique(drawn_from, return_inverse=True)
        often = random.multinomial(len(names), np.full(len(names), 1.0 / len(names)), size=RESAMPLES).T
        counts[part] = often[group]
    return counts


@dataclass(frozen=True)
class PartDifference:
    """Whether two parts differ by more than chance and custom allow, and by what."""

    differ: bool
    what: str


class PartAdvice(NamedTuple):
    """What it means that a part differs, and what to do."""

    means: str
    advice: tuple[Advice, ...]


@dataclass(frozen=True)
class PartWords:
    """What it means, and what to do, if a part differs."""

    test: PartAdvice
    validation: PartAdvice
    both: PartAdvice  # validation differs from training as the test part does
    of_accuracy: bool = False  # as a finding's


def compare_parts(
    check: CheckName,
    parts: Mapping[Split, T],
    join: Callable[[T, T], T],
    compare: Callable[[T, T], PartDifference | None],
    words: PartWords,
) -> Iterator[Finding]:
    """Yield how validation differs from training, and how the test part differs from both; from validation
    alone if that differs from training.

    A difference is a warning, but a validation part of the test's kind is as it should be: that it differs
    from training is a note. `compare` returns None for parts that are too small.
    """
    train, validation = parts["train"], parts["validation"]
    learnt = compare(train, validation)
    apart = learnt is not None and learnt.differ
    if "test" not in parts:
        yield _finding(check, "validation against training", learnt, words.validation, words.of_accuracy)
        return
    seen = validation if apart else join(train, validation)
    tested = compare(seen, parts["test"])
    if learnt is not None and learnt.differ and tested is not None and not tested.differ:
        what = f"validation against training: {learnt.what}"
        means, advice = words.both
        yield Finding(check, "note", what, means, advice=advice, of_accuracy=words.of_accuracy)
    else:
        yield _finding(check, "validation against training", learnt, words.validation, words.of_accuracy)
    against = "validation" if apart else "training and validation"
    yield _finding(check, f"test against {against}", tested, words.test, words.of_accuracy)


def _finding(
    check: CheckName, pair: str, found: PartDifference | None, words: PartAdvice, of_accuracy: bool
) -> Finding:
    if found is None:
        return unchecked(check, f"{pair}: too few images, or groups of images, in classes that both have")
    what = f"{pair}: {found.what}"
    if not found.differ:
        return passed(check, what)
    return Finding(check, "warning", what, words.means, advice=words.advice, of_accuracy=of_accuracy)
