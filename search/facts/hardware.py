"""Says which machines a search may use, whether a trial fits on them, and how many run at once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from search.study import Resources, StudyError
from trainable.errors import Fault


@dataclass(frozen=True)
class PerTrial:
    """Says what each of a trial's workers gets, with nothing left to decide."""

    cpus: int
    gpus: float
    workers: int = 1


@dataclass(frozen=True)
class Node:
    """Describes one machine."""

    cpus: int
    gpus: int

    def fits(self, trial: PerTrial) -> int:
        """Returns how many workers of such a trial it holds; a GPU of 1 holds four shares of 0.25."""
        by_cpus = self.cpus // trial.cpus
        return min(by_cpus, int(self.gpus / trial.gpus + 1e-9)) if trial.gpus else by_cpus


@dataclass(frozen=True)
class Hardware:
    """Lists the machines that trials may use; the workers of one trial may run on several."""

    nodes: tuple[Node, ...]

    @property
    def gpus(self) -> int:
        return sum(node.gpus for node in self.nodes)

    def fits(self, trial: PerTrial) -> int:
        """Returns how many such trials run at once."""
        return sum(node.fits(trial) for node in self.nodes) // trial.workers

    def __str__(self) -> str:
        return " + ".join(f"{node.cpus} CPUs and {node.gpus} GPUs" for node in self.nodes) or "no machine"


def local_hardware() -> Hardware:
    """Returns the processors that this process may use and the GPUs that torch sees."""
    import torch

    return Hardware((Node(len(os.sched_getaffinity(0)), torch.cuda.device_count()),))


def per_trial(resources: Resources, hardware: Hardware, gpus: float | None = None) -> PerTrial:
    """Returns what a trial gets; `gpus` is what an earlier part of the search decided.

    A worker gets a GPU where there are any and the study does not say how many. Raises StudyError, with what
    the machines have, where no trial could ever start.
    """
    if gpus is None:
        gpus = resources.gpus if resources.gpus is not None else float(hardware.gpus > 0)
    trial = PerTrial(resources.cpus, gpus, resources.workers)
    if faults := list(_unplaceable(trial, hardware)):
        raise StudyError(faults, "resources")
    return trial


def concurrent_trials(asked: int | None, trial: PerTrial, hardware: Hardware) -> int:
    """Returns how many trials run at once: as many as fit on the machines, or fewer if the study says so."""
    fits = hardware.fits(trial)
    return min(fits, asked) if asked is not None else fits


def _unplaceable(trial: PerTrial, hardware: Hardware) -> Iterator[Fault]:
    """Yields the reasons why no such trial could ever start."""
    most_cpus = max((node.cpus for node in hardware.nodes), default=0)
    most_gpus = max((node.gpus for node in hardware.nodes), default=0)
    who = "a trial" if trial.workers == 1 else "each worker"
    beyond = [
        Fault(f"resources.{name}", f"{who} asks for {wanted:g}; the largest machine has {most}")
        for name, wanted, most in (("cpus", trial.cpus, most_cpus), ("gpus", trial.gpus, most_gpus))
        if wanted > most
    ]
    room = sum(node.fits(trial) for node in hardware.nodes)
    each = f"{trial.cpus} CPUs and {trial.gpus:g} GPUs"
    if beyond:
        yield from beyond
    elif not room:
        yield Fault("resources", f"no machine has {each} together: {hardware}")
    elif not hardware.fits(trial):
        message = f"a trial asks for {trial.workers} with {each} each; there is room for {room}: {hardware}"
        yield Fault("resources.workers", message)
