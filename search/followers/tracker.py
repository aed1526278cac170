"""A search in MLflow, sent in the background: a parent run, and a run below it for each trial.

The journal is the queue and `mlflow.json` the cursor into it: the cursor has not passed an event that could
not be sent. Every message may be sent twice: runs are found by their tags before any is created, and a metric
with the same key, time and step is one point of its history.
"""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from search.followers.attachments import Attachments, Contents
from search.followers.conclusions import Conclusion
from search.followers.consumer import Backlog, Consumer
from search.followers.database import quiet_mlflow
from search.followers.run_updates import (
    LONGEST_PARAM,
    NOTE,
    Outbox,
    RunOwner,
    clip,
    run_name,
    written,
)
from search.followers.uri import artifact_location, readable, without_password
from search.record.cursor import Cursor, hold_lock, read_cursor, write_cursor
from search.record.home import Home
from search.record.journal import Event
from search.record.trials import Trial
from search.study import STUDY_FILE, Study
from trainable.collector import paused
from trainable.data import DataInfo
from trainable.errors import UserError
from trainable.recipe.trees import leaves

if TYPE_CHECKING:  # MLflow and torch take 2 s each to import
    from torch.export import ExportedProgram

    from search.followers.mlflow_runs import RunStore, SystemMetrics


