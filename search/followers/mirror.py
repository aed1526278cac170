"""A copy of the search for optuna-dashboard: `optuna.db`, written in the background and never read back.

It holds the trials that have ended. Losing it, or failing to write it, changes nothing in the search.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from search.followers.consumer import Consumer
from search.followers.database import refuse_damaged
from search.followers.run_updates import OUTCOME, REASON, TRIAL
from search.followers.uri import check_locks_work
from search.record.home import EVENTS_FILE, MIRROR_FILE
from search.record.journal import EndEvent, Event
from search.record.record import Record
from search.record.trials import Trial
from search.study import Study
from spaces.space import Space

if TYPE_CHECKING:  # Optuna takes 0.4 s to import
    import optuna
    from optuna.trial import FrozenTrial

OTHER_MIRROR = "delete it: `tunebook sync DIR` writes it anew"

_logger = logging.getLogger(__name__)


class Mirror(Consumer):
    """A copy in `optuna.db` of the trials that have ended, each once, however often the journal is read.

    Optuna numbers trials as they end; the search's number is a user attribute, named as in MLflow's runs.
    `study` and `space` are the search's. A delivery that fails is tried again, and one warning is logged.
    """

    receiver, is_paced = MIRROR_FILE, True

    def __init__(self, folder: Path, study: Study, space: Space) -> None:
        super().__init__(folder)
        self._file = folder / MIRROR_FILE
        self._study = study
        self._space = space
        self._domains = {each.name: each.domain for each in space.dimensions}
        self._record = Record(where=str(folder / EVENTS_FILE))
        self._ended: dict[int, EndEvent] = {}  # the ends that are not copied yet
        self._copy: optuna.Study | None = None
        self._copied: set[int] = set()
        self._has_warned = False

    def _open(self) -> None:
        if self._copy is not None:
            return
        check_locks_work(self._file.absolute(), str(self._file))
        refuse_damaged(self._file, OTHER_MIRROR)
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

    def _report_failure(self, error: str) -> None:
        if not self._has_warned:
            _logger.warning("%s is not up to date: %s", self._file, error)
        self._has_warned = True

    def _read_events(self, events: Sequence[Event]) -> int:
        before = len(self._ended)
        for event in events:
            self._record.apply(event)
            if not isinstance(event, EndEvent):
                continue
            if event.trial in self._copied or self._record.trials[event.trial].is_repeat:
                self._record.forget_epochs(event.trial)
            else:
                self._ended[event.trial] = event
        return len(self._ended) - before

    def _deliver(self) -> None:
        if self._copy is None:
            raise RuntimeError("not open")
        for number in sorted(self._ended):
            self._copy.add_trial(self._frozen(self._record.trials[number], self._ended[number]))
            self._copied.add(number)
            self._record.forget_epochs(number)
            del self._ended[number]

    def _frozen(self, trial: Trial, end: EndEvent) -> FrozenTrial:
        from search.deciding.optuna_trials import TrialOutcome, optuna_trial

        attributes = {TRIAL: end.trial, OUTCOME: end.state, REASON: end.reason}
        return optuna_trial(
            end.trial,
            self._space.named(trial.values),
            self._domains,
            TrialOutcome(
                end=end.state,
                scores=trial.scores(self._study.objective.metric),
                excesses=self._record.excesses(end.trial),
                started=trial.started or trial.queued,
                ended=end.time,
                attributes={key: value for key, value in attributes.items() if value is not None},
            ),
            outside="widen the range",
        )
