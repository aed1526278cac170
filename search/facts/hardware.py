"""Which machines a search may use, whether a trial fits on them, and how many run at once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace

from search.study import Resources, StudyError
from search.study.study import Budget
from spaces.domains import counted
from trainable.bench import Bench
from trainable.errors import Fault

# The most that a trial gets by itself: even where each decodes and augments only 190 images a second, so many
# feed a GPU that trains on 3,000
MOST_CPUS = 16


@dataclass(frozen=True)
class PerTrial:
    """What each of a trial's workers gets, with nothing left to decide."""

    cpus: int
    gpus: float
    workers: int = 1
    # All workers must be on one machine: where one holds them all, they should not be spread
    together: bool = False

    def bench(self, bench: Bench) -> Bench:
        """Return the bench that a worker trains on, which may fetch what `bench` may, and says it there."""
        return replace(bench, device_name="cuda" if self.gpus else "cpu", threads=self.cpus)

    @property
    def worker_in_words(self) -> str:
        """What one worker gets, in words."""
        gpus = f"{self.gpus:g} of a GPU" if 0.0 < self.gpus < 1.0 else counted(self.gpus, "GPU")
        return f"{counted(self.cpus, 'CPU')} and {gpus}" if self.gpus else counted(self.cpus, "CPU")


@dataclass(frozen=True)
class Node:
    """One machine."""

    cpus: int
    gpus: int
    store_bytes: int | None = None  # of Ray's object store there, where that is known

    def fits(self, trial: PerTrial) -> int:
        """Return how many workers of such a trial it holds.

        Four shares of 0.25 fit on a GPU and one of 0.6: the rest of one GPU and that of another are no share.
        """
        by_cpus = self.cpus // trial.cpus
        return min(by_cpus, self.gpus * int(1 / trial.gpus + 1e-9)) if trial.gpus else by_cpus


@dataclass(frozen=True)
class Hardware:
    """The machines that trials may use; the workers of one trial may run on several."""

    nodes: tuple[Node, ...]
    cluster: bool = False  # of a running Ray cluster, which machines may join and leave

    @property
    def gpus(self) -> int:
        return sum(node.gpus for node in self.nodes)

    @property
    def shared_bytes(self) -> int | None:
        """How large a data set may be that every machine holds: half of the smallest object store, as
        Ray spills and copies there too. None means that nothing is known."""
        known = [node.store_bytes for node in self.nodes if node.store_bytes is not None]
        return min(known) // 2 if known else None

    def fits(self, trial: PerTrial) -> int:
        """Return how many such trials run at once."""
        workers = [node.fits(trial) for node in self.nodes]
        if trial.together:
            return sum(count // trial.workers for count in workers)
        return sum(workers) // trial.workers

    def __str__(self) -> str:
        return " + ".join(f"{node.cpus} CPUs and {node.gpus} GPUs" for node in self.nodes) or "no machine"


def local_hardware() -> Hardware:
    """Return the processors that this process may use and the GPUs that torch sees."""
    import torch

    return Hardware((Node(len(os.sched_getaffinity(0)), torch.cuda.device_count()),))


def per_trial(
    resources: Resources, hardware: Hardware, gpus: float | None = None, cpus: int | None = None
) -> PerTrial:
    """Return what a trial gets; `gpus` and `cpus` are what an earlier part of the search decided.

    A worker gets a GPU where there are any and the study does not say how many, and the processors that
    `cpus_for` counts. The decided processors are those of other machines if none here has as many. Raises
    StudyError, with what the machines have, where no trial could ever start.
    """
    if gpus is None:
        gpus = resources.gpus if resources.gpus is not None else float(hardware.gpus > 0)
    if cpus is None or not any(node.fits(PerTrial(cpus, gpus)) for node in hardware.nodes):
        cpus = resources.cpus or cpus_for(gpus, hardware)
    trial = PerTrial(cpus, gpus, resources.workers)
    if faults := list(_unplaceable(trial, hardware)):
        raise StudyError(faults, "resources")
    together = any(node.fits(trial) >= trial.workers for node in hardware.nodes)
    return replace(trial, together=together)


def check_gpu_hours(budget: Budget, trial: PerTrial, hardware: Hardware) -> None:
    """Raise StudyError where GPU-hours, or their price, are to end a search whose trials reserve no GPU."""
    if budget.most_gpu_hours is not None and not trial.gpus:
        name = "gpu_hours" if budget.gpu_hours is not None else "price"
        why = f"trials reserve no GPU here, so it would never be spent: {hardware}; write budget.hours"
        raise StudyError([Fault(f"budget.{name}", why)])


def cpus_for(share: float, hardware: Hardware) -> int:
    """Return the processors that come with a share of a GPU, in [1, MOST_CPUS]; without a GPU, one.

    It is the share's part of a machine's processors, on the machine that has fewest for each GPU.
    """
    with_gpus = [node for node in hardware.nodes if node.gpus]
    if not share or not with_gpus:
        return 1
    fewest = min(node.cpus * share / node.gpus for node in with_gpus)
    return max(1, min(MOST_CPUS, int(fewest + 1e-9)))


def concurrent_trials(asked: int | None, trial: PerTrial, hardware: Hardware) -> int:
    """Return how many trials run at once: as many as fit on the machines, or fewer if the study says so."""
    fits = hardware.fits(trial)
    return min(fits, asked) if asked is not None else fits


def _unplaceable(trial: PerTrial, hardware: Hardware) -> Iterator[Fault]:
    """Yield the reasons why no such trial could ever start."""
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
