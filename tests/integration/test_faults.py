"""What is no trial's fault costs no trial: a full disk, a Ray that dies, a driver that is killed."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from search.commands.asked import resolved_study
from search.commands.guests import driver, sync
from search.learning.search import Search
from search.record.journal import EndEvent, RetryEvent, SearchEvent
from search.running import reaper
from search.running.private_ray import PREFIX
from tests import session
from tests.full_disk import fill, make_read_only, small_disk
from tests.integration.drivers import Driver, assert_all_agree, tunebook
from tests.integration.processes import (
    THIS_MACHINE,
    children,
    command_of,
    environment_of,
    everyone,
    is_below,
    is_rank,
    listening,
    name_of,
    processor_seconds,
)
from tests.integration.small_searches import digits_study, epochs_by_trial, events_in, has_epochs
from tests.waiting import wait_until
from trainable.errors import UserError
from trainable.tune.causes import cause_of

pytestmark = pytest.mark.integration

EPOCHS = 16  # so many epochs last through all drivers of a test, each of which trains a few
MPS = {"CUDA_MPS_PIPE_DIRECTORY": "/tmp/mps-of-mine"}  # what CUDA's MPS needs to be found


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A folder for temporary files with a path that is short enough for Ray's sockets."""
    folder = Path(tempfile.mkdtemp(prefix="tb-", dir="/tmp"))
    session.watch(str(folder))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def written_study(folder: Path, trials: int, epochs: int) -> Path:
    """The file of a study whose trials train one after the other, to the end; its search is `mine`."""
    study = digits_study(folder / "storage", name="mine", budget__trials=trials, budget__epochs=epochs)
    study = study.with_values({"scheduler.kind": "none", "base.model.width": 16})
    study.write(folder)
    return folder / "study.yaml"


def assert_broken_off(driver: Driver, folder: Path, fault: str) -> None:
    """The last word is a closing event, the reason, and the command that goes on; no trial is to blame."""
    assert driver.wait() == 1, driver.log.read_text()
    said = driver.log.read_text()
    assert fault in said
    assert f"resume {folder}" in said
    assert "Traceback" not in said
    assert not [each for each in events_in(folder) if isinstance(each, RetryEvent)]
    assert Search(folder).state == "interrupted"


@pytest.mark.scenario
def test_a_full_disk_interrupts_the_search_and_costs_no_trial(tmp_path: Path) -> None:
    """MLflow's database and files, and Optuna's copy, are on the same disk."""
    with small_disk(megabytes=40) as disk:
        study, folder = written_study(disk, trials=2, epochs=6), disk / "storage" / "mine"
        log = tmp_path / "log"
        driver = Driver("search", study, log=log)
        driver.wait_for(folder, has_epochs(2))
        ballast = fill(disk)
        assert driver.wait() == 1, log.read_text()
        assert "No space left on device" in log.read_text()
        assert f"resume {folder}" in log.read_text()
        assert "Traceback" not in log.read_text()
        assert not [each for each in events_in(folder) if isinstance(each, RetryEvent | EndEvent)]
        assert Search(folder).state == "interrupted"

        code, said = tunebook("resume", folder)
        assert (code, "Traceback" in said) == (1, False), said
        ballast.unlink()
        code, said = tunebook("resume", folder)
        assert code == 0, said
        assert epochs_by_trial(events_in(folder)) == {trial: list(range(1, 7)) for trial in range(2)}
        assert_all_agree(folder)


def test_a_search_on_a_read_only_disk_is_refused_in_one_line(tmp_path: Path) -> None:
    with small_disk(megabytes=1) as disk:
        study = digits_study(tmp_path, name="mine").with_values({"storage": str(disk)})
        study.write(disk / "mine")
        make_read_only(disk)
        for go_on in (driver().resume, sync):
            with pytest.raises(UserError, match="mine: cannot be written to: Read-only file system"):
                go_on(disk / "mine")


@pytest.mark.scenario
def test_whatever_ends_ray_or_the_driver_a_search_goes_on_and_nothing_is_left(
    tmp_path: Path, temporary: Path
) -> None:
    """In turn Ray's head, its node and the driver are killed."""
    study, folder = written_study(tmp_path, trials=1, epochs=EPOCHS), tmp_path / "storage" / "mine"

    logs = iter(tmp_path / f"log-{number}" for number in range(4))

    def begin(*words: str | Path) -> Driver:
        return Driver(*words, log=next(logs), RAY_TMPDIR=str(temporary), **MPS)

    def begin_and_train(*words: str | Path) -> Driver:
        before = len(epochs_by_trial(events_in(folder)).get(0, [])) if folder.exists() else 0
        driver = begin(*words)
        driver.wait_for(folder, has_epochs(before + 2))
        return driver

    first = begin_and_train("search", study)
    assert_private(first, temporary)
    kill(first, "gcs_server")
    assert_broken_off(first, folder, "Ray has died on this machine: its process gcs_server has ended")
    assert_nothing_left(temporary)

    second = begin_and_train("resume", folder)
    kill(second, "raylet")
    assert_broken_off(second, folder, "Ray has died on this machine: its process raylet has ended")
    assert_nothing_left(temporary)

    third = begin_and_train("resume", folder)
    third.send(signal.SIGKILL)
    wait_until(lambda: not own_processes(temporary) and not list(temporary.glob(f"{PREFIX}*")))

    last = begin("resume", folder)
    assert last.wait() == 0, last.log.read_text()
    events = events_in(folder)
    assert epochs_by_trial(events) == {0: list(range(1, EPOCHS + 1))}
    states = [each.state for each in events if isinstance(each, SearchEvent)]
    assert states == [
        *("started", "interrupted", "resumed", "interrupted"),
        *("resumed", "resumed", "finished"),
    ]
    assert_all_agree(folder)


