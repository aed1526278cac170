"""Tests that images of one kind are not told apart, and others are, whatever the shares of the classes."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from trainable.checks.two_samples import FEW, FEW_GROUPS, Sample, area_within, tell_apart

FIGURES = 10


def drawn(images: int, seed: int, moved: float = 0.0, shares: tuple[float, float] = (0.5, 0.5)) -> Sample:
    """Return figures of images of two classes, which lie 3 deviations apart in the first figure."""
    random = np.random.default_rng([seed, images])
    labels = random.choice(2, images, p=shares)
    features = random.normal(size=(images, FIGURES))
    features[:, 0] += 3.0 * labels
    features[:, 1] += moved
    return Sample(features, labels)


def of_patients(patients: int, seed: int) -> Sample:
    """Return ten images of each patient; a patient's images are much alike."""
    random = np.random.default_rng(seed)
    groups = np.repeat(np.arange(patients), 10)
    of_patient = random.normal(size=(patients, FIGURES))[groups]
    features = of_patient + 0.1 * random.normal(size=(10 * patients, FIGURES))
    return Sample(features, random.integers(0, 2, 10 * patients), 1_000 * seed + groups)


@pytest.mark.slow("trains for its checks")
@pytest.mark.parametrize(("images", "others"), [(30, 30), (300, 100)])
def test_samples_of_one_kind_are_told_apart_no_better_than_by_chance(images: int, others: int) -> None:
    """If images of two folds were compared, the mean would be below 0.45."""
    found = [tell_apart(drawn(images, seed), drawn(others, seed + 500)) for seed in range(40)]
    areas = [each.auc for each in found if each is not None]
    assert np.mean(areas) == pytest.approx(0.5, abs=0.035)
    assert max(each.low for each in found if each is not None) < 0.64


def test_other_shares_of_classes_alone_are_no_difference() -> None:
    first, second = drawn(400, 0, shares=(0.9, 0.1)), drawn(400, 1, shares=(0.1, 0.9))
    within = tell_apart(first, second)
    across = tell_apart(Sample(first.features, 0 * first.labels), Sample(second.features, 0 * second.labels))
    assert within is not None
    assert across is not None
    assert within.low < 0.5 < within.high
    assert across.low > 0.8


def test_a_difference_within_classes_is_found_whatever_their_shares() -> None:
    found = tell_apart(drawn(400, 0, shares=(0.9, 0.1)), drawn(400, 1, moved=2.0, shares=(0.1, 0.9)))
    assert found is not None
    assert 0.85 < found.low < found.auc < found.high
    assert "AUC 0.9" in str(found)


@pytest.mark.slow("fits many classifiers")
def test_a_classifier_that_knows_patients_again_has_not_found_another_kind_of_images() -> None:
    by_group, by_image = [], []
    for seed in range(10):
        first, second = of_patients(30, 2 * seed), of_patients(12, 2 * seed + 1)
        by_group.append(tell_apart(first, second))
        by_image.append(
            tell_apart(Sample(first.features, first.labels), Sample(second.features, second.labels))
        )
    assert sum(each is not None and each.low > 0.64 for each in by_image) >= 7
    assert not any(each is None or each.low > 0.64 for each in by_group)


def test_too_few_images_in_classes_of_both_samples_or_too_few_groups_say_nothing() -> None:
    whole = drawn(200, 0)
    assert tell_apart(whole, drawn(FEW - 1, 1)) is None
    assert tell_apart(whole, Sample(whole.features, whole.labels + 2)) is None
    assert tell_apart(of_patients(30, 1), of_patients(FEW_GROUPS - 1, 2)) is None
    assert tell_apart(of_patients(30, 1), of_patients(FEW_GROUPS, 2)) is not None


def test_the_area_within_strata_is_scikit_learns_in_each_stratum_and_resample() -> None:
    random = np.random.default_rng(0)
    strata, is_second = random.integers(0, 3, 90), random.random(90) < 0.4
    scores = random.normal(size=90).round(1)  # with ties
    counts = random.integers(0, 3, (90, 4)).astype(np.float32)
    found = area_within(strata, scores, is_second, counts)
    for area, often in zip(found, counts.astype(int).T, strict=True):
        at = np.repeat(np.arange(90), often)
        areas, weights = [], []
        for each in range(3):
            own = at[strata[at] == each]
            firsts, seconds = (~is_second[own]).sum(), is_second[own].sum()
            areas.append(roc_auc_score(is_second[own], scores[own]))
            weights.append(firsts * seconds / (firsts + seconds))
        assert area == pytest.approx(np.average(areas, weights=weights))


def test_samples_that_are_always_told_apart_have_wilsons_interval_of_the_smaller_one() -> None:
    found = tell_apart(drawn(60, 0), drawn(25, 1, moved=500.0))
    assert found is not None
    assert (found.auc, found.high) == (1.0, 1.0)
    assert found.low == pytest.approx(0.8668, abs=1e-3)  # 25 of 25
