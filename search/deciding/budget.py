"""Counts the trials of a search against its budget."""

from __future__ import annotations

from dataclasses import dataclass

from search.record.summary import Summary

MOST_INFEASIBLE = 3
"""For each trial of the budget, so many may break a constraint and be replaced by others: measuring one takes
seconds. It is our choice; where more than three quarters of the draws break one, fewer trials are trained."""


@dataclass
class TrialBudget:
    """Holds how many trials a search may have, how many it has proposed, and how many broke a constraint.

    Trials that repeat another one do not count.
    """

    trials: int
    proposed: int = 0
    infeasible: int = 0

    @property
    def is_spent(self) -> bool:
        """Whether the budget's trials were proposed."""
        return self.spent >= self.trials

    @property
    def spent(self) -> int:
        """How many trials count; of those that break a constraint, `MOST_INFEASIBLE` a trial do not."""
        return self.proposed - min(self.infeasible, MOST_INFEASIBLE * self.trials)


def extended(summary: Summary, trials: int, more: int) -> int:
    """Returns the budget of a search of `trials` that goes on with so many more.

    A search that is over has ended with the trials that it has: where hours ended it, those that it lacks
    are not made up for. One that was interrupted still has the rest of its budget.
    """
    if not summary.was_finished and summary.state != "failed":
        return trials + more
    infeasible = sum(trial.end == "infeasible" for trial in summary.trials)
    return TrialBudget(trials, len(summary.trials), infeasible).spent + more
