"""The runs of one search in MLflow, found or created, never twice; their changes, sent in few requests.

Only MlflowClient is used, so MLflow's global state, which a person may use, does not change. MLflow takes 2 s
to import: only the tracker's background thread imports this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, TypeVar

from mlflow import MlflowClient
from mlflow.entities import DatasetInput, Metric, Param, RunTag, ViewType
from mlflow.exceptions import MlflowException
from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor
from requests import HTTPError

from search.followers.consumer import error_line
from search.followers.database import make_database, refuse_deleted, refuse_foreign
from search.followers.run_updates import SEARCH_ID, TRIAL, RunOwner, RunUpdate
from search.followers.uri import database_file
from trainable.errors import UserError

# the time between two samples, MLflow's own default; MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL changes it
SAMPLE_SECONDS = 10.0
PARENT = "mlflow.parentRunId"
METRICS_IN_A_BATCH = 800
# MLflow accepts 1,000 metrics, 100 params and 100 tags at once, but no more than 1,000 in all
TAGS_IN_A_BATCH = 100
RUNS_IN_A_PAGE = 1000
# what a server answers to a request that it will never accept; all other errors may pass, a wrong password
# too
REFUSALS = (
    "BAD_REQUEST",
    "INVALID_PARAMETER_VALUE",
    "MALFORMED_REQUEST",
    "RESOURCE_ALREADY_EXISTS",
    "RESOURCE_DOES_NOT_EXIST",
)
MAY_PASS = (401, 403, 408, 429)  # HTTP's client errors that are not about what was sent
Item = Metric | Param | RunTag
Some = TypeVar("Some")
# without this tag MLflow's pages open on traces of language models, of which there are none
EXPERIMENT_TAGS = {"mlflow.experimentKind": "custom_model_development"}


class RunStore:
    """The runs of the search `search_id`, in the experiment of this name, which is created if missing.

    `runs` holds the ids of those that exist; `client` is MLflow's. `refuse(item, why)` is called for each
    item that MLflow will never accept; every other failure is raised, and the call may then be repeated by
    another RunStore.
    """

    def __init__(
        self,
        uri: str,
        experiment: str,
        artifacts: str | None,
        search_id: str,
        refuse: Callable[[str, str], None],
    ) -> None:
        if (file := database_file(uri)) is not None:
            refuse_foreign(file)
            make_database(file)
        self.client = MlflowClient(tracking_uri=uri)
        self._refuse = refuse
        self._search_id = search_id
        self.experiment_id = self._find_experiment(experiment, artifacts)
        self._steps: dict[str, dict[str, int]] = {}
        self._params: dict[str, frozenset[str]] = {}
        self.runs: dict[RunOwner, str] = self._find_runs()

    def create(self, run: RunOwner, run_name: str, began: int, tags: Mapping[str, str]) -> str:
        """Create a run and return its id; a trial's run is a child of the search's own, which must exist."""
        own = {SEARCH_ID: self._search_id}
        if run is not None:
            own |= {TRIAL: str(run), PARENT: self.runs[None]}
        created = self.client.create_run(self.experiment_id, began, {**tags, **own}, run_name)
        self.runs[run] = str(created.info.run_id)
        return self.runs[run]

    def send(self, run: RunOwner, update: RunUpdate) -> None:
        """Send a run its params, tags and metrics, and then its status; of a trial's epochs only new ones.

        An epoch may have come from a machine that was lost before its journal had reached the search's store:
        then it is in this journal again, at another time, and MLflow would hold it twice.
        """
        run_id = self.runs[run]
        steps = self._steps.get(run_id, {}) if run is not None else {}
        points = [point for point in update.points if point.step > steps.get(point.key, -1)]
        known = self._params.get(
            run_id, frozenset()
        )  # a param never changes; an earlier version's may differ
        params = {path: value for path, value in update.params.items() if path not in known}
        for items in _batches(replace(update, points=points, params=params)):
            self._log(run, run_id, items)
        if update.status is not None:
            status, since = update.status
            with_end = status != "RUNNING"
            self._unless_refused(
                f"{_called(run)}: status {status}",
                lambda: (
                    self.client.set_terminated(run_id, status, since)
                    if with_end
                    else self.client.update_run(run_id, status)
                ),
            )

    def log_data(self, run: RunOwner, data: Callable[[], DatasetInput]) -> None:
        """Say which images a run was trained on; twice is as good as once."""
        run_id = self.runs[run]
        self.offer(f"{_called(run)}: the data set", lambda: self.client.log_inputs(run_id, [data()]))

    def offer(self, what: str, call: Callable[[], object]) -> None:
        """Do what servers of older versions do not know; they refuse it."""
        try:
            self._store(what, call)
        except MlflowException as error:
            if error.error_code != "ENDPOINT_NOT_FOUND":
                raise
            self._refuse(what, "the server does not know such a request (404): its MLflow is too old")

    def save_view(self, key: str, view: str) -> None:
        """Save how MLflow's pages show the search, as a tag of the experiment."""
        what = "the view of MLflow's pages"
        self._unless_refused(what, lambda: self.client.set_experiment_tag(self.experiment_id, key, view))

    def store_text(self, run: RunOwner, text: str, name: str) -> None:
        """Store a text as a file of the run."""
        self._store(f"{_called(run)}: {name}", lambda: self.client.log_text(self.runs[run], text, name))

    def store_file(self, path: Path) -> None:
        """Store a copy of a file with the search's own run."""
        self._store(
            f"{_called(None)}: {path.name}", lambda: self.client.log_artifact(self.runs[None], str(path))
        )

    def _find_experiment(self, name: str, artifacts: str | None) -> str:
        experiment = self.client.get_experiment_by_name(name)
        if experiment is None:
            try:
                return str(self.client.create_experiment(name, artifacts, EXPERIMENT_TAGS))
            except MlflowException as error:
                if error.error_code != "RESOURCE_ALREADY_EXISTS":
                    raise
                experiment = self.client.get_experiment_by_name(name)  # another search has just created it
        if experiment is None:
            raise UserError(f"MLflow's experiment {name!r} can be neither created nor found")
        refuse_deleted(name, experiment.experiment_id, experiment.lifecycle_stage)
        return str(experiment.experiment_id)

    def _find_runs(self) -> dict[RunOwner, str]:
        """Return the runs by trial, deleted ones too: what a person deleted is not created again."""
        runs: dict[RunOwner, str] = {}
        for run in sorted(self._pages(), key=lambda run: run.info.lifecycle_stage == "deleted"):
            trial, run_id = run.data.tags.get(TRIAL), str(run.info.run_id)
            runs.setdefault(None if trial is None else int(trial), run_id)
            self._params[run_id] = frozenset(run.data.params)
            self._steps[run_id] = {metric.key: metric.step for metric in run.data.to_proto().metrics}
        return runs

    def _pages(self) -> Iterator[Any]:
        token: str | None = None
        while token != "":
            page = self.client.search_runs(
                [self.experiment_id],
                f"tags.`{SEARCH_ID}` = '{self._search_id}'",
                ViewType.ALL,
                RUNS_IN_A_PAGE,
                ["attributes.start_time ASC"],
                token,
            )
            yield from page
            token = page.token or ""

    def _log(self, run: RunOwner, run_id: str, items: list[Item]) -> None:
        """Log items; if a batch is refused, log each half by itself, down to the item that is at fault."""
        try:
            self.client.log_batch(
                run_id,
                metrics=[item for item in items if isinstance(item, Metric)],
                params=[item for item in items if isinstance(item, Param)],
                tags=[item for item in items if isinstance(item, RunTag)],
            )
        except MlflowException as error:
            if not is_refusal(error):
                raise
            if len(items) == 1:
                item = f"{type(items[0]).__name__.lower()} {items[0].key}"
                self._refuse(f"{_called(run)}: {item}", error_line(error))
            elif self._is_gone(run_id):
                self._refuse(f"{_called(run)}: everything", "the run is deleted")
            else:
                middle = len(items) // 2
                self._log(run, run_id, items[:middle])
                self._log(run, run_id, items[middle:])

    def _is_gone(self, run_id: str) -> bool:
        try:
            return bool(self.client.get_run(run_id).info.lifecycle_stage == "deleted")
        except MlflowException as error:
            if not is_refusal(error):
                raise
            return True

    def _store(self, what: str, call: Callable[[], object]) -> None:
        """Store a file; refuse it where it can never be stored.

        It does the same as `_unless_refused`, but other libraries store files, and their errors count as
        refusals too.
        """
        try:
            self._unless_refused(what, call)
        except (MlflowException, OSError):
            raise
        except Exception as error:
            # such as a cloud's library that is not installed, or credentials that this machine lacks
            self._refuse(what, error_line(error))

    def _unless_refused(self, what: str, call: Callable[[], object]) -> None:
        try:
            call()
        except Exception as error:
            if not is_refusal(error):
                raise
            self._refuse(what, error_line(error))


