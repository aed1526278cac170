"""Starts a Ray of this search's own on this machine, which nobody else can use, and leaves nothing of it.

Its folder can be opened by this user alone, its ports are those of 127.0.0.1, and it asks for a token that
no file holds. Its processes and its folder go with the driver, also where that is killed.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import secrets
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from search.facts.hardware import Hardware
from search.running import reaper
from search.running.cluster_token import MODE, TOKEN
from search.running.marked import marked_folder
from search.running.switch import StopSwitch
from trainable.collector import paused
from trainable.errors import first_line
from trainable.imports import imports_installed_alone
from trainable.stages import stage

if TYPE_CHECKING:
    from ray.job_config import JobConfig

PREFIX = "tunebook-ray-"
# Ray opens its own folder to everybody (0777); this one lies in a folder that is closed to others
RAY_FOLDER = "r"
# Ray's sockets lie up to 66 characters below its folder, and their paths may have 107 (Linux's unix(7))
LONGEST_FOLDER = 40
# For so long Ray's C++ part asks for a node before its Python part asks again, in all for 30 s
ASKING = "RAY_raylet_start_wait_time_s"
# For so long Ray's C++ code waits for a head that has ended, then it ends this process: 60 s by default, for
# heads that are started again, and a private one is not
HEAD_LOST = "RAY_gcs_rpc_server_reconnect_timeout_s"
NEEDED = ("gcs_server", "raylet")  # Ray's head and its node: without one of them nothing goes on
UNNEEDED = ("start_monitor", "start_log_monitor", "start_api_server")
# Ray gives up after 30 s (ray/_private/node.py), which a busy machine may need: then it is started again
STARTS = 3

logger = logging.getLogger(__name__)


class RayNotStarted(Exception):
    """No Ray could be started; the message says why."""


class RayDied(BaseException):
    """Ray has died, which ends the driver's loop.

    This is no Exception: for those, Ray Tune ends its trials first, and waits for a Ray that is not there.
    """


@contextlib.contextmanager
def private_ray(
    hardware: Hardware, switch: StopSwitch, last_words: str
) -> Iterator[Callable[[], str | None]]:
    """Start a private Ray for the block, which receives a function that says in words whether Ray has died.

    A signal during the start is noted by the switch; there may be no Ray then. `last_words` are said where
    Ray's C++ code ends this process, because Ray's head or node has ended. Raises RayNotStarted.
    """
    with marked_folder(PREFIX, _root(), last_words) as marked, _variables(marked.path):
        _start(hardware, marked.path, switch)
        marked.needs(_needed())
        try:
            yield death
        except RayDied as died:
            switch.break_off(str(died))
        finally:
            _end(marked.path)


def _needed() -> list[int]:
    """Return the processes of Ray's head and node; none where Ray was not started."""
    import ray

    node = ray._private.worker._global_node
    known = node.all_processes if node is not None else {}
    return [each.process.pid for kind in NEEDED for each in known.get(kind, ())]


def death() -> str | None:
    """Return in words which of Ray's own processes has died; None while none has."""
    import ray

    node = ray._private.worker._global_node
    dead = [kind for kind, _ in node.dead_processes()] if node is not None else []
    needed = [kind for kind in dead if kind in NEEDED]
    return f"Ray has died on this machine: its process {needed[0]} has ended" if needed else None


def _start(hardware: Hardware, folder: Path, switch: StopSwitch) -> None:
    """Start Ray, again where it was too slow, unless the switch says stop. Raises RayNotStarted."""
    for attempt in range(1, STARTS + 1):
        if switch.stops:
            return
        try:
            with stage("starting Ray"):
                _init(hardware, folder)
        except Exception as error:  # Ray raises plain ones here, too
            logger.warning("Ray did not start (attempt %d): %s", attempt, error)
            _end(folder)
            if attempt == STARTS:
                raise RayNotStarted(f"Ray could not be started: {first_line(error)}") from None
        else:
            return


def _init(hardware: Hardware, folder: Path) -> None:
    import ray

    with (
        _loopback_alone(),
        _own_handler(),
        _deaf_to_hangups(),
        what_a_search_needs_alone(),
        failing_with_its_processes(),
    ):
        ray.init(
            address="local",
            num_cpus=sum(node.cpus for node in hardware.nodes),
            num_gpus=hardware.gpus,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            _temp_dir=str(folder / RAY_FOLDER),
            _node_ip_address="127.0.0.1",
            job_config=driver_settings(),
        )


def driver_settings() -> JobConfig:
    """Return what Ray is told of this driver.

    By default Ray puts the driver's folder, and that of its script, before what is installed in every process
    that trains: functions of a person's own may need modules there, and the command line needs none.
    """
    from ray.job_config import JobConfig

    # Ray leaves the folder out for drivers of Ray Client alone, which share none with the cluster
    return JobConfig(_client_job=imports_installed_alone())


def _end(folder: Path) -> None:
    """End Ray; where it has died, its processes are killed first, since they answer nobody."""
    import ray

    if not ray.is_initialized() or death() is not None:
        reaper.end_processes(str(folder))
    leave_ray()


