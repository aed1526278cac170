"""Decides when a search needs no more trials: a target is reached, or no more gain is expected than luck.

Of n trials in any order, k more raise the best score by no more, on average, than the last k of them did: by
best - E[best of n - k], as the expected best of n rises less and less with n (order statistics: David and
Nagaraja 2003, chapter 3). A sampler that learns makes later trials better than earlier ones: so what the last
k did gain counts, too, where it is more.

Luck is here the standard error of the best score (`trainable.curves.levels`). docs/decisions/0066 says what
the rule costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from search.record.trials import NO_MORE_GAIN, TARGET_REACHED, Trial
from search.study import Study
from trainable.curves.levels import error_of_share
from trainable.recipe.metrics import Mode
from trainable.training.metrics import sign_of

USUAL_TRIALS = 10  # so many trials more are asked about where the study says no_gain: true


@dataclass(frozen=True)
class Goals:
    """What ends a search before its budget is spent, apart from time: an instance is asked after each end."""

    metric: str
    direction: Mode
    target: float | None = None
    no_gain: int | None = None  # so many trials more should gain less than luck
    validation_images: int = 1

    def __call__(self, trials: Sequence[Trial]) -> str | None:
        """Return in words which goal the trials so far have reached; None where more are needed.

        It depends on the trials alone, so a search that is resumed decides the same.
        """
        if self.target is None and self.no_gain is None:
            return None
        sign = sign_of(self.direction)
        ended = [
            each
            for each in trials
            if not (each.is_repeat or each.is_cut_short) and each.end in ("finished", "stopped", "diverged")
        ]
        scores = {each.id: sign * each.metrics[self.metric] for each in ended if each.end == "finished"}
        if not scores:
            return None
        best = max(scores, key=lambda number: (scores[number], -number))
        if self.target is not None and scores[best] >= sign * self.target:
            value = f"{self.metric} {sign * scores[best]:.4f} of trial {best}"
            return f"{TARGET_REACHED}: {value}, asked was {self.target:g}"
        if self.no_gain is None:
            return None
        worst = min(scores.values())  # a trial that was stopped is no better, as far as anybody knows
        gain = expected_gain([scores.get(each.id, worst) for each in ended], self.no_gain)
        luck = error_of_share(sign * scores[best], self.validation_images)
        if gain is None or gain > luck:
            return None
        more = f"{self.no_gain} trials more should gain {gain:.4f} at most"
        return f"{NO_MORE_GAIN}: {more}, and luck is {luck:.4f}"


def goals_of(study: Study, validation_images: int) -> Goals:
    """Return the goals that a study asks for."""
    budget, objective = study.budget, study.objective
    trials = USUAL_TRIALS if budget.no_gain is True else (budget.no_gain or None)
    return Goals(objective.metric, objective.direction, budget.target, trials, validation_images)


def expected_gain(scores: Sequence[float], more: int) -> float | None:
    """Return by how much so many trials more should raise the best of these scores at most; higher is better.

    It is what as many gained last, or in the mean over all orders, if that is more. None for fewer than twice
    as many scores, which say too little.
    """
    count = len(scores)
    if count < 2 * more:
        return None
    ranked = sorted(scores, reverse=True)
    share, before = (count - more) / count, 0.0  # of all orders, those whose best before is of this rank
    for rank, score in enumerate(ranked[: more + 1]):
        before += share * score
        share *= (more - rank) / (count - 1 - rank)
    return ranked[0] - min(before, max(scores[:-more]))
