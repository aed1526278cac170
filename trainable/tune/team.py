"""Runs the ranks of a data-parallel trial:
Ray actors in the trial's placement group, reused from trial to trial.

One process group serves all trials of a team. If a team has lost a rank, or one of its ranks has failed, the
whole team is ended: its trial continues in a new one, from its checkpoint.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from trainable.collector import paused

with paused():
    import ray
    from ray.exceptions import RayError, RayTaskError
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
    from torch import distributed

    from trainable.ranks import RankSilent, of_process_group
    from trainable.recipe.network_cost import NetworkCost
    from trainable.training.metrics import EpochResult
    from trainable.tune.causes import refusals_named
    from trainable.tune.place import Place, this_process
    from trainable.tune.worker import TrialAssignment, Worker
    from trainable.tune.worker_setup import WorkerSetup

# The backends of the collectives, by device. What ranks agree on is on the host, also on GPUs.
BACKENDS = {"cpu": "gloo", "cuda": "cpu:gloo,cuda:nccl"}
# After one rank has failed, the other ranks' errors are waited for this long: the first is often not the
# cause
GRACE_SECONDS = 2.0
FREE_SECONDS = 60.0  # ranks may take this long to free what a trial used
ADDRESS_OF_INTERFACE = 0x8915  # SIOCGIFADDR of Linux's <linux/sockios.h>


def ray_place() -> Place:
    """Return the place of this process, which is one of Ray's."""
    node, address = ray.get_runtime_context().get_node_id(), ray.util.get_node_ip_address()
    return this_process(node, address, map(str, ray.get_gpu_ids()))


class RankLost(RuntimeError):
    """A process of a data-parallel trial has died."""


class Rank:
    """One rank in its own process; it can work after `join`."""

    def __init__(self, rank: int, setup: WorkerSetup) -> None:
        self._rank, self._setup = rank, setup

    def open(self) -> tuple[str, int]:
        """Open the address where the ranks meet, on rank 0: its host, and a port."""
        host = ray.util.get_node_ip_address()
        self._store = open_store(host, self._setup.workers)
        return host, self._store.port

    def place(self) -> Place:
        """Return where this rank is, as soon as its process has started."""
        return ray_place()

    def copy_data(self) -> None:
        """Make sure that the images are on this machine, however long copying and decoding take."""
        self._setup.data.get().be_here()

    def join(self, address: tuple[str, int]) -> None:
        """Meet the other ranks.

        No collective may take twice the setup's `step_seconds`. Before that, a rank's watchdog ends it: the
        one that gave no sign first, which is the one that the others wait for.
        """
        setup = self._setup
        interface = interface_of(ray.util.get_node_ip_address())
        if interface is not None:  # else gloo takes the address of the host's name, often 127.0.1.1
            os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
            os.environ.setdefault("NCCL_SOCKET_IFNAME", interface)
        if self._rank != 0:
            self._store = _store(*address, setup.workers, is_master=False)
        distributed.init_process_group(
            BACKENDS[setup.bench.kind],
            store=self._store,
            rank=self._rank,
            world_size=setup.workers,
            timeout=timedelta(seconds=2 * setup.step_seconds),
        )
        self._worker = Worker(setup, of_process_group())

    @refusals_named()  # here: what led to an error does not reach other processes
    def step(self, config: dict[str, str]) -> tuple[EpochResult, ...] | None:
        """Return what `Worker.step` returns on rank 0, and None on the others."""
        results = self._worker.step(TrialAssignment.from_config(config))
        return results if self._rank == 0 else None

    @refusals_named()
    def measure(self, config: dict[str, str]) -> NetworkCost:
        """Return what `Worker.measure` returns, without the other ranks."""
        return self._worker.measure(TrialAssignment.from_config(config))

    def let_go(self) -> None:
        self._worker.let_go()

    def free(self) -> str:
        return self._worker.free()


