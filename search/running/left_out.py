"""Decides which GPUs and machines train no more, as trials fail there that train elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from spaces.domains import listed
from trainable.tune.place import Place

TRIALS = 3  # different trials in a row that failed at a spot; two may be chance where recipes are drawn
SURE = 2  # so many are enough of a machine, where they have trained on another one

Spot = tuple[str, str]  # Ray's id of a machine, and the number of a GPU there, or nothing for all of it


@dataclass
class _Failures:
    """What failed at a spot since an epoch was trained there."""

    where: str  # in words
    trials: list[int] = field(default_factory=list)  # in order, each once
    others_train: bool = False  # whether another machine has trained an epoch since the first


@dataclass
class LeftOut:
    """Holds the GPUs and machines that train no more trials of this driver.

    A GPU joins them when `TRIALS` different trials have failed on it and none has trained an epoch there in
    between. So does a machine, if another one has trained an epoch meanwhile; and one on which `SURE` trials
    have failed that another one has trained. They stay for as long as the driver runs.
    """

    words: list[str] = field(default_factory=list, init=False)  # for each, why it is left out
    _failures: dict[Spot, _Failures] = field(default_factory=dict, init=False)
    _trained_on: dict[int, set[str]] = field(default_factory=dict, init=False)  # machines, by trial
    _out: set[Spot] = field(default_factory=set, init=False)

    def __contains__(self, place: Place) -> bool:
        return any(spot in self._out for spot, _ in _spots(place))

    def finished_epoch(self, trial: int, place: Place) -> list[str]:
        """Note that a trial has trained an epoch at a place: what failed there before counts no more. Return
        in words which machines are left out from now on, since it has failed on them."""
        for spot, _ in _spots(place):
            self._failures.pop(spot, None)
        self._trained_on.setdefault(trial, set()).add(place.node)
        for (node, _), failures in self._failures.items():
            failures.others_train |= node != place.node
        return self._news()

    def failed(self, trial: int, place: Place) -> list[str]:
        """Note that a trial failed at a place; return in words what is left out from now on."""
        for spot, words in _spots(place):
            found = self._failures.setdefault(spot, _Failures(words))
            if trial not in found.trials:
                found.trials.append(trial)
        return self._news()

    def _news(self) -> list[str]:
        found = [spot for spot, failures in self._failures.items() if self._is_to_go(spot, failures)]
        self._out.update(found)
        news = [self._why(self._failures[spot]) for spot in found]
        self.words += news
        return news

    def _is_to_go(self, spot: Spot, failures: _Failures) -> bool:
        node, gpu = spot
        if spot in self._out or (node, "") in self._out:
            return False
        if gpu:
            return len(failures.trials) >= TRIALS
        sure = sum(bool(self._trained_on.get(trial, set()) - {node}) for trial in failures.trials)
        return sure >= SURE or (failures.others_train and len(failures.trials) >= TRIALS)

    def _why(self, failures: _Failures) -> str:
        trials = listed([str(each) for each in sorted(failures.trials)])
        return f"{failures.where}: left out, since trials {trials} failed there"


def _spots(place: Place) -> Iterator[tuple[Spot, str]]:
    """Yield the GPUs of a place and its machine, each with its name in words."""
    for gpu in place.gpus:
        yield (place.node, gpu.number), f"{place.on}, {gpu}"
    yield (place.node, ""), place.on
