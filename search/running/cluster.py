"""Provides Ray for a search: a private one on this machine, or a running cluster that is joined."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from search.facts.hardware import Hardware, Node
from search.running.cluster_token import (
    ANSWER_SECONDS,
    MODE,
    NO_TOKEN,
    accepts,
    head_of,
    send_token,
    token_to_send,
    why_refused,
)
from search.running.private_ray import driver_settings, leave_ray, private_ray
from search.running.switch import StopSwitch
from trainable.errors import UserError
from trainable.stages import stage

RAY_SETTINGS = {
    "RAY_AIR_NEW_OUTPUT": "0",  # the new output engine prints boxes and ignores reporters
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # the journal is the log; TensorBoard's logger imports torch
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",  # a trial's reason goes to the journal
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # Ctrl-C is ours: one clean stop
    "TUNE_GLOBAL_CHECKPOINT_S": "86400",  # Ray's own snapshots are never restored from
    "TUNE_MAX_PENDING_TRIALS_PG": "10000",  # how many trials there are at once is the searcher's decision
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    # else Ray itself starts a trial again whose machine was taken back, and the journal does not know why
    "RAY_TRAIN_COUNT_PREEMPTION_AS_FAILURE": "1",
    "RAY_COLOR_PREFIX": "0",  # what Ray prints to a terminal may be read in a log
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",  # the journal says in one line what happened to a process
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",  # of trials that fail while the search stops
    "RAY_prestart_worker_first_driver": "0",  # no trial of Tune's runs in a worker started ahead
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS": "0",
}


@contextlib.contextmanager
def joined(address: str) -> Iterator[Hardware]:
    """Join the running cluster at `address` for the block, which receives the cluster's hardware.

    An address is never guessed: without one, a cluster left over on this machine is not joined. A token is
    sent where `send_token` was called before Ray was imported. Raises UserError where no cluster answers, or
    where it refuses the token.
    """
    _quieten()
    send_token(address)
    _check_answers(address)
    import ray

    try:
        with stage("joining the cluster"):
            ray.init(
                address=address,
                log_to_driver=False,
                logging_level=logging.ERROR,
                job_config=driver_settings(),
            )
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise UserError(
            f"--address {address}: no Ray cluster answers: {str(error).strip().splitlines()[0]} "
            f"(if {NO_TOKEN})"
        ) from None
    try:
        yield hardware_of(alive_nodes())
    finally:
        leave_ray()


def alive_nodes() -> list[dict[str, Any]]:
    """Return the machines of the Ray that this process has joined, as Ray lists them."""
    import ray

    return [each for each in ray.nodes() if each["Alive"]]


def hardware_of(nodes: Iterable[Mapping[str, Any]]) -> Hardware:
    """Return what trials may use of a cluster's machines."""
    return Hardware(tuple(machine_of(each["Resources"]) for each in nodes), cluster=True)


def machine_of(has: Mapping[str, float]) -> Node:
    """Return a machine of a cluster from the resources that Ray lists for it."""
    store = has.get("object_store_memory")
    return Node(int(has.get("CPU", 0)), int(has.get("GPU", 0)), None if store is None else int(store))


@contextlib.contextmanager
def local_ray(
    hardware: Hardware, switch: StopSwitch, last_words: str = ""
) -> Iterator[Callable[[], str | None]]:
    """Start a private Ray on this machine for the block; one that this process has is used instead.

    The block receives a function that says in words whether Ray has died; `last_words` are said where Ray
    ends this process. Raises RayNotStarted.
    """
    _quieten()
    import ray

    if ray.is_initialized():
        yield lambda: None
        return
    with private_ray(hardware, switch, last_words) as death:
        yield death


def _check_answers(address: str) -> None:
    """Raise UserError where nothing listens there, or the token is refused: Ray would try for long."""
    head = head_of(address)
    if head is None:
        return
    host, _, port = head.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=ANSWER_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise UserError(f"--address {address}: no Ray cluster answers there: {error}") from None
    token = token_to_send()
    if accepts(head, token) is False:
        raise UserError(f"--address {address}: {why_refused()}")
    if token is not None and accepts(head, None):
        raise UserError(
            f"--address {address}: the cluster asks for no token, and {MODE}=token has this command ask the "
            f"cluster for one: unset {MODE}"
        )


def _quieten() -> None:
    """Set Ray's settings and loggers, before it is started or joined."""
    for name, value in RAY_SETTINGS.items():
        os.environ.setdefault(name, value)
    for name in ("ray", "ray.tune", "ray.data", "ray.train"):
        logging.getLogger(name).setLevel(logging.ERROR)