TOO_SLOW = """
from ray._private import node

class Slow(node.Node):
    def __init__(self, *words, **named):
        raise Exception("The current node timed out during startup.")

node.Node = Slow
"""


def test_a_process_that_ray_kills_for_memory_ends_its_trial_and_not_the_search(tmp_path: Path) -> None:
    """Ray's monitor finds memory all but full at its first look, after the trial has trained for a while."""
    study = written_study(tmp_path, trials=1, epochs=1000)
    monitor = {"RAY_memory_usage_threshold": "0.01", "RAY_memory_monitor_refresh_ms": "12000"}
    driver = Driver("search", study, "--set", "limits.retries=0", log=tmp_path / "log", **monitor)
    assert driver.wait() == 1
    said = driver.log.read_text()
    assert "the search failed: no trial finished" in said
    assert "Traceback" not in said
    end = next(each for each in events_in(tmp_path / "storage" / "mine") if isinstance(each, EndEvent))
    assert end.state == "failed"
    assert end.reason is not None
    assert "low on memory" in end.reason


def test_a_ray_that_does_not_start_has_a_last_word_too(tmp_path: Path, temporary: Path) -> None:
    study, folder = written_study(tmp_path, trials=1, epochs=1), tmp_path / "storage" / "mine"
    log = tmp_path / "log"
    slow = Driver("search", study, log=log, first=TOO_SLOW, RAY_TMPDIR=str(temporary))
    assert_broken_off(slow, folder, "Ray could not be started: The current node timed out during startup.")
    assert_nothing_left(temporary)
    assert_all_agree(folder)


TERMINATED = """
import os, signal
from ray._private import node

class Terminated(node.Node):
    def __init__(self, *words, **named):
        os.kill(os.getpid(), signal.SIGTERM)
        raise Exception("The current node timed out during startup.")

node.Node = Terminated
"""


def test_a_search_that_is_terminated_while_ray_starts_does_not_start_it_again(
    tmp_path: Path, temporary: Path
) -> None:
    study, folder = written_study(tmp_path, trials=1, epochs=1), tmp_path / "storage" / "mine"
    log = tmp_path / "log"
    stopped = Driver("search", study, log=log, first=TERMINATED, RAY_TMPDIR=str(temporary))
    assert stopped.wait() == 143, log.read_text()
    assert f"resume {folder}" in log.read_text()
    assert "Traceback" not in log.read_text()
    assert Search(folder).state == "interrupted"
    assert_nothing_left(temporary)
    assert_all_agree(folder)


@pytest.mark.scenario
def test_a_rank_that_is_killed_in_a_collective_costs_no_epoch_that_was_saved(
    tmp_path: Path, ray_session: None
) -> None:
    """Rank 1 is stopped, and killed as soon as rank 0 computes no more, since it waits for rank 1."""
    study = digits_study(tmp_path, name="mine", budget__trials=1, budget__epochs=8, resources__workers=2)
    study, folder = study.with_values({"scheduler.kind": "none"}), tmp_path / "mine"
    killer = threading.Thread(target=kill_a_waiting_rank_s_partner, args=(folder,))
    killer.start()
    assert driver().search(resolved_study(study)) == "finished"
    killer.join()
    events = events_in(folder)
    assert epochs_by_trial(events) == {0: list(range(1, 9))}
    (retry,) = [each for each in events if isinstance(each, RetryEvent)]
    assert cause_of(retry.reason) == "infrastructure"
    assert_all_agree(folder)


def kill_a_waiting_rank_s_partner(folder: Path) -> None:
    wait_until(lambda: has_epochs(3)(events_in(folder)), every=0.05)
    first, second = sorted(pid for pid in filter(is_rank, everyone()) if is_below(pid, os.getpid()))
    os.kill(second, signal.SIGSTOP)
    computed: list[float] = []

    def is_waiting() -> bool:
        computed.append(processor_seconds(first))
        return len(computed) > 1 and computed[-1] - computed[-2] < 0.05

    wait_until(is_waiting, every=0.5)
    os.kill(second, signal.SIGKILL)


def own_processes(temporary: Path) -> list[int]:
    """The processes of the private Ray whose folder is below another one."""
    found = (str(each) for each in temporary.glob(f"{PREFIX}*"))
    return [pid for folder in found for pid in reaper.processes_of(folder)]


def kill(driver: Driver, name: str) -> None:
    """Kill the process of Ray that has a name, among those that a driver has started."""
    (found,) = [each for each in children(driver.pid) if name_of(each) == name]
    os.kill(found, signal.SIGKILL)


def assert_private(driver: Driver, temporary: Path) -> None:
    """Nobody else can open the folder, every port is one of this machine's own address, and all is needed."""
    (folder,) = temporary.glob(f"{PREFIX}*")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    processes = [driver.pid, *own_processes(temporary)]
    assert {"gcs_server", "raylet"} < set(map(name_of, processes))
    commands = " ".join(map(command_of, processes))
    assert not [each for each in ("monitor.py", "dashboard/dashboard.py") if each in commands]
    assert {address for pid in processes for address in listening(pid)} <= THIS_MACHINE
    assert all(listening(pid) for pid in processes if name_of(pid) in ("gcs_server", "raylet"))
    for pid in processes[1:]:
        if name_of(pid) in ("gcs_server", "raylet"):  # a title that others give themselves hides variables
            variables = environment_of(pid)
            assert "RAY_AUTH_MODE=token" in variables
            assert {f"{name}={value}" for name, value in MPS.items()} <= set(variables)
        assert "/tmp/ray/" not in command_of(pid)


def assert_nothing_left(temporary: Path) -> None:
    assert not os.listdir(temporary)