class SystemMetrics:
    """Samples of processors, memory, disk, network and GPUs of the driver's machine, while its run goes on.

    MLflow's own monitor takes them. They are not in the journal, so they are sent once or never: those of a
    time without a server are lost.
    """

    def __init__(self, uri: str, run_id: str) -> None:
        self._uri, self._run_id = uri, run_id
        self._monitor: SystemMetricsMonitor | None = None

    def ensure(self) -> None:
        """Start the monitor, or again where it ended since the server did not answer."""
        thread = self._monitor._process if self._monitor is not None else None
        if thread is None or not thread.is_alive():
            self._monitor = SystemMetricsMonitor(
                self._run_id, SAMPLE_SECONDS, resume_logging=True, tracking_uri=self._uri
            )
            self._monitor.start()

    def close(self) -> None:
        """Stop the monitor, and send what it has measured."""
        if self._monitor is not None:
            self._monitor.finish()


def is_refusal(error: Exception) -> bool:
    """Say whether the server has understood a request and will never accept it."""
    if isinstance(error, MlflowException):
        return error.error_code in REFUSALS
    if isinstance(error, HTTPError) and error.response is not None:
        return 400 <= error.response.status_code < 500 and error.response.status_code not in MAY_PASS
    return False


def _batches(update: RunUpdate) -> Iterator[list[Item]]:
    """Yield a change's params, tags and metrics in lists that MLflow accepts at once."""
    params = _chunks([Param(key, value) for key, value in update.params.items()], TAGS_IN_A_BATCH)
    tags = _chunks([RunTag(key, value) for key, value in update.tags.items()], TAGS_IN_A_BATCH)
    metrics = _chunks([Metric(*point) for point in update.points], METRICS_IN_A_BATCH)
    for chunks in zip_longest(params, tags, metrics, fillvalue=()):
        yield list(chain.from_iterable(chunks))


def _chunks(items: list[Some], size: int) -> list[list[Some]]:
    return [items[start : start + size] for start in range(0, len(items), size)]


def _called(run: RunOwner) -> str:
    return "the search" if run is None else f"trial {run}"
