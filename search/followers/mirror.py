"""A copy of the search for optuna-dashboard: `optuna.db`, written in the background and never read back.

It holds the trials that have ended. Losing it, or failing to write it, changes nothing in the search.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never

from search.deciding.sampler import distribution
from search.followers.consumer import Consumer
from search.followers.uri import check_locks_work
from search.record.home import MIRROR_FILE
from search.record.journal import EndEvent, EpochEvent, Event, RetryEvent, SearchEvent, StartEvent, TrialEvent
from search.study import Study
from spaces.domains import Choice, Domain, Float, Integer, Value
from spaces.space import Space

if TYPE_CHECKING:  # Optuna takes 0.4 s to import
    import optuna
    from optuna.trial import FrozenTrial, TrialState

TRIAL = "tunebook.trial"
"""The user attribute that tells the search's number of a trial; Optuna numbers them as they end."""

_logger = logging.getLogger(__name__)


@dataclass
class _Trial:
    """A trial as the events so far tell it."""

    values: Mapping[str, Value]
    queued: float
    scores: dict[int, float] = field(default_factory=dict)
    """The objective by epoch; a diverged epoch has none."""
    started: float | None = None


class Mirror(Consumer):
    """Copies the trials that have ended into `optuna.db`, each once, however often the journal is read.

    `study` and `space` are the search's. A delivery that fails is tried again, and one warning is logged.
    """

    receiver = MIRROR_FILE

    def __init__(self, folder: Path, study: Study, space: Space) -> None:
        super().__init__(folder)
        self._file = folder / MIRROR_FILE
        self._study = study
        self._space = space
        self._domains = {each.name: each.domain for each in space.dimensions}
        self._trials: dict[int, _Trial] = {}
        self._ended: dict[int, EndEvent] = {}
        """Not copied yet."""
        self._copy: optuna.Study | None = None
        self._copied: set[int] = set()
        self._has_told = False

    def _open(self) -> None:
        if self._copy is not None:
            return
        check_locks_work(self._file.absolute(), str(self._file))
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)  # it announces every study that it creates
        copy = optuna.create_study(
            storage=f"sqlite:///{self._file.absolute()}",
            study_name=self._study.name,
            direction="maximize" if self._study.objective.direction == "max" else "minimize",
            load_if_exists=True,
        )
        self._copied = {int(trial.user_attrs[TRIAL]) for trial in copy.get_trials(deepcopy=False)}
        self._copy = copy

    def _release(self) -> None:
        self._copy = None

    def _tell(self, error: str) -> None:
        if not self._has_told:
            _logger.warning("%s is not up to date: %s", self._file, error)
        self._has_told = True

    def _take(self, events: Sequence[Event]) -> int:
        before = len(self._ended)
        for event in events:
            self._apply(event)
        return len(self._ended) - before

    def _apply(self, event: Event) -> None:
        match event:
            case TrialEvent():
                self._trials[event.trial] = _Trial(event.values, event.time)
            case StartEvent():
                trial = self._trials[event.trial]
                trial.started = trial.started or event.time
            case EpochEvent():
                if not event.diverged:
                    score = event.metrics[self._study.objective.metric]
                    self._trials[event.trial].scores[event.epoch] = score
            case EndEvent():
                if event.trial not in self._copied:
                    self._ended[event.trial] = event
            case SearchEvent() | RetryEvent():
                pass
            case _:
                assert_never(event)

    def _deliver(self) -> None:
        if self._copy is None:
            raise RuntimeError("not open")
        for number in sorted(self._ended):
            self._copy.add_trial(self._frozen(self._trials[number], self._ended[number]))
            self._copied.add(number)
            del self._ended[number]

    def _frozen(self, trial: _Trial, end: EndEvent) -> FrozenTrial:
        """The trial as Optuna's record, told as the sampler tells it, with values outside their domains."""
        from optuna.trial import FrozenTrial

        named = self._space.named(trial.values)
        domains = {name: widened(self._domains[name], value) for name, value in named.items()}
        inside = {name: domain for name, domain in domains.items() if domain is not None}
        state, scores = self._told(trial, end)
        return FrozenTrial(
            number=-1,
            trial_id=-1,
            state=state,
            value=scores[max(scores)] if end.state == "finished" else None,
            datetime_start=datetime.fromtimestamp(trial.started or trial.queued),
            datetime_complete=datetime.fromtimestamp(end.time),
            params={name: named[name] for name in inside},
            distributions={name: distribution(domain) for name, domain in inside.items()},
            user_attrs=_attributes(end, {name: named[name] for name in named if name not in inside}),
            system_attrs={},
            intermediate_values=dict(scores),
        )

    def _told(self, trial: _Trial, end: EndEvent) -> tuple[TrialState, dict[int, float]]:
        """Optuna's state, and the values by epoch that go with it."""
        from optuna.trial import TrialState

        match end.state:
            case "finished":
                return TrialState.COMPLETE, trial.scores
            case "stopped":
                return TrialState.PRUNED, trial.scores
            case "diverged":
                return TrialState.PRUNED, {}
            case "failed":
                return TrialState.FAIL, trial.scores


def widened(domain: Domain, value: Value) -> Domain | None:
    """The domain, stretched to hold the value; None where no such domain does.

    The documents' own recipe may lie outside what is searched, and Optuna takes no value outside its
    distribution; it takes ranges that differ from trial to trial, but no differing options.
    """
    if value in domain:
        return domain
    match domain, value:
        case Float(log=log), int() | float() if value > 0 or not log:
            return Float(min(domain.low, value), max(domain.high, value), log)
        case Integer(log=log), int() if value > 0 or not log:
            return Integer(min(domain.low, value), max(domain.high, value), log)
        case Float() | Integer() | Choice(), _:
            return None
        case _:
            assert_never(domain)


def _attributes(end: EndEvent, outside: Mapping[str, Value]) -> dict[str, Any]:
    attributes: dict[str, Any] = {TRIAL: end.trial, "tunebook.outcome": end.state}
    if end.reason is not None:
        attributes["tunebook.reason"] = end.reason
    return {**attributes, **{f"outside.{name}": value for name, value in outside.items()}}
