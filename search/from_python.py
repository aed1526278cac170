"""Runs a search from Python, with networks and images of a person's own: `tunebook.search`."""

from __future__ import annotations

import signal
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from search.commands.asked import as_typed, resolved_study, settings_of, study_given, tree_with
from search.commands.named import YAML_ENDINGS, check_storage, is_file_or_search, no_new_search
from search.commands.options import AuditPruningOptions, function_of_command, search_folder, within_limits
from search.record.home import Home
from search.running.cluster_token import send_token
from search.study.code import NO_CODE, Code, Ranges, study_with_code
from search.study.study import Study, study_tree_with
from trainable.collector import paused
from trainable.errors import UserError
from trainable.recipe.yamlfile import read_tree

if TYPE_CHECKING:  # torch takes seconds to import
    from search.deciding.forecast import Forecast
    from search.results.search import Search
    from search.running.driver import Closing, Driver
    from trainable.data.assembly import MakeData
    from trainable.models.own import BuildModel
    from trainable.training.extra_metrics import Own


# What ended a search, by how its driver ended
SIGNALS = {"interrupted": signal.SIGINT, "terminated": signal.SIGTERM, "hung up": signal.SIGHUP}


class SearchFailed(Exception):
    """A search has no result, or broke off; `search` is what there is of it."""

    def __init__(self, message: str, search: Search) -> None:
        super().__init__(message)
        self.search = search


@function_of_command
def search(  # noqa: PLR0913 - a person types these by name
    study: Study | Mapping[str, Any] | str | Path,
    *,
    model: BuildModel | None = None,
    data: MakeData | None = None,
    metrics: Own | None = None,
    space: Ranges | None = None,
    settings: Mapping[str, Any] | None = None,
    address: str | None = None,
    download: bool = False,
    resume: bool = True,
) -> Search:
    """Run a search, or go on with it, and return it when it is finished.

    Args:
        study: what `tunebook search` takes, as a Study, a mapping, or the path of a YAML file.
        model: a function, or a class, that builds a network of your own. It is called by name with those of
            `classes`, `channels` and `image_size` that it has parameters for, and with `model.arguments`.
        data: a function that returns the images: a DataSet, or images and labels as two arrays. It is called
            once, here; what it returns is shared with every process that trains.
        metrics: functions of your own, or `trainable.training.extra_metrics.Metric`, by name: each scores the
            probabilities [N, classes] and labels [N] of a whole part. The study's `objective.metric` may name
            one, as `val_NAME`.
        space: ranges beside those of the study, by dotted path: `{"model.arguments.depth": Choice((2, 4))}`.
        settings: values of the study by dotted path, as `--set` gives them: `{"budget.trials": 8}`.
        address: a Ray cluster's, or `auto`; None means this machine.
        download: whether published weights and data sets may be fetched.
        resume: whether a search of the study's name goes on where it stopped, if the study is the same. One
            that is finished is returned at once. A study without a name is always a new search.

    Functions travel to the processes that train, with all that they use of your own modules. Raises
    UserError for what is wrong before any trial starts, SearchFailed if no trial finished or the search broke
    off. After Ctrl-C, SIGTERM or SIGHUP the search is saved, and the signal then does what it does without a
    search: Ctrl-C raises KeyboardInterrupt.
    """
    _check_thread("search")
    code = Code(model, data, metrics or {})
    asked = _asked(study, code, space, settings)
    drives = _driver(address, download, code)
    return _returned(drives.search(asked, again=resume), Home.of(asked).address)


@function_of_command
def forecast(  # noqa: PLR0913 - a person types these by name
    study: Study | Mapping[str, Any] | str | Path,
    *,
    model: BuildModel | None = None,
    data: MakeData | None = None,
    metrics: Own | None = None,
    space: Ranges | None = None,
    settings: Mapping[str, Any] | None = None,
    address: str | None = None,
    download: bool = False,
) -> Forecast:
    """Return what `search` would take with the same arguments: time, GPU-hours, price, disk. Some of its
    recipes are tried for a second; nothing is written but caches.

    Raises UserError for what `search` would refuse, and where the trials' device is not on this machine.
    """
    code = Code(model, data, metrics or {})
    asked = _asked(study, code, space, settings)
    silent = replace(_driver(address, download, code), plan=lambda prepared: ())
    from search.commands.forecast import forecast_of

    return forecast_of(silent.prepare(asked))