@contextlib.contextmanager
def _loopback_alone() -> Iterator[None]:
    """Make Ray take 127.0.0.1 for this machine's address, where all its processes then listen alone.

    Ray has this for systems whose firewalls ask about every port, and resolves a 127.0.0.1 that it is given
    to the machine's own address everywhere else (`get_node_ip_address` in ray/_private/services.py). The
    variable reaches Ray's processes; this process has read it already.
    """
    from ray._private import ray_constants

    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


@contextlib.contextmanager
def what_a_search_needs_alone() -> Iterator[None]:
    """Have Ray start no monitor of an autoscaler, no reader of its workers' logs, and no dashboard's server.

    One machine is never scaled, and nobody asks the other two for anything. Together they take 2.7 s of a
    processor as the search begins, and 280 MiB for as long as it runs (Ray 2.60). ray.init has no argument
    for the first two, and starts a server without `include_dashboard`, too.
    """
    from ray._private.node import Node

    before = {name: getattr(Node, name) for name in UNNEEDED}
    for name in UNNEEDED:
        setattr(Node, name, lambda node, **named: None)
    try:
        yield
    finally:
        for name, method in before.items():
            setattr(Node, name, method)


@contextlib.contextmanager
def failing_with_its_processes() -> Iterator[None]:
    """Have Ray's start raise RayNotStarted once a process that it needs has ended.

    Ray itself asks for 30 s whether a node is there whose end it has seen (`Node.__init__` in
    ray/_private/node.py), and a head that has ended for a minute; then its C++ part ends this process.
    """
    from ray._private import services
    from ray.experimental import internal_kv

    start = services.start_ray_process
    questions = [(services, "get_node"), (internal_kv, "_internal_kv_get")]
    before = [(module, name, getattr(module, name)) for module, name in questions]
    started: list[tuple[str, subprocess.Popen[bytes]]] = []

    def start_and_note(command: list[str], kind: str, *more: Any, **named: Any) -> Any:
        info = start(command, kind, *more, **named)
        started.append((kind, info.process))
        return info

    def of_the_living(ask: Callable[..., Any]) -> Callable[..., Any]:
        def asked(*what: Any, **named: Any) -> Any:
            for kind, process in started:
                if kind in NEEDED and process.poll() is not None:
                    raise RayNotStarted(f"its process {kind} has ended")
            return ask(*what, **named)

        return asked

    services.start_ray_process = start_and_note
    for module, name, ask in before:
        setattr(module, name, of_the_living(ask))
    try:
        yield
    finally:
        services.start_ray_process = start
        for module, name, ask in before:
            setattr(module, name, ask)


@contextlib.contextmanager
def _own_handler() -> Iterator[None]:
    """Keep this process's handler of SIGTERM, which Ray replaces by one that raises SystemExit.

    Raised in a callback of a fork, as Ray's start makes them, that error is lost, and with it the signal.
    """
    from ray._private import utils

    before = utils.set_sigterm_handler
    utils.set_sigterm_handler = lambda handler: None
    try:
        yield
    finally:
        utils.set_sigterm_handler = before


@contextlib.contextmanager
def _deaf_to_hangups() -> Iterator[None]:
    """Have Ray's processes inherit that SIGHUP is blocked: a terminal that closes sends it to all of them,
    and trials can be saved only as long as they live. For this process it waits until the block ends."""
    heard = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, heard)


@contextlib.contextmanager
def _variables(folder: Path) -> Iterator[None]:
    """Set for the block what Ray's processes inherit: a new token, and the folder that marks them."""
    ours = {
        MODE: "token",
        TOKEN: secrets.token_hex(32),
        reaper.VARIABLE: str(folder),
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        ASKING: "1",
        HEAD_LOST: "10",
    }
    before = {name: os.environ.get(name) for name in ours}
    os.environ.update(ours)
    _read_token_again()
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        _read_token_again()


def _read_token_again() -> None:
    """Make Ray read the variables of its token, which it remembers from its import or its last start."""
    import ray

    ray._raylet.Config.initialize("")
    ray._raylet.AuthenticationTokenLoader.instance().reset_cache()


def _root() -> Path:
    """Return where Ray's folder is made: where temporary files are, or /tmp where that path is too long."""
    asked = [os.environ.get("RAY_TMPDIR"), tempfile.gettempdir()]
    room = LONGEST_FOLDER - len(PREFIX) - len("/12345678/r")
    short = (Path(each) for each in asked if each and Path(each).is_dir() and len(each) <= room)
    return next(short, Path("/tmp"))


def leave_ray() -> None:
    """Shut Ray down in this process, while Python collects no garbage in cycles; the process goes on.

    Ray ends the process, with all that it had to say, where a reference of Ray's is collected while Ray shuts
    down (ray-project/ray, src/ray/core_worker/core_worker_process.cc, `GetCoreWorker`). Ray Tune leaves
    references in cycles, and another thread may collect them at any time.
    """
    import ray

    gc.collect()
    with paused():
        ray.shutdown()  # noqa: TID251 - this is the place
