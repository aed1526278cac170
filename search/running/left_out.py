"""Decides which GPUs and machines train no more, as trials fail there that train elsewhere."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from search.record.machines import LeftOut
from spaces.domains import listed
from trainable.tune.place import Place

TRIALS = 3  # different trials in a row that failed somewhere; two may be chance where recipes are drawn
SURE = 2  # so many are enough of a machine, where one has trained on another machine since

GpuSpot = tuple[str, str]  # Ray's id of a machine, and the number of a GPU there


@dataclass
class _Failures:
    """What failed on a machine since an epoch was trained there."""

    trials: set[int] = field(default_factory=set)
    gpus: set[str] = field(default_factory=set)
    others_train: bool = False  # whether another machine has trained an epoch since the first
    trained_elsewhere: set[int] = field(default_factory=set)  # which of the trials have since


@dataclass
class Suspects:
    """The GPUs and machines that train no more trials of this driver; each trial is on one machine.

    A GPU joins them when `TRIALS` different trials have failed on it and none has trained an epoch there in
    between. A machine joins them at a failure, if another machine trains and no epoch has been trained there
    since `SURE` different trials failed, one of which that machine has trained meanwhile, or since `TRIALS`
    failed. So a fault that strikes all machines at once, such as that of a common disk, leaves out none.
    Failures on one GPU of several count for that GPU alone. What is left out stays so for as long as the
    driver runs.
    """

    why: list[LeftOut] = field(default_factory=list, init=False)  # what is left out
    # trials that failed on a GPU since an epoch was trained there
    _on_gpus: dict[GpuSpot, set[int]] = field(default_factory=dict, init=False)
    _on_machines: dict[str, _Failures] = field(default_factory=dict, init=False)
    _gpus: dict[str, set[str]] = field(default_factory=dict, init=False)  # all that were seen, by machine
    _train: set[str] = field(default_factory=set, init=False)  # machines that have trained an epoch
    _out_gpus: set[GpuSpot] = field(default_factory=set, init=False)
    _out: set[str] = field(default_factory=set, init=False)

    def saw(self, place: Place) -> None:
        """Note that there is such a place."""
        self._gpus.setdefault(place.node, set()).update(each.number for each in place.gpus)

    def __contains__(self, place: Place) -> bool:
        return place.node in self._out or any(
            (place.node, gpu.number) in self._out_gpus for gpu in place.gpus
        )

    def has_machine(self, node: str) -> bool:
        """Say whether a whole machine is left out, by Ray's id."""
        return node in self._out

    def forget_others(self, nodes: Collection[str]) -> None:
        """Forget that machines train which are none of these, by Ray's ids: they have gone."""
        self._train.intersection_update(nodes)

    def finished_epoch(self, trial: int, place: Place) -> None:
        """Note that a trial has trained an epoch at a place: what failed there before counts no more."""
        self._on_machines.pop(place.node, None)
        for gpu in place.gpus:
            self._on_gpus.pop((place.node, gpu.number), None)
        if place.node in self._out:
            return
        self._train.add(place.node)
        for failures in self._on_machines.values():
            failures.others_train = True
            failures.trained_elsewhere |= {trial} & failures.trials

    def failed(self, trial: int, place: Place) -> list[LeftOut]:
        """Note that a trial failed at a place; return what is left out from now on."""
        here = self._on_machines.setdefault(place.node, _Failures())
        here.trials.add(trial)
        here.gpus.update(each.number for each in place.gpus)
        for gpu in place.gpus:
            self._on_gpus.setdefault((place.node, gpu.number), set()).add(trial)
        if place.node in self._out:
            return []
        if self._is_broken(place.node, here):
            self._out.add(place.node)
            return [self._why(place.on, here.trials)]
        spots = {(place.node, gpu.number): f"{place.on}, {gpu}" for gpu in place.gpus}
        broken = [spot for spot in spots if len(self._on_gpus[spot]) >= TRIALS and spot not in self._out_gpus]
        self._out_gpus.update(broken)
        return [self._why(spots[spot], self._on_gpus[spot]) for spot in broken]

    def _is_broken(self, node: str, here: _Failures) -> bool:
        one_of_several = len(here.gpus) == 1 and len(self._gpus.get(node, ())) > 1
        if one_of_several or not here.others_train or not self._train - self._out - {node}:
            return False
        return len(here.trials) >= (SURE if here.trained_elsewhere else TRIALS)

    def _why(self, where: str, trials: set[int]) -> LeftOut:
        self.why.append(LeftOut(where=where, why=f"trials {listed(map(str, sorted(trials)))} failed there"))
        return self.why[-1]
