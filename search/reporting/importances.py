"""Which dimensions decide how good a trial is: PED-ANOVA on places, with intervals.

Import this module only where importances are computed: Optuna and scikit-learn take a second.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.importance import PedAnovaImportanceEvaluator

from search.deciding.optuna_trials import SharedTrials, TrialOutcome, distribution, optuna_trial
from search.learning.standings import positions
from search.record.trials import Trial
from search.reporting.content import Importance, Importances
from spaces.space import Space
from trainable.errors import UserError

LEAST_TRIALS = 20  # with fewer trials the halves that give the intervals are too small; our choice
# the best tenth is compared with all trials (arXiv 2304.10255, section 5); of few trials the best ten, so
# that each half has the five that Optuna's documentation asks for at least
TOP_SHARE, TOP_TRIALS = 0.1, 10
HALVES = 40  # intervals come from so many random halves of the trials
INTERVAL = (0.05, 0.95)
TREES = 200
SEED = 0  # of the halves and of the forest
TINY = 1e-12
ABSENT = -1.0  # the position that stands for a dimension which a trial does not have

Numbers = NDArray[np.float64]


def importances(space: Space, trials: Sequence[Trial], places: Mapping[int, float]) -> Importances:
    """Return the share of each dimension.

    PED-ANOVA (arXiv 2304.10255; for dimensions that some trials lack arXiv 2601.20800) measures how the
    values of the best trials differ from those of all. Where few trials have a dimension they differ by
    chance, too: what shuffled places give on average is subtracted (Altmann et al., 2010, Bioinformatics 26).
    A share is the mean over random halves of the trials, and its interval holds nine tenths of theirs, which
    spread as the estimate does (delete-half jackknife; Shao and Wu, 1989, Annals of Statistics 17).

    A trial outside the space, as the documented recipe may be, is left out. Raises UserError with fewer than
    `LEAST_TRIALS` trials.
    """
    points = {trial.id: at for trial in trials if trial.id in places and (at := positions(space, trial))}
    if len(points) < LEAST_TRIALS:
        raise UserError(f"{len(points)} trials can be compared, {LEAST_TRIALS} are needed")
    study = _study(space, [trial for trial in trials if trial.id in points])
    names = [each.name for each in space.dimensions if any(each.name in at for at in points.values())]
    worth = np.array([places[trial] for trial in points])
    halves = _halves(study, names, worth, np.random.default_rng(SEED))
    shares, (low, high) = halves.mean(axis=0), np.quantile(halves, INTERVAL, axis=0)
    return Importances(
        trials=len(points),
        top=_top(len(points)),
        explained=_explained(names, points, worth),
        fields=tuple(
            # an interval holds the share, too, where a few halves decide that
            Importance(
                name=names[at], share=shares[at], low=min(low[at], shares[at]), high=max(high[at], shares[at])
            )
            for at in np.argsort(-shares, kind="stable")
        ),
    )


def _top(trials: int) -> float:
    """Return the share of the trials that count as the best."""
    return min(0.5, max(TOP_SHARE, TOP_TRIALS / trials))


def _study(space: Space, trials: Sequence[Trial]) -> optuna.Study:
    """Return the trials as a study of Optuna's, without their scores.

    They share their distributions: Optuna compares these between trials, and equal ones option by option.
    """
    domains = {each.name: each.domain for each in space.dimensions}
    shared = {name: distribution(domain) for name, domain in domains.items()}
    outcome = TrialOutcome(end="finished", scores={1: 0.0})
    copies = [
        optuna_trial(number, space.named(each.values), domains, outcome, outside="ignore the trial")
        for number, each in enumerate(trials)
    ]
    for trial in copies:
        trial.distributions = {name: shared[name] for name in trial.params}
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # it announces every study that it creates
    return optuna.create_study(storage=SharedTrials(copies))


def _halves(study: optuna.Study, names: Sequence[str], worth: Numbers, luck: np.random.Generator) -> Numbers:
    """Return the shares [HALVES, dimensions] in random halves of the trials; zeros where nothing is above
    what shuffled places give."""
    count, worth = len(worth), _untied(worth, luck)
    kept = [luck.permutation(count) < count // 2 for _ in range(HALVES)]
    chance = np.mean(
        [_measured(study, names, np.where(each, luck.permutation(worth), np.nan)) for each in kept], axis=0
    )
    measured = np.array([_measured(study, names, np.where(each, worth, np.nan)) for each in kept])
    above = np.maximum(measured - chance, 0.0)
    shares: Numbers = above / np.maximum(above.sum(axis=1, keepdims=True), TINY)
    return shares


def _untied(worth: Numbers, luck: np.random.Generator) -> Numbers:
    """Return the ranks of the trials, equal ones in random order.

    PED-ANOVA counts every trial that is as good as the last of the best as one of them: where most trials
    diverged, and so have one place, all would be among the best, and nothing would decide.
    """
    ranks = np.empty(len(worth))
    ranks[np.lexsort((luck.random(len(worth)), worth))] = np.arange(len(worth))
    return ranks


def _measured(study: optuna.Study, names: Sequence[str], worth: Numbers) -> Numbers:
    """Return PED-ANOVA of the dimensions; trials whose worth is nan are left out."""
    present = ~np.isnan(worth)
    evaluator = PedAnovaImportanceEvaluator(target_quantile=_top(int(present.sum())))
    trials = study.get_trials(deepcopy=False)
    varied = {name for trial in trials if present[trial.number] for name in trial.params}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that lower is better, and that some values are rare
        by_name = evaluator.evaluate(
            study,
            [name for name in names if name in varied],
            target=lambda trial: -float(worth[trial.number]),
        )
    return np.array([by_name.get(name, 0.0) for name in names], np.float64)


def _explained(names: Sequence[str], points: Mapping[int, Mapping[str, float]], worth: Numbers) -> float:
    """Return the share of the variance of places that a random forest explains in trials that its trees have
    not seen (out-of-bag R2; Breiman, 2001, Machine Learning 45)."""
    from sklearn.ensemble import RandomForestRegressor

    table = np.array([[at.get(name, ABSENT) for name in names] for at in points.values()])
    forest = RandomForestRegressor(TREES, oob_score=True, random_state=SEED)
    return float(forest.fit(table, worth).oob_score_)