class Team:
    """The setup's `workers` ranks in the bundles of this actor's placement group; after `join` it is used
    like a `Worker`.

    Raises RankLost if a rank cannot be started within the setup's `step_seconds`.
    """

    def __init__(self, setup: WorkerSetup) -> None:
        group = ray.util.get_current_placement_group()
        actor = ray.remote(Rank)
        self._ranks = [
            actor.options(
                num_cpus=setup.bench.threads,
                num_gpus=setup.bench.gpu_share if setup.bench.kind == "cuda" else 0,
                scheduling_strategy=PlacementGroupSchedulingStrategy(
                    group, placement_group_bundle_index=rank
                ),
            ).remote(rank, setup)
            for rank in range(setup.workers)
        ]
        self._step_seconds, self.has_joined = setup.step_seconds, False
        started = self._answers([rank.place.remote() for rank in self._ranks], setup.step_seconds)
        self.places: tuple[Place, ...] = tuple(started)

    def join(self) -> None:
        """Bring the images to each rank, and have the ranks meet; nothing can be trained before."""
        self._answers([rank.copy_data.remote() for rank in self._ranks])
        (address,) = self._answers([self._ranks[0].open.remote()], self._step_seconds)
        self._answers([rank.join.remote(address) for rank in self._ranks], self._step_seconds)
        self.has_joined = True

    def measure(self, assignment: TrialAssignment) -> NetworkCost:
        """Return what the network costs on the first rank. Raises RankLost, or what that rank has raised."""
        (cost,) = self._answers([self._ranks[0].measure.remote(assignment.config())])
        found: NetworkCost = cost
        return found

    def step(self, assignment: TrialAssignment) -> tuple[EpochResult, ...]:
        """Do what `Worker.step` does, on all ranks. Raises RankLost, or what a rank has raised."""
        first, *_ = self._answers([rank.step.remote(assignment.config()) for rank in self._ranks])
        results: tuple[EpochResult, ...] = first
        return results

    def let_go(self) -> None:
        """Do what `Worker.let_go` does, on the rank that writes checkpoints."""
        self._ranks[0].let_go.remote()

    def free(self) -> str:
        """Do what `Worker.free` does, on all ranks; a team that has lost a rank cannot continue."""
        try:
            answers = self._answers([rank.free.remote() for rank in self._ranks], FREE_SECONDS)
            return "; ".join(filter(None, answers))
        except Exception as error:  # raised here, no trial would be retried
            return f"{type(error).__name__}: {error}"

    def close(self) -> None:
        """End all ranks at once."""
        for rank in self._ranks:
            ray.kill(rank)

    def _answers(self, calls: Sequence[Any], seconds: float | None = None) -> list[Any]:
        """Return every rank's answer.
        If one fails, all are ended, since they wait for it, and its error is raised."""
        until = None if seconds is None else time.monotonic() + seconds
        waiting, failed = list(calls), False
        while waiting and not failed:
            left = None if until is None else max(0.0, until - time.monotonic())
            done, waiting = ray.wait(waiting, timeout=left)
            failed = not done or any(_error(call) is not None for call in done)
        if not failed:
            answers: list[Any] = ray.get(list(calls))
            return answers
        done, _ = ray.wait(list(calls), num_returns=len(calls), timeout=GRACE_SECONDS)
        errors = {rank: error for rank, call in enumerate(calls) if call in done and (error := _error(call))}
        self.close()
        raise cause(errors) if errors else RankLost(f"a rank did not answer within {seconds:g} s")


def cause(errors: dict[int, Exception]) -> Exception:
    """Return the error that caused the others, of errors by rank: that of a process that died, or else one
    that is not a rank's vain wait for another."""
    for rank, error in errors.items():
        if isinstance(error, RayError):
            return RankLost(f"rank {rank} of the trial has died: {' '.join(str(error).split())}")
    own = [
        error for error in errors.values() if RankSilent.__name__ not in f"{type(error).__name__}: {error}"
    ]
    return (own or list(errors.values()))[0]


def interface_of(address: str) -> str | None:
    """Return the name of this machine's network interface with an IPv4 address, or None if none has it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            try:
                found = fcntl.ioctl(asked.fileno(), ADDRESS_OF_INTERFACE, struct.pack("256s", name.encode()))
            except OSError:  # it has none
                continue
            if socket.inet_ntoa(found[20:24]) == address:
                return name
    return None


def _error(call: Any) -> Exception | None:
    """Return why a finished call has failed, as the rank raised it, or None if it has not."""
    try:
        ray.get(call)
    except RayTaskError as error:
        found: Exception | None = error.cause if isinstance(error.cause, Exception) else error
    except RayError as error:  # its process was ended, for want of memory too, or its node went away
        found = error
    else:
        found = None
    return found


def open_store(host: str, world: int) -> Any:
    """Return a store at a free port of this address alone; at all addresses if it is none of this machine's.

    By itself torch listens at all addresses, and anyone who reaches the port can write to the store.
    """
    if interface_of(host) is None:  # it is an address by which others reach this machine
        return _store(host, 0, world, is_master=True, wait_for_workers=False)
    listener = socket.create_server((host, 0))
    port = listener.getsockname()[1]
    return _store(
        host, port, world, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach()
    )


def _store(host: str, port: int, world: int, **options: Any) -> Any:
    """Return the store through which ranks exchange messages; on rank 0, port 0 stands for any free port."""
    return distributed.TCPStore(host, port, world, **options)  # type: ignore[attr-defined]
