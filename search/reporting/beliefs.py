"""Gathers what each rule believes of its dimension, the trials' values there, and the verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from search.learning.standings import positions
from search.record.trials import Trial
from search.record.verdicts import Verdict, Verdicts
from search.reporting.content import Belief, BeliefCurve
from spaces.domains import Choice, Domain, Values, domain_tree, value_at
from spaces.priors import Prior, density, describe
from spaces.space import Dimension, Space
from trainable.recipe.base import with_guide_names

POINTS = 64  # a belief over a range is drawn through so many points
MOST_CURVES = 3  # beliefs may follow from other values; at most so many are drawn, those of the most trials


def beliefs_of(space: Space, trials: Sequence[Trial], verdicts: Verdicts | None) -> tuple[Belief, ...]:
    """Return the beliefs in the space's order; trials that are no points of the space have no values."""
    found = {each.rule: each for each in verdicts.rules} if verdicts is not None else {}
    places = {trial.id: at for trial in trials if (at := positions(space, trial)) is not None}
    priors = {trial.id: space.priors(trial.values) for trial in trials if trial.id in places}
    return tuple(_belief(each, space.own, places, priors, found.get(each.name)) for each in space.dimensions)


def _belief(
    dimension: Dimension,
    own: Values,
    places: Mapping[int, Mapping[str, float]],
    priors: Mapping[int, Mapping[str, Prior]],
    verdict: Verdict | None,
) -> Belief:
    name = dimension.name
    having = [trial for trial in places if name in places[trial]]
    drawn_from = Counter(priors[trial][name] for trial in having) or Counter([dimension.prior(own)])
    low, high = verdict.interval if verdict is not None and verdict.interval is not None else (None, None)
    return Belief(
        name=name,
        path=dimension.path,
        domain=domain_tree(dimension.domain),
        when=None if dimension.when is None else str(dimension.when),
        reason=dimension.reason_for(own),
        source=with_guide_names([dimension.source])[0],  # each rule, since they are not read in order
        curves=tuple(_curve(dimension.domain, prior, n) for prior, n in drawn_from.most_common(MOST_CURVES)),
        verdict=verdict.word if verdict is not None else None,
        effect=verdict.effect if verdict is not None else None,
        low=low,
        high=high,
        why=verdict.why if verdict is not None else None,
        trials=tuple(having),
        positions=tuple(round(places[trial][name], 5) for trial in having),
    )


def _curve(domain: Domain, prior: Prior, trials: int) -> BeliefCurve:
    """Return a belief over its domain; `trials` counts those that drew from it."""
    if isinstance(domain, Choice):
        values = list(domain.options)
    else:
        values = [value_at(domain, min(at / (POINTS - 1), 1.0 - 1e-9)) for at in range(POINTS)]
    return BeliefCurve(
        says=describe(domain, prior),
        trials=trials,
        density=tuple(round(density(domain, prior, value), 5) for value in values),
    )
