"""Tests the regression behind verdicts: against ordinary and generalised least squares, and SciPy's tests."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from search.learning.effects import RATIOS, AgreementGain, Column, _fit, column, estimate, risk_for

ROWS = 40
ORDER = np.arange(ROWS, dtype=float)


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(7)


def plain(values: np.ndarray) -> Column:
    return column(values, values, options=False)


def test_a_rule_alone_is_tested_as_in_ordinary_least_squares(random: np.random.Generator) -> None:
    agreement, standings = random.random(ROWS), random.random(ROWS) * 100
    found = estimate(standings, ORDER, plain(agreement), [])
    design = np.column_stack([np.ones(ROWS), ORDER, agreement])
    solved, residue, *_ = np.linalg.lstsq(design, standings)
    error = np.sqrt(residue[0] / (ROWS - 3) * np.linalg.inv(design.T @ design)[2, 2])
    assert (found.slope, found.error, found.freedom) == pytest.approx((solved[2], error, ROWS - 3))
    assert found.chance == pytest.approx(2 * stats.t.sf(abs(solved[2]) / error, ROWS - 3))
    low, high = stats.t.interval(0.95, ROWS - 3, solved[2], error)
    assert found.interval(0.05) == pytest.approx((low, high))


@pytest.mark.parametrize("ratio", [RATIOS[0], 0.1, RATIOS[-1]])
def test_hendersons_equations_solve_generalised_least_squares(
    ratio: float, random: np.random.Generator
) -> None:
    fixed, others = random.normal(size=(ROWS, 3)), random.normal(size=(ROWS, 60))
    standings = random.normal(size=ROWS)
    design = np.column_stack([fixed, others])
    misfit, found = _fit(standings, design.T @ design, design.T @ standings, fixed.shape[1], ratio)
    inverse = np.linalg.inv(np.eye(ROWS) + ratio * others @ others.T)
    spread = np.linalg.inv(fixed.T @ inverse @ fixed)
    slopes = spread @ fixed.T @ inverse @ standings
    rest = standings - fixed @ slopes
    variance = rest @ inverse @ rest / (ROWS - 3)
    assert found.slope == pytest.approx(slopes[2])
    assert found.error == pytest.approx(np.sqrt(variance * spread[2, 2]))
    determinants = -np.linalg.slogdet(inverse)[1] - np.linalg.slogdet(spread)[1]
    assert misfit == pytest.approx((ROWS - 3) * np.log(variance) + determinants)


def test_what_another_rule_does_is_not_put_down_to_this_one(random: np.random.Generator) -> None:
    cause = random.normal(size=ROWS)
    bystander = cause + 0.7 * random.normal(size=ROWS)
    standings = 50.0 + 10.0 * cause + random.normal(size=ROWS)
    alone = estimate(standings, ORDER, plain(bystander), [])
    beside = estimate(standings, ORDER, plain(bystander), [plain(cause)])
    assert alone.chance < 1e-4
    assert beside.chance > 0.05
    assert estimate(standings, ORDER, plain(cause), [plain(bystander)]).slope == pytest.approx(10.0, abs=1.0)


def test_a_trend_over_the_search_is_no_rules_merit(random: np.random.Generator) -> None:
    agreement = ORDER + 3.0 * random.normal(size=ROWS)
    standings = ORDER + random.normal(size=ROWS)
    assert estimate(standings, ORDER, plain(agreement), []).chance > 0.01
    assert stats.linregress(agreement, standings).pvalue < 1e-9


def test_there_may_be_more_rules_than_trials(random: np.random.Generator) -> None:
    columns = [plain(random.random(12)) for _ in range(30)]
    standings = 100.0 * (columns[0].agreement > 0) + random.random(12)
    found = estimate(standings, ORDER[:12], columns[0], columns[1:])
    assert 0.0 < found.freedom <= 9.0
    assert found.slope > 0.0


def test_where_a_dimension_is_absent_it_neither_adds_nor_takes() -> None:
    values = np.array([1.0, np.nan, 3.0, np.nan])
    assert column(values, values, options=False).agreement.tolist() == [-1.0, 0.0, 1.0, 0.0]


def test_each_option_has_an_effect_of_its_own() -> None:
    positions = np.array([0.1, 0.5, 0.9, 0.5, np.nan])
    adjusts = column(np.ones(5), positions, options=True).adjusts
    assert adjusts.shape == (5, 4)
    assert adjusts[:, 2].tolist() == pytest.approx([-0.8164966, 1.2247449, -0.8164966, 1.2247449, -0.8164966])


def test_trials_that_all_agree_alike_are_refused() -> None:
    with pytest.raises(ValueError, match="agree more"):
        estimate(np.arange(5.0), np.arange(5.0), plain(np.full(5, 0.3)), [])


@pytest.mark.parametrize("seed", range(20))
def test_the_risk_tells_the_same_effects_apart_as_benjamini_and_hochberg(seed: int) -> None:
    chances = np.random.default_rng(seed).random(12) ** 4
    adjusted = stats.false_discovery_control(chances)
    assert [each <= risk_for(list(chances), 0.1) for each in chances] == [each <= 0.1 for each in adjusted]


def test_an_interval_holds_zero_just_when_the_chance_is_above_the_risk() -> None:
    found = AgreementGain(2.0, 1.0, 10.0)
    assert found.interval(found.chance)[0] == pytest.approx(0.0)
