"""Opens a search that exists: all that is known of it, from its folder or its URI.

In a notebook:

    from search.results import Search

    Search("searches/digits-1").trials_frame()
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from search.deciding.finalists import Final, choose_final, final_of
from search.deciding.pruning import Pruning, choose_pruning
from search.learning.learned_space import space_of
from search.record.chain import JournalError
from search.record.code import CodeRecord
from search.record.cursor import read_cursor
from search.record.folder import (
    home_in,
    is_driven,
    read_code,
    read_facts,
    read_learned,
    read_record,
    read_search,
)
from search.record.home import Home
from search.record.record import Record
from search.record.storage import local_folder
from search.record.summary import State, Summary, summarise
from search.record.trials import Trial
from search.record.verdicts import Verdicts
from search.record.verification import Verified, read_verification
from search.study import Study
from search.verdicts.diagnosis import diagnosis_of
from search.verdicts.judging import verdicts_of
from search.verdicts.pruning_audit import PruningAudit, audit_of
from spaces.facts import Facts
from spaces.space import Space
from trainable.curves.diagnosis import Diagnosis
from trainable.data import DataInfo

if TYPE_CHECKING:
    import pandas


class Search:
    """Opens a search by its folder or its URI; each part is read when first asked for, and then remembered.

    While a search goes on, open it again to see what is new. Raises UserError where there is no search,
    JournalError where its journal is damaged.
    """

    def __init__(self, address: str | Path) -> None:
        self.folder = local_folder(str(address))

    @cached_property
    def study(self) -> Study:
        """The resolved study of the search, with the objective and the epochs that the search has settled,
        and with all trials of its budget where it was extended."""
        study = read_search(self.folder).with_trials(self.record.extended_to)
        settled = self.record.settled
        if settled is None:
            return study
        objective = study.objective.model_copy(update={"metric": settled.objective, "mode": settled.mode})
        budget = study.budget.model_copy(update={"epochs": settled.epochs})
        return study.model_copy(update={"objective": objective, "budget": budget})

    @property
    def facts(self) -> Facts:
        """What was measured when the search began."""
        return self._measured[0]

    @property
    def info(self) -> DataInfo:
        """What is known of the data."""
        return self._measured[1]

    @cached_property
    def code(self) -> CodeRecord | None:
        """What is recorded of a person's own code that the search uses; None where it uses none."""
        return read_code(self.folder)

    @cached_property
    def learned(self) -> tuple[str, ...]:
        """What earlier searches taught when this one began, or why nothing: a line for each."""
        return read_learned(self.folder)

    @property
    def record(self) -> Record:
        """What the journal says of the search."""
        return self._read[1]

    @cached_property
    def space(self) -> Space:
        """The search's settled space; before that is recorded, the space that this version would build."""
        return self.record.space() or space_of(self.study, self.facts, self.info).space

    @cached_property
    def pruning(self) -> Pruning:
        """The rungs at which trials are compared, and how many go on."""
        settled = self.record.settled
        if settled is None:
            return choose_pruning(self.study, self.space)
        return Pruning(settled.rungs, settled.factor, settled.why, settled.scheduler)

    @cached_property
    def final(self) -> Final:
        """How the best trials are trained again, and what that costs in words."""
        settled = self.record.settled
        if settled is None:
            return choose_final(self.study, self.pruning)
        return final_of(settled.finalists, self.study, self.pruning)

    @cached_property
    def summary(self) -> Summary:
        """What the search has come to, with the diagnosis of its best trial and the verdicts on the rules."""
        return replace(self.progress, diagnosis=self.diagnosis, verdicts=self.verdicts)

    @cached_property
    def progress(self) -> Summary:
        """The summary without the diagnosis and the verdicts, which take longer."""
        driven, record = self._read
        return summarise(
            record,
            time.time(),
            objective=self.study.objective.metric,
            epochs=self.study.budget.epochs,
            locked=driven,
            sent=read_cursor(self.folder),
        )

    def ended_as(self, state: State) -> Search:
        """Return this search as it will be read once its driver has ended it in this state.

        A driver writes the results first, and the end of the search last.
        """
        search = Search(self.folder)
        search.progress = replace(search.progress, state=state)
        return search

    @property
    def state(self) -> State:
        """How far the search has come, such as `running` or `finished`."""
        return self.progress.state

    @property
    def trials(self) -> tuple[Trial, ...]:
        """The trials in the order of their numbers."""
        return self.progress.trials

    @property
    def best(self) -> Trial | None:
        """The finished trial with the best objective at its last epoch, if any has finished."""
        return self.progress.best

    @cached_property
    def diagnosis(self) -> Diagnosis | None:
        """What the best trial's curves say.

        It is None before a trial has finished, and where this version would train another recipe than the
        recorded one.
        """
        try:
            return diagnosis_of(self.best, self.info) if self.best is not None else None
        except JournalError:
            return None

    @cached_property
    def verdicts(self) -> Verdicts | None:
        """What the trials say of every rule; None before a trial has ended."""
        if not any(trial.ended for trial in self.trials):
            return None
        return verdicts_of(self.progress, self.space)

    @cached_property
    def pruning_audit(self) -> PruningAudit | None:
        """What stopped trials came to that were trained to their end; None where none was."""
        return audit_of(self.progress, self.pruning)

    @cached_property
    def verified(self) -> Verified | None:
        """What `tunebook export --verify` has found of the best trial; None where it has not been asked."""
        kept = read_verification(self.folder)
        return kept if kept is not None and self.best is not None and kept.trial == self.best.id else None

    @cached_property
    def home(self) -> Home:
        """Where the search lives."""
        return home_in(self.folder)

    def trials_frame(self) -> pandas.DataFrame:
        """Return one row per trial: its course, its last epoch's metrics, its values by dotted path."""
        import pandas

        rows = [
            {
                "trial": trial.id,
                "state": trial.state,
                "own": trial.own,
                "first": trial.first.source if trial.first is not None else None,
                "attempts": trial.attempts,
                "epochs": trial.epochs,
                **trial.costs,
                **trial.metrics,
                **trial.values,
            }
            for trial in self.trials
        ]
        return pandas.DataFrame.from_records(rows, index="trial") if rows else pandas.DataFrame()

    @cached_property
    def _measured(self) -> tuple[Facts, DataInfo]:
        return read_facts(self.folder)

    @cached_property
    def _read(self) -> tuple[bool, Record]:
        """Whether a driver is at work, and the record.

        The driver is checked before the journal is read: so a search that ends in between was not killed.
        """
        return is_driven(self.folder), read_record(self.folder)