@function_of_command
def extend(  # noqa: PLR0913 - a person types these by name
    folder: str | Path,
    trials: int,
    *,
    model: BuildModel | None = None,
    data: MakeData | None = None,
    metrics: Own | None = None,
    address: str | None = None,
    download: bool = False,
) -> Search:
    """Go on with the search in a folder or at a URI, finished or not, with so many more trials; return it
    when they have ended. It is what `tunebook extend` does, with the functions that `search` was given.

    Raises what `search` raises. An extension that is interrupted goes on when the script of `search` runs
    again.
    """
    _check_thread("extend")
    if not isinstance(trials, int) or trials < 1:
        raise UserError(f"extend: expected 1 more trial or more, got {trials!r}")
    where = search_folder(str(folder))
    drives = _driver(address, download, Code(model, data, metrics or {}))
    return _returned(drives.extend(where, trials), str(folder))


@function_of_command
def resume(  # noqa: PLR0913 - a person types these by name
    folder: str | Path,
    *,
    model: BuildModel | None = None,
    data: MakeData | None = None,
    metrics: Own | None = None,
    address: str | None = None,
    download: bool = False,
) -> Search:
    """Go on with the search in a folder or at a URI where it stopped; return it when it is finished.

    It is what `tunebook resume` does, with the functions that `search` was given. Raises what that raises.
    """
    _check_thread("resume")
    where = search_folder(str(folder))
    drives = _driver(address, download, Code(model, data, metrics or {}))
    return _returned(drives.resume(where), str(folder))


@function_of_command
def audit_pruning(
    folder: str | Path, share: float = 0.1, *, address: str | None = None, download: bool = False
) -> Search:
    """Train a share of each rung's stopped trials to their end; return the search, whose `pruning_audit` says
    whether a better one was among them. Raises what `search` raises."""
    _check_thread("audit_pruning")
    options = within_limits(AuditPruningOptions(folder=search_folder(str(folder)), share=share))
    return _returned(_driver(address, download).audit_pruning(options.folder, share), str(folder))


def _asked(
    study: Study | Mapping[str, Any] | str | Path,
    code: Code,
    space: Ranges | None,
    settings: Mapping[str, Any] | None,
) -> Study:
    """Return the resolved study of a person's functions, ranges and settings. A path that is no YAML file
    names images alone."""
    values = settings_of(as_typed(settings))
    match study:
        case Study():
            given: Study | dict[str, Any] = study_given(study, values) if values else study
        case Mapping():
            given = _with_values(study, values, code)
        case _:
            path = str(study)
            if is_file_or_search(path) and Path(path).suffix not in YAML_ENDINGS:
                raise no_new_search(path)
            tree = read_tree(path) if is_file_or_search(path) else {"data": {"path": path}}
            given = _with_values(tree, values, code)
    asked = study_with_code(given, code, space or {})
    check_storage(asked)
    return resolved_study(asked)


def _with_values(tree: Mapping[str, Any], values: Mapping[str, Any], code: Code) -> dict[str, Any]:
    return tree_with(tree, values) if code.model is None else study_tree_with(tree, values)


def _driver(address: str | None, download: bool, code: Code = NO_CODE) -> Driver:
    """Return what drives a search on this machine, or on a cluster, whose token Ray reads when it is
    imported."""
    if address is not None:
        send_token(address)
    with paused():
        from search.commands.guests import driver
    return driver(address=address, may_fetch=download, code=code)


def _check_thread(called: str) -> None:
    if threading.current_thread() is not threading.main_thread():
        raise UserError(f"{called}: call it in the main thread: only there Python can stop at Ctrl-C")


def _returned(ended: Closing, address: str) -> Search:
    """Return the search at an address, unless the driver ended otherwise than finished."""
    from search.results.search import Search

    found = Search(address)
    match ended:
        case "finished":
            return found
        case "interrupted" | "terminated" | "hung up":
            signal.raise_signal(SIGNALS[ended])
            return found
        case "failed" | "broken off":
            reason = found.progress.outcome_reason or "no trial finished"
            raise SearchFailed(f"{found.home.address}: {reason}", found)
