"""The machines a search runs on: what they have, whether a trial fits, and Ray's start and end."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass

from search.study import Resources, StudyError
from trainable.errors import Fault, UserError

QUIET = {
    "RAY_AIR_NEW_OUTPUT": "0",  # the new output engine prints boxes and ignores reporters
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # the journal is the log; TensorBoard's logger imports torch
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",  # a trial's reason goes to the journal
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # Ctrl-C is ours: one clean stop
    "TUNE_GLOBAL_CHECKPOINT_S": "86400",  # Ray's own snapshots are never restored from
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",  # what befell a process stands in the journal, in one line
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS": "0",
}


KNOCK_SECONDS = 5.0


@dataclass(frozen=True)
class Node:
    """One machine."""

    cpus: int
    gpus: int

    def fits(self, trial: Resources) -> int:
        """How many such trials it holds at once; a share is rounded so that 0.25 fits four times in 1."""
        by_cpus = self.cpus // trial.cpus
        return min(by_cpus, int(self.gpus / trial.gpus + 1e-9)) if trial.gpus else by_cpus


@dataclass(frozen=True)
class Hardware:
    """The machines that trials may use; a trial runs on one of them."""

    nodes: tuple[Node, ...]

    @property
    def gpus(self) -> int:
        return sum(node.gpus for node in self.nodes)

    def __str__(self) -> str:
        return " + ".join(f"{node.cpus} CPUs and {node.gpus} GPUs" for node in self.nodes) or "no machine"


def local_hardware() -> Hardware:
    """The processors this process may use and the GPUs torch sees."""
    import torch

    return Hardware((Node(len(os.sched_getaffinity(0)), torch.cuda.device_count()),))


def per_trial(resources: Resources, hardware: Hardware) -> Resources:
    """One trial's resources, with `gpus` decided. Raises StudyError where no trial could ever be placed."""
    gpus = resources.gpus if resources.gpus is not None else float(hardware.gpus > 0)
    asked = resources.model_copy(update={"gpus": gpus})
    most_cpus = max((node.cpus for node in hardware.nodes), default=0)
    most_gpus = max((node.gpus for node in hardware.nodes), default=0)
    faults = [
        Fault(f"resources.{name}", f"a trial asks for {wanted:g}; the largest machine has {most}")
        for name, wanted, most in (("cpus", asked.cpus, most_cpus), ("gpus", gpus, most_gpus))
        if wanted > most
    ]
    if not faults and not any(node.fits(asked) for node in hardware.nodes):
        message = f"no machine has {asked.cpus} CPUs and {gpus:g} GPUs together: {hardware}"
        faults = [Fault("resources", message)]
    if faults:
        raise StudyError(faults, "resources")
    return asked


def concurrent_trials(asked: int | None, trial: Resources, hardware: Hardware) -> int:
    """How many trials run at once: as many as fit on the machines, or fewer if the study says so."""
    fits = sum(node.fits(trial) for node in hardware.nodes)
    return min(fits, asked) if asked is not None else fits


@contextlib.contextmanager
def joined(address: str) -> Iterator[Hardware]:
    """Join the running cluster at `address` for the block; what it has.

    An address is never guessed: without one, a leftover cluster on this machine is not joined. Raises
    UserError where no cluster answers.
    """
    _quieten()
    _knock(address)
    import ray

    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise UserError(
            f"--address {address}: no Ray cluster answers: {str(error).strip().splitlines()[0]} "
            "(if the cluster asks for a token, set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN)"
        ) from None
    try:
        alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        yield Hardware(tuple(Node(int(has.get("CPU", 0)), int(has.get("GPU", 0))) for has in alive))
    finally:
        ray.shutdown()


@contextlib.contextmanager
def local_ray(hardware: Hardware) -> Iterator[None]:
    """A private Ray on this machine for the block; one that this process has is used and left alone."""
    _quieten()
    import ray

    if ray.is_initialized():
        yield
        return
    ray.init(
        address="local",
        num_cpus=sum(node.cpus for node in hardware.nodes),
        num_gpus=hardware.gpus,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )
    try:
        yield
    finally:
        ray.shutdown()


def _knock(address: str) -> None:
    """Raises UserError where nothing listens at HOST:PORT: Ray itself would try for minutes."""
    host, colon, port = address.rpartition(":")
    if address == "auto" or "://" in address:
        if "://" in address:
            raise UserError(f"--address {address}: expected `auto` or HOST:PORT of a cluster's head")
        return
    if not colon or not port.isdigit():
        raise UserError(f"--address {address}: expected `auto` or HOST:PORT, such as 10.0.0.1:6379")
    try:
        socket.create_connection((host, int(port)), timeout=KNOCK_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise UserError(f"--address {address}: no Ray cluster answers there: {error}") from None


def _quieten() -> None:
    """Ray's settings and loggers, before it is started or joined."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    for name in ("ray", "ray.tune", "ray.data", "ray.train"):
        logging.getLogger(name).setLevel(logging.ERROR)
