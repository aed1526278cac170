"""Counts the trials of a search against its budget."""

from __future__ import annotations

from dataclasses import dataclass

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
        """Whether the budget's trials were proposed; `MOST_INFEASIBLE` that break a constraint cost none."""
        return self.proposed - min(self.infeasible, MOST_INFEASIBLE * self.trials) >= self.trials
