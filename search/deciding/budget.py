"""Counts the trials of a search against its budget."""

from __future__ import annotations

import math
from dataclasses import dataclass

from search.record.record import Record

# for each trial of the budget, so many may break a constraint and be replaced by others: measuring one takes
# seconds. It is our choice; where more than three quarters of the draws break a constraint, fewer trials are
# trained than the budget has
MOST_INFEASIBLE = 3


@dataclass
class TrialBudget:
    """How many trials a search may have, how many it has proposed, and how many broke a constraint.

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
        """How many trials count. Those that break a constraint do not, up to `MOST_INFEASIBLE` for each trial
        of the budget."""
        return self.proposed - min(self.infeasible, MOST_INFEASIBLE * self.trials)


def extended(record: Record, trials: int, more: int) -> int:
    """Return the new budget of a search of `trials` that goes on with so many more.

    Where the search is over, they come on top of the trials that it has: if the hours ended it, the rest of
    its old budget is not made up for. One that was interrupted still has that rest.
    """
    if not record.was_finished and record.state != "failed":
        return trials + more
    proposed = len(record.trials) - record.repeats
    infeasible = sum(trial.end == "infeasible" for trial in record.trials)
    if_all_are_replaced = proposed - infeasible + more
    if_too_many_are_infeasible = math.ceil((proposed + more) / (1 + MOST_INFEASIBLE))
    return max(if_all_are_replaced, if_too_many_are_infeasible)
