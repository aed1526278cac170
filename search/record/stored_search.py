"""Reads a search that exists, from its folder or its URI: what was asked, measured and recorded."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Self

from search.record.code import CodeRecord
from search.record.cursor import read_cursor
from search.record.folder import (
    Caution,
    Verified,
    home_in,
    is_driven,
    read_code,
    read_facts,
    read_findings,
    read_learned,
    read_record,
    read_search,
    read_verification,
)
from search.record.home import Home
from search.record.record import Record
from search.record.storage import local_folder
from search.record.summary import State, Summary, summarise
from search.record.trials import Trial
from search.study import Study
from spaces.facts import Facts
from trainable.data import DataInfo
from trainable.terminal import program_name

if TYPE_CHECKING:
    import pandas


class StoredSearch:
    """A search as its folder or its URI has it; each part is read when first asked for, and then remembered.

    It decides and judges nothing: `search.learning.search.Search` does. While a search goes on, open it again
    to see what is new. Raises UserError where there is no search, JournalError where its journal is damaged.
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
    def findings(self) -> tuple[Caution, ...]:
        """What was found about the images when the search began, and by `tunebook check` since then."""
        return self._findings or ()

    @property
    def images_checked(self) -> bool:
        """Whether it is recorded that somebody has looked at the images."""
        return self._findings is not None

    @property
    def record(self) -> Record:
        """The journal, folded."""
        return self._read[1]

    @cached_property
    def progress(self) -> Summary:
        """What the search has come to, without what the trials say of the best one and of the rules."""
        driven, record = self._read
        found = summarise(
            record,
            time.time(),
            objective=self.study.objective.metric,
            epochs=self.study.budget.epochs,
            locked=driven,
            sent=read_cursor(self.folder),
        )
        # the journal has the name under which the search began; it may have been renamed since
        return replace(found, search=self.study.name or found.search) if found.search else found

    def ended_as(self, state: State, reason: str | None = None) -> Self:
        """Return this search as it will be read once its driver has ended it in this state, for a reason.

        A driver writes the results first, and the end of the search last.
        """
        search = type(self)(self.folder)
        search.progress = replace(search.progress, state=state, outcome_reason=reason)
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
    def verified(self) -> Verified | None:
        """What `tunebook export --verify` has found of the best trial; None where it has not been asked."""
        kept = read_verification(self.folder)
        return kept if kept is not None and self.best is not None and kept.trial == self.best.id else None

    @cached_property
    def home(self) -> Home:
        """Where the search lives."""
        return home_in(self.folder)

    @property
    def how_to_go_on(self) -> str:
        """How the search is resumed where it was interrupted, in words."""
        if self.code is not None:
            return self.code.again
        return f"go on with:\n  {program_name()} resume {quote(self.home.address)}"

    def trials_frame(self) -> pandas.DataFrame:
        """Return one row per trial: its state, attempts and epochs, what it trains, its last metrics, its
        values by dotted path."""
        import pandas

        rows = [
            {
                "trial": trial.id,
                "state": trial.state,
                "own": trial.own,
                "first": trial.first.source if trial.first is not None else None,
                "attempts": trial.attempts,
                "epochs": trial.epochs,
                "sentence": trial.sentence,
                **trial.costs,
                **trial.metrics,
                **trial.values_by_name,
            }
            for trial in self.trials
        ]
        return pandas.DataFrame.from_records(rows, index="trial") if rows else pandas.DataFrame()

    @cached_property
    def _measured(self) -> tuple[Facts, DataInfo]:
        return read_facts(self.folder)

    @cached_property
    def _findings(self) -> tuple[Caution, ...] | None:
        return read_findings(self.folder)

    @cached_property
    def _read(self) -> tuple[bool, Record]:
        """Whether a driver is at work, and the record.

        The driver is checked before the journal is read: so a search that ends in between was not killed.
        """
        return is_driven(self.folder), read_record(self.folder)