class Tracker(Consumer):
    """The consumer that sends a search to MLflow.

    `study` is the resolved one, with an absolute `tracking.uri`. `recipe_text`, `conclude`, `info` and
    `program` are the `Contents` of its attachments; they are called in the background thread. One process at
    a time sends: another one's delivery fails and says so.
    """

    receiver, is_paced = "MLflow", True

    def __init__(
        self,
        home: Home,
        study: Study,
        recipe_text: Callable[[Trial], str],
        conclude: Callable[[], Conclusion] | None = None,
        info: Callable[[], DataInfo] | None = None,
        program: Callable[[], ExportedProgram] | None = None,
    ) -> None:
        super().__init__(home.folder)
        if study.tracking.uri is None:
            raise UserError(
                f"{home.folder / STUDY_FILE}: tracking.uri: expected where the runs are, such as "
                "sqlite:////PATH/mlflow.db, got none; a search writes it when it starts"
            )
        self._home, self._folder = home, home.folder
        self._study = study
        self._attachments = Attachments(
            home, study, self._refuse, Contents(recipe_text, conclude, info, program)
        )
        address = without_password(study.tracking.uri)
        self._fresh = Cursor(uri=address, experiment=study.experiment)
        self._cursor = self._saved = self._fresh
        self._outbox = self._empty()
        self._refusals: dict[str, str] = {}
        self._store: RunStore | None = None
        self._system: SystemMetrics | None = None
        self._lock: int | None = None
        self._closes_orphans = False

    def sync(self) -> Backlog:
        """Send everything there is, now; runs that a killed driver left open are closed as interrupted.

        The caller must have the folder's lock: no driver is at work then.
        """
        self._closes_orphans = True
        return super().sync()

    def backlog(self) -> Backlog:
        cursor = self._cursor
        return Backlog(self.receiver, self._undelivered, self.problem, cursor.refused, cursor.refusal)

    def _open(self) -> None:
        if self._lock is not None:
            return
        self._lock = hold_lock(self._folder)
        saved = read_cursor(self._folder)
        here = (self._fresh.uri, self._fresh.experiment)
        self._start_over(saved if saved and (saved.uri, saved.experiment) == here else self._fresh)

    def _release(self) -> None:
        self._store = None
        if self._system is not None:
            self._system.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _report_failure(self, error: str) -> None:
        """Do nothing: the Backlog at the end is enough."""

    def _read_events(self, events: Sequence[Event]) -> int:
        for event in events:
            self._outbox.apply(event)
            if event.sequence < self._cursor.events:
                self._outbox.empty()
        return sum(event.sequence >= self._cursor.events for event in events)

    def _deliver(self) -> None:
        if self._outbox.record.search_id is None:
            return
        try:
            store = self._store or self._connect(self._outbox.record.search_id)
            self._send(store)
            self._measure_system(store)
            record = self._outbox.record
            sent = {"events": self._events_read, "seconds": record.seconds(record.latest)}
            self._cursor = self._cursor.model_copy(update=sent)
            self._save()
        except Exception:
            self._save()
            self._store = None  # so that the runs are looked up again before any is created
            raise

    def _connect(self, search_id: str) -> RunStore:
        self._store = store = open_store(self._study, search_id, self._refuse)
        if self._cursor.events and None not in store.runs:
            self._start_over(self._fresh)  # MLflow has lost the search, or is another one: send everything
            self._read()
        return store

    def _send(self, store: RunStore) -> None:
        """Send everything in the outbox: trials first, as the search ends after them; files last.

        Files may go to another server than numbers; where that one cannot be reached, the numbers have
        arrived.
        """
        if self._closes_orphans:
            self._outbox.interrupt()
        updates, recipes = self._outbox.updates, self._outbox.recipes
        for run in [None, *sorted(run for run in updates if run is not None)]:
            self._ensure(store, run)
        for run in sorted(updates, key=lambda run: (run is None, run)):
            store.send(run, updates[run])
            del updates[run]
        for trial in sorted(recipes):
            self._attachments.send_of_trial(store, recipes[trial])
            del recipes[trial]
        sent = dict(self._cursor.files)
        try:
            self._attachments.send(store, self._outbox, sent)
        finally:
            self._cursor = self._cursor.model_copy(update={"files": sent})

    def _measure_system(self, store: RunStore) -> None:
        """Measure this machine from now on, if the study says so and a driver is at work here."""
        if not self._study.tracking.system_metrics or self._closes_orphans or self._outbox.is_over:
            return
        if self._system is None:
            from search.followers.mlflow_runs import SystemMetrics

            self._system = SystemMetrics(str(self._study.tracking.uri), store.runs[None])
        self._system.ensure()

    def _ensure(self, store: RunStore, run: RunOwner) -> None:
        if run in store.runs:
            return
        began = self._outbox.began(run)
        if run is None:
            text = self._attachments.first_note(store.experiment_id, str(self._outbox.record.search_id))
            store.create(run, self._outbox.record.name, began, {**_source_tags(), NOTE: text})
        else:
            store.create(run, run_name(self._outbox.record.trials[run]), began, _source_tags())

    def _refuse(self, item: str, why: str) -> None:
        """Note an item that MLflow will never accept; one that is refused again counts once."""
        new = item not in self._refusals
        self._refusals[item] = why
        update = {"refused": self._cursor.refused + new, "refusal": f"{item}: {why}"}
        self._cursor = self._cursor.model_copy(update=update)

    def _start_over(self, cursor: Cursor) -> None:
        """Read the journal from its beginning: the events before the cursor are known, the rest is sent."""
        self._cursor = cursor
        self._refusals = {}
        self._outbox = self._empty()
        self._rewind()

    def _empty(self) -> Outbox:
        study = self._study
        fields = leaves(readable(study).model_dump(mode="json"))
        return Outbox(
            study.objective.metric,
            study.budget.epochs,
            where=str(self._journal),
            params={
                path: clip(written(value), LONGEST_PARAM)
                for path, value in fields
                if value not in (None, [], "")
            },
            every_metric=study.tracking.metrics == "all",
        )

    def _save(self) -> None:
        if self._store is not None:
            runs = self._store.runs
            update = {
                "experiment_id": self._store.experiment_id,
                "parent_run_id": runs.get(None),
                "run_ids": {run: run_id for run, run_id in runs.items() if run is not None},
            }
            self._cursor = self._cursor.model_copy(update=update)
        if self._cursor != self._saved:
            write_cursor(self._folder, self._cursor)
            self._saved = self._cursor


def open_store(study: Study, search_id: str, refuse: Callable[[str, str], None]) -> RunStore:
    """Return the search's runs in the study's MLflow; the first call in a process imports MLflow."""
    quiet_mlflow()
    with paused():
        from search.followers.mlflow_runs import RunStore

    uri = str(study.tracking.uri)
    return RunStore(uri, study.experiment, artifact_location(uri, study.storage), search_id, refuse)


def _source_tags() -> dict[str, str]:
    tags = {"mlflow.source.name": "tunebook", "mlflow.source.type": "LOCAL"}
    with suppress(KeyError, OSError):  # a container's user may have no name
        tags["mlflow.user"] = getpass.getuser()
    return tags
