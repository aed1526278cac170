"""Counts which GPUs fail one trial after the other, and says which are left out for that."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from trainable.tune.trial import Gpu

TRIALS = 3
"""A GPU on which so many trials in a row crashed is left out. Two may be chance where recipes are drawn."""


@dataclass
class LeftOut:
    """Holds the GPUs that train no more trials of this driver.

    A GPU joins them when `TRIALS` different trials have crashed on it and none has finished an epoch there
    in between. It stays for as long as the driver runs.
    """

    words: list[str] = field(default_factory=list, init=False)
    """They say of each GPU that is left out why."""
    _crashed: dict[Gpu, list[int]] = field(default_factory=dict, init=False)
    """The trials that crashed on a GPU since the last epoch there, in order, each once."""
    _out: set[Gpu] = field(default_factory=set, init=False)

    def __contains__(self, gpu: Gpu) -> bool:
        return gpu in self._out

    def finished_epoch(self, gpus: Iterable[Gpu]) -> None:
        """Notes that a trial has trained an epoch on these GPUs: what crashed there before counts no more."""
        for gpu in gpus:
            self._crashed.pop(gpu, None)

    def crashed(self, trial: int, gpus: Iterable[Gpu]) -> list[str]:
        """Notes that a trial crashed on these GPUs; returns in words which are left out from now on."""
        return [words for gpu in gpus if (words := self._count(trial, gpu)) is not None]

    def _count(self, trial: int, gpu: Gpu) -> str | None:
        trials = self._crashed.setdefault(gpu, [])
        if gpu in self._out or trial in trials:
            return None
        trials.append(trial)
        if len(trials) < TRIALS:
            return None
        self._out.add(gpu)
        *first, last = map(str, sorted(trials))
        self.words.append(f"{gpu}: left out, since trials {', '.join(first)} and {last} failed there")
        return self.words[-1]
