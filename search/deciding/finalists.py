"""Decides how many of the best trials are trained again with fresh seeds, and which run comes next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from search.deciding.pruning import Pruning
from search.deciding.scheduler import expected_share
from search.record.finals import best_first, finalists_of, missing_runs
from search.record.journal import Repeat, SettledEvent
from search.record.record import Record
from search.study import Study
from search.study.study import Finalists
from trainable.recipe.metrics import Mode
from trainable.training.metrics import sign_of

# if the study says nothing, the finalists cost at most this share of the epochs that the search expects
SHARE = 0.2
# the first of these that costs no more is taken. Also with one finalist the search ends with a score of fresh
# seeds
USUAL = (Finalists(top=3), Finalists(top=2), Finalists(top=1))


@dataclass(frozen=True)
class Final:
    """How the best trials are trained again, None if they are not, and what that costs, in words."""

    finalists: Finalists | None
    words: str

    def epochs(self, study: Study) -> int:
        """Return the epochs that all runs of finalists train, at most."""
        return _epochs(self.finalists, study) if self.finalists is not None else 0


def choose_final(study: Study, pruning: Pruning) -> Final:
    """Return the finalists that the study asks for; where it says nothing, those that fit the budget."""
    match study.finalists:
        case Finalists() as written:
            chosen: Finalists | None = written
        case "auto":
            most = SHARE * expected_epochs(study, pruning)
            chosen = next((each for each in USUAL if _epochs(each, study) <= most), None)
        case "none":
            chosen = None
    return final_of(chosen, study, pruning)


def final_of(finalists: Finalists | None, study: Study, pruning: Pruning) -> Final:
    """Return a search's choice with what it costs, in words."""
    if finalists is not None:
        return Final(finalists, _cost(finalists, study, pruning))
    if study.finalists == "none":
        return Final(None, "the best trial is not trained again: the study switches that off")
    least = USUAL[-1]
    share = _epochs(least, study) / expected_epochs(study, pruning)
    return Final(
        None,
        f"the best trial is not trained again: {least.seeds} fresh seeds would cost {share:.0%} more epochs; "
        f"`finalists: {{top: {least.top}, seeds: {least.seeds}}}` in the study asks for it",
    )


def settled_final(settled: SettledEvent | None, study: Study, pruning: Pruning) -> Final:
    """Return what a search has recorded of its finalists; before that, what this version would choose."""
    if settled is None:
        return choose_final(study, pruning)
    return final_of(settled.finalists, study, pruning)


def expected_epochs(study: Study, pruning: Pruning) -> float:
    """Return the epochs that the trials of a search are expected to train, all together."""
    epochs = study.budget.epochs
    return study.budget.trials * epochs * expected_share(pruning.rungs, pruning.factor, epochs)


def missing_repeats(
    finalists: Finalists | None, record: Record, metric: str, direction: Mode
) -> Iterator[Repeat]:
    """Yield the runs of finalists that a record lacks, the next one first, as the trials are now."""
    if finalists is not None:
        ranked = best_first(record.trials, metric, sign_of(direction))
        yield from missing_runs(finalists, finalists_of(finalists, ranked), record.trials)


def _epochs(finalists: Finalists, study: Study) -> int:
    return finalists.top * finalists.seeds * study.budget.epochs


def _cost(finalists: Finalists, study: Study, pruning: Pruning) -> str:
    share = _epochs(finalists, study) / expected_epochs(study, pruning)
    which = "best trial is" if finalists.top == 1 else f"best {finalists.top} trials are"
    hours = "; the hours may end first" if study.budget.hours is not None else ""
    anew = " and fresh splits" if finalists.splits == "fresh" else ""
    return (
        f"then the {which} trained again with {finalists.seeds} fresh seeds{anew}: "
        f"{_epochs(finalists, study)} epochs more, about {share:.0%}{hours}"
    )
