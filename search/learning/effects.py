"""What each rule is worth, by regression over all rules: a slope, its error and a test each.

It is a linear mixed model: the rule asked about is a fixed effect, every other one a random effect, so that
there may be more rules than trials. Genomes are searched like this, one marker at a time (Kang et al., 2010,
Nature Genetics 42). It is solved by Henderson's equations (1975, Biometrics 31), which are ridge regression.
The result is averaged over how much the random effects vary, by restricted likelihood: the best ratio alone
would promise too much where trials are few.

Import this module only where verdicts are computed: NumPy takes 0.1 s.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainable.training.metrics import student_below, student_quantile

Vector = NDArray[np.float64]

# the ratios that are tried for the variance of one random effect over that of luck
RATIOS = np.geomspace(0.003, 3.0, 11)
# the least variance where a model explains everything, in places squared (of 100, as in `standings`)
TINY = 1e-9


@dataclass(frozen=True)
class Column:
    """One dimension over the trials.

    `agreement` says how well each trial agrees with the rule; it is 0 on average, and where the dimension is
    absent. `adjusts` holds in its columns all that the dimension may do to a score, for use beside other
    rules.
    """

    agreement: Vector
    adjusts: Vector


@dataclass(frozen=True)
class AgreementGain:
    """How much a unit of agreement gains, with the standard error and its degrees of freedom.

    A gain counts in places of 100: how many more of 100 other trials a trial beats.
    """

    slope: float
    error: float
    freedom: float

    @property
    def chance(self) -> float:
        """The probability of a slope at least so far from 0 if the rule does nothing (two-sided t-test)."""
        return 2.0 * student_below(-abs(self.slope) / self.error, self.freedom)

    def interval(self, risk: float) -> tuple[float, float]:
        """Return both ends of the interval that misses the true slope with a probability of `risk`."""
        reach = student_quantile(1.0 - risk / 2.0, self.freedom) * self.error
        return self.slope - reach, self.slope + reach


def column(agreement: Vector, position: Vector, *, options: bool) -> Column:
    """Return the column of a dimension, from its values' agreement and position, nan where absent.

    With `options` each position is an option with an effect of its own; otherwise positions lie along a
    range.
    """
    spread = (
        [position == each for each in np.unique(position[~np.isnan(position)])] if options else [position]
    )
    adjusting = [_standard(each) for each in (agreement, *(np.asarray(each, float) for each in spread))]
    return Column(_centred(agreement), np.column_stack(adjusting))


def estimate(standings: Vector, order: Vector, column: Column, others: Sequence[Column]) -> AgreementGain:
    """Return the gain from agreement with one rule, all that `others` may do being equal.

    `order` is when each trial was drawn: samplers move on while they learn, and a trend over the search is no
    rule's merit. Raises ValueError where all trials agree alike.
    """
    if not column.agreement.any():
        raise ValueError("expected trials that agree more and trials that agree less")
    fixed = np.column_stack([np.ones(len(standings)), _standard(order), column.agreement])
    random = np.column_stack([np.empty((len(standings), 0)), *(each.adjusts for each in others)])
    design = np.column_stack([fixed, random])
    squares, products = design.T @ design, design.T @ standings
    fits = [_fit(standings, squares, products, fixed.shape[1], ratio) for ratio in RATIOS]
    return _averaged([each for _, each in fits], np.array([misfit for misfit, _ in fits]))


def risk_for(chances: Sequence[float], share: float) -> float:
    """Return the risk for each test, so that on average at most a `share` of the effects found is false.

    It follows Benjamini and Hochberg (1995, J. Royal Statistical Society B 57); intervals that miss with this
    risk are theirs for chosen effects (Benjamini and Yekutieli, 2005, J. American Statistical Association
    100).
    """
    count = len(chances)
    passing = [rank for rank, chance in enumerate(sorted(chances), start=1) if chance <= share * rank / count]
    return share * max(passing, default=1) / count


def _fit(
    standings: Vector, squares: Vector, products: Vector, fixed: int, ratio: float
) -> tuple[float, AgreementGain]:
    """Return minus twice a ratio's restricted log-likelihood, and its estimate of the last fixed effect.

    `squares` and `products` are the design's with itself and with the standings; its first columns are the
    `fixed` effects.
    """
    random = len(squares) - fixed
    system = squares + np.diag(np.repeat([0.0, 1.0 / ratio], [fixed, random]))
    inverse = np.linalg.inv(system)
    effects = inverse @ products
    rows, at = len(standings) - fixed, fixed - 1
    variance = max(float(standings @ standings - products @ effects) / rows, TINY)
    determinant = float(np.linalg.slogdet(system)[1]) + random * math.log(ratio)
    error = math.sqrt(variance * inverse[at, at])
    freedom = len(standings) - float(np.trace(inverse @ squares))
    return rows * math.log(variance) + determinant, AgreementGain(float(effects[at]), error, freedom)


def _averaged(estimates: Sequence[AgreementGain], misfits: Vector) -> AgreementGain:
    """Return the mean, weighted by likelihood; its error is that of the mixture."""
    weights = np.exp((misfits.min() - misfits) / 2.0)
    weights /= weights.sum()
    slopes, errors, freedoms = (
        np.array([getattr(each, name) for each in estimates]) for name in ("slope", "error", "freedom")
    )
    slope = float(weights @ slopes)
    error = math.sqrt(float(weights @ (errors**2 + (slopes - slope) ** 2)))
    return AgreementGain(slope, error, float(weights @ freedoms))


def _centred(values: Vector) -> Vector:
    """Return the values around their mean, 0 where one is absent."""
    present = ~np.isnan(values)
    return np.where(present, values - values[present].mean(), 0.0) if present.any() else np.zeros(len(values))


def _standard(values: Vector) -> Vector:
    """Return the centred values with a standard deviation of 1 over all trials, unless all are alike."""
    centred = _centred(values)
    spread = centred.std()
    return centred / spread if spread > 1e-9 else np.zeros(len(values))
