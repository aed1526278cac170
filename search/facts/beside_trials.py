"""What a search takes beside its trials, its start and its end, as the last ones on this machine took.

It depends on the machine more than on the search: Ray starts, processes import PyTorch, MLflow takes the last
results, the report is written. So each search that comes to its end adds what it took, and no model is made.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Annotated

from pydantic import Field, TypeAdapter

from search.facts.cache import name_by
from search.record.trials import Trial
from trainable.bench import DeviceKind
from trainable.errors import UserError
from trainable.files.paths import cache_root
from trainable.recipe.base import Spec
from trainable.recipe.yamlfile import write_whole

KEEP = 5  # so many searches

Seconds = Annotated[float, Field(ge=0.0)]


class BesideTrials(Spec):
    """What a search takes before its first trial trains, and after the last result."""

    start_seconds: Seconds  # from the forecast until the first epoch of a trial begins
    end_seconds: Seconds  # from the last result until the command has ended

    @property
    def seconds(self) -> float:
        return self.start_seconds + self.end_seconds

    def times(self, slowed: float) -> BesideTrials:
        return BesideTrials(start_seconds=slowed * self.start_seconds, end_seconds=slowed * self.end_seconds)


# On two cores without other work, until a search on the machine has ended
USUAL = BesideTrials(start_seconds=14.0, end_seconds=11.0)
_LAST = TypeAdapter(tuple[BesideTrials, ...])


def beside_of(trials: Iterable[Trial], told: float, ended: float) -> BesideTrials | None:
    """Return what a search took beside its trials; None where it has trained no epoch.

    Its forecast was told at `told`, and its command ended at `ended`, in seconds since 1970.
    """
    histories = [each.history for each in trials if each.history]
    if not histories:
        return None
    first = min((history[0] for history in histories), key=lambda event: event.time)
    last = max(history[-1].time for history in histories)
    began = first.time - first.result.epoch_seconds - (first.result.checkpoint_seconds or 0.0)
    return BesideTrials(start_seconds=max(0.0, began - told), end_seconds=max(0.0, ended - last))


def last_beside(kind: DeviceKind) -> BesideTrials | None:
    """Return the medians of the last searches of this machine, on such a device; None before the first."""
    if not (last := _read(_file(kind))):
        return None
    return BesideTrials(
        start_seconds=median(each.start_seconds for each in last),
        end_seconds=median(each.end_seconds for each in last),
    )


def add_beside(kind: DeviceKind, took: BesideTrials) -> None:
    """Remember what a search took, where the cache folder can be written."""
    with suppress(UserError, OSError):
        file = _file(kind)
        write_whole(file, _LAST.dump_json((*_read(file), took)[-KEEP:]))


def _read(file: Path) -> tuple[BesideTrials, ...]:
    try:
        return _LAST.validate_json(file.read_bytes())
    except (OSError, ValueError):
        return ()


def _file(kind: DeviceKind) -> Path:
    from trainable.origins import versions
    from trainable.training.devices import machine_name

    name = name_by({"machine": machine_name(), "device": kind, "versions": versions()})
    return cache_root() / "runs" / f"beside-{name}.json"
