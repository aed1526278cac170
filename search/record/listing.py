"""The searches of one storage, each in a line: what it learned from, how far it is, and its best score."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from search.record.home import Home, names_below
from search.record.stored_search import StoredSearch
from search.record.summary import State, Summary
from search.study import STUDY_FILE
from trainable.diagnosis import image_interval
from trainable.errors import UserError
from trainable.files.store import Store, is_uri


@dataclass(frozen=True)
class ListedSearch:
    """One search of a storage. What its folder does not tell is None; `fault` says why it cannot be read."""

    name: str
    address: str  # its folder or URI
    data: str | None = None
    state: State | None = None
    trials: int = 0  # that have ended, in whichever way
    planned: int | None = None  # the trials of its budget
    metric: str | None = None
    best: float | None = None  # the score of its best trial, or what its finalists' runs estimate
    interval: tuple[float, float] | None = None  # the 95 % interval of that
    began: float | None = None  # seconds since 1970
    fault: str | None = None

    def tree(self) -> dict[str, Any]:
        """Return the same as plain data."""
        return asdict(self)


def searches_in(storage: str) -> list[ListedSearch]:
    """Return the searches directly below a folder or a URI, the latest first.

    One that is damaged is listed with its fault. Raises UserError where there is no such folder, StoreError
    where a store does not answer.
    """
    if not is_uri(storage) and not Path(storage).is_dir():
        raise UserError(f"{storage}: no such folder; expected one that holds searches")
    listed = [_listed(name, address) for name, address in _addresses(storage)]
    return sorted(listed, key=lambda each: (-(each.began or 0.0), each.name))


def _addresses(storage: str) -> Iterator[tuple[str, str]]:
    for name in names_below(storage):
        if is_uri(storage):
            folder = Store(storage).at(name)
            if STUDY_FILE in folder.names():
                yield name, folder.uri
        elif (Path(storage) / name / STUDY_FILE).is_file():
            yield name, str(Path(storage) / name)


def _listed(name: str, address: str) -> ListedSearch:
    shown = str(Home.at(address).address)
    try:
        search = StoredSearch(address)
        summary, study = search.progress, search.study
        best, interval = _best(search, summary)
        return ListedSearch(
            name=name,
            address=shown,
            data=study.data.name or study.data.path,
            state=summary.state,
            trials=sum(each.ended for each in summary.trials),
            planned=study.budget.trials,
            metric=summary.objective,
            best=best,
            interval=interval,
            began=search.record.began,
        )
    except UserError as error:
        return ListedSearch(name=name, address=shown, fault=str(error))


def _best(search: StoredSearch, summary: Summary) -> tuple[float | None, tuple[float, float] | None]:
    """Return the best score and its 95 % interval: that of the finalists' runs with fresh seeds, or else
    Wilson's where the score is a share of the validation images."""
    if summary.best is None:
        return None, None
    if (estimate := summary.estimate) is not None:
        interval = estimate.interval
        return estimate.value, None if interval is None else (interval.low, interval.high)
    score = summary.best.metrics[summary.objective]
    info = search.info
    return score, image_interval(summary.objective, score, info.task, info.validation_images)
