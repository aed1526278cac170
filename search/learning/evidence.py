"""What an audit examines, and what it says: findings with proposals, and what is left as it is."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

from search.learning.search import Search, diagnosis_of
from search.learning.standings import Trends, has_result
from search.record.summary import Summary
from search.record.trials import Trial
from spaces.catalog.overrides import OVERRIDES
from spaces.domains import Value
from spaces.space import Dimension, Space
from trainable.diagnosis import Diagnosis

# Google's playbook, https://github.com/google-research/tuning_playbook; cited by the names of its sections
PLAYBOOK = "Deep Learning Tuning Playbook"
# how many trials' curves are examined: "at least the best few" (Examining the training curves); 3 is ours
TOP = 3

FindingKind = Literal[
    "edge", "diverged", "still improving", "overfit", "underfit", "noisy", "ceiling", "plateau"
]


@dataclass(frozen=True)
class ProposedEdit:
    """A proposed change of one field of a study."""

    path: str  # it is, for example, `budget.epochs`, or `space.overrides.optimizer.lr[sgd]`
    to: tuple[Any, ...]  # plain data to write there; the first one that makes a valid study is used
    why: str


@dataclass(frozen=True)
class SearchFinding:
    """What was wrong with the search, or may be done better in the next."""

    kind: FindingKind
    about: str  # a dimension's name, or the trials in which it was seen
    seen: str  # what was seen, with the figures
    rule: str  # the limit from which on the finding is made
    source: str
    proposed_edits: tuple[ProposedEdit, ...] = ()
    advice: tuple[str, ...] = ()  # what a person can do, and a study cannot say

    def json(self) -> dict[str, Any]:
        """Return plain data; the proposals are left out, because their outcome is part of the next study."""
        tree = asdict(self)
        del tree["proposed_edits"]
        return tree


@dataclass(frozen=True)
class Edit:
    """One change of the study: the field, its value before and after, and why."""

    path: str
    before: str
    after: str
    why: str

    @property
    def field(self) -> str:
        """The name that a person uses: a dimension's name, or the path in the study."""
        return self.path.removeprefix(f"{OVERRIDES}.")


@dataclass(frozen=True)
class LeftAlone:
    """What was examined and is left as it is, and why."""

    about: str
    why: str


class DiagnosedTrial(NamedTuple):
    """A trial and what its curves say."""

    trial: Trial
    diagnosis: Diagnosis


@dataclass(frozen=True)
class Evidence:
    """A search as the audit sees it."""

    search: Search

    @property
    def space(self) -> Space:
        return self.search.space

    @property
    def summary(self) -> Summary:
        return self.search.summary

    @cached_property
    def trends(self) -> Trends:
        """Where in each range the better trials lie."""
        return Trends(self.space, self.summary)

    @cached_property
    def compared_trials(self) -> tuple[Trial, ...]:
        """The trials that say something: trained to the end, stopped after a score, or diverged."""
        return tuple(each for each in self.summary.trials if has_result(each))

    @cached_property
    def top(self) -> tuple[Trial, ...]:
        """The best few of the finished trials, the best one first: the finalists' winner, if there is one.

        The documented recipe is left out unless it is the best: it is never stopped, so it may have
        finished although better ones were stopped.
        """
        metric, best, sign = self.summary.objective, self.summary.best, self.summary.sign
        finished = [each for each in self.summary.trials if each.state == "finished"]
        earned = [each for each in finished if not each.own or each == best]
        return tuple(sorted(earned, key=lambda each: (each != best, -sign * each.metrics[metric]))[:TOP])

    @cached_property
    def curves(self) -> tuple[DiagnosedTrial, ...]:
        """What the curves of the `top` trials say, where the journal has all that a diagnosis needs."""
        pairs = ((trial, diagnosis_of(trial, self.search.info)) for trial in self.top)
        return tuple(DiagnosedTrial(trial, diagnosis) for trial, diagnosis in pairs if diagnosis is not None)

    def best_value(self, dimension: Dimension) -> Value:
        """Return the best trial's value; None where it does not have the dimension."""
        best = self.summary.best
        return self.space.named(best.values).get(dimension.name) if best is not None else None


def overridden(name: str) -> str:
    """Return the path at which a study overrides a dimension."""
    return f"{OVERRIDES}.{name}"
