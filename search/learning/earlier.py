"""Opens the earlier searches that a study learns from, and says what their trials show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from search.learning.lessons import LEARN_FROM
from search.learning.standings import LEAST_TRIALS, positions
from search.record.folder import read_facts, read_record, read_search
from search.record.home import Home
from search.record.record import Record
from search.record.storage import local_folder
from search.study import Study, StudyError
from search.study.address import absolute
from spaces.domains import Values
from spaces.facts import Facts
from spaces.space import Dimension, Space
from trainable.errors import Fault, UserError
from trainable.files.paths import without_tilde
from trainable.files.store import is_uri
from trainable.recipe.metrics import Mode

if TYPE_CHECKING:  # SciPy takes a second to import
    from search.deciding.observations import Observation
    from search.learning.optimum import Optimum


@dataclass(frozen=True)
class Earlier:
    """An earlier search: its facts, its settled space and its record."""

    address: str
    facts: Facts
    space: Space
    record: Record
    metric: str
    mode: Mode

    @property
    def name(self) -> str:
        """The search's name."""
        return self.record.name

    @cached_property
    def observed(self) -> list[Observation]:
        """Its trials that are points of its space and have a result: a score, or an end that says as much
        (diverged, infeasible)."""
        from search.deciding.cube import Cube
        from search.deciding.observations import Observations

        observations = Observations(Cube(self.space), self.mode)
        for trial in self.record.trials:
            if trial.is_repeat or positions(self.space, trial) is None:
                continue
            observations.add(trial.id, trial.values)
            excesses = self.record.excesses(trial.id)
            observations.tell(trial.id, trial.end or "stopped", trial.scores(self.metric), excesses)
        return observations.observed

    @cached_property
    def optima(self) -> Mapping[str, Optimum]:
        """Where the best value of each dimension may lie, by its name; empty after too few trials, and where
        nothing varies."""
        from search.learning.optimum import optima

        teaches = self.space.dimensions and len(self.observed) >= LEAST_TRIALS
        return optima(self.space, self.observed) if teaches else {}

    def best_values(self, dimension: Dimension) -> Values | None:
        """Return the values of the best trial that has a dimension; None where none has."""
        for each in sorted(self.observed, key=lambda observed: observed.rank):
            values = self.record.trials[each.trial].values
            if dimension.name in self.space.named(values):
                return values
        return None


def earlier_searches(study: Study) -> tuple[Earlier, ...]:
    """Return the searches that a study learns from, in its order; a search in a store is copied first.

    Raises StudyError with every fault: a folder that is no search, a journal that is damaged or has another
    format, a search without an ended trial or with another objective, the search itself, and one that is
    named twice.
    """
    own = absolute(Home.of(study).address) if study.name is not None else None
    found: dict[str, Earlier] = {}
    faults: list[Fault] = []
    for at, address in enumerate(study.space.learn_from):
        where = f"{LEARN_FROM}.{at}"
        if absolute(address) == own:
            faults.append(Fault(where, f"{address}: is this search itself; leave it out"))
            continue
        try:
            earlier = _opened(address)
        except UserError as error:
            faults.append(Fault(where, str(error)))
            continue
        if fault := _objective_fault(earlier, study):
            faults.append(Fault(where, f"{address}: {fault}"))
        if (twice := found.setdefault(str(earlier.record.search_id), earlier)) is not earlier:
            faults.append(Fault(where, f"{address}: is the search {twice.address} again; leave it out"))
    if faults:
        raise StudyError(faults)
    return tuple(found.values())


def _opened(address: str) -> Earlier:
    """Return a search. Raises UserError where there is none, and where no trial of it has ended."""
    folder = local_folder(address) if is_uri(address) else without_tilde(address)
    if folder.is_file():
        raise UserError(f"{address}: is a file; give a search's folder, or write a recipe in first")
    if not folder.is_dir():
        raise UserError(f"{address}: no such folder")
    study, record = read_search(folder), read_record(folder)
    facts, _ = read_facts(folder)
    space, settled = record.space(), record.settled
    if space is None or settled is None or not any(each.ended for each in record.trials):
        raise UserError(f"{address}: no trial of this search has ended, so there is nothing to learn")
    metric = settled.objective
    return Earlier(address, facts, space, record, metric, settled.mode or study.objective.direction)


def _objective_fault(earlier: Earlier, study: Study) -> str | None:
    ours, theirs = (
        f"{study.objective.metric} ({study.objective.direction})",
        f"{earlier.metric} ({earlier.mode})",
    )
    if ours == theirs:
        return None
    return f"its objective is {theirs}, that of this study is {ours}: its trials say nothing of that"
