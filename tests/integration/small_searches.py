"""What the tests of whole searches share: small studies on digits, and a driver in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from search.record.home import EVENTS_FILE
from search.record.journal import EpochEvent, Event, read
from search.study import Study

PATIENCE_SECONDS = 600.0
"""No busy machine takes so long."""
POLL_SECONDS = 0.25
"""Reading a journal or listing a store more often takes the processor from what is waited for."""
BASE: dict[str, Any] = {"model.width": 4, "loop.batch_size": 64, "precision.kind": "fp32"}
COMMAND = "from search.__main__ import main; main()"


def digits_study(storage: Path, **values: Any) -> Study:
    """A study that takes seconds; `values` are dotted paths with __ for dots."""
    small = Study.from_tree(
        {
            "data": {"path": "digits"},
            "base": BASE,
            "budget": {"trials": 4, "epochs": 4},
            "scheduler": {"grace_epochs": 1, "reduction_factor": 2},
            "storage": str(storage),
        }
    )
    return small.with_values({path.replace("__", "."): value for path, value in values.items()})


class Driver:
    """`tunebook ARGUMENTS` in a process of its own, after the code `first`; to be killed or interrupted."""

    def __init__(self, *arguments: str | Path, log: Path, first: str = "", **variables: str) -> None:
        self.log = log
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-c", f"{first}\n{COMMAND}", *map(str, arguments)],
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), **variables},
                start_new_session=True,
            )

    def wait(self) -> int:
        try:
            return self.process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self.send(signal.SIGKILL)
            raise

    def send(self, number: int) -> None:
        self.process.send_signal(number)
        if number == signal.SIGKILL:
            self.process.wait(PATIENCE_SECONDS)

    def press_ctrl_c(self) -> None:
        """What a terminal does: the signal goes to the driver and to all that it started."""
        os.killpg(self.process.pid, signal.SIGINT)

    def trial_processes(self) -> list[int]:
        """This driver's processes that train trials, alive now."""
        return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if self._trains(pid)]

    def _trains(self, pid: int) -> bool:
        """All that a driver starts stays in its session; only trials' actors are named so."""
        try:
            title = Path(f"/proc/{pid}/cmdline").read_bytes()
            return os.getsid(pid) == self.process.pid and title.startswith(b"ray::") and b"Trainable" in title
        except OSError:
            return False

    def wait_for(self, folder: Path, condition: Callable[[list[Event]], bool]) -> list[Event]:
        """The journal's events once they meet a condition; fails when that takes too long."""
        until = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < until:
            events = events_in(folder)
            if condition(events):
                return events
            assert self.process.poll() is None, f"the driver ended early:\n{self.log.read_text()}"
            time.sleep(POLL_SECONDS)
        raise AssertionError(f"waited in vain:\n{self.log.read_text()}")


def events_in(folder: Path) -> list[Event]:
    return read(folder / EVENTS_FILE) if (folder / EVENTS_FILE).exists() else []


def epochs_by_trial(events: list[Event]) -> dict[int, list[int]]:
    """The epochs that were journaled, by trial, in order."""
    epochs: dict[int, list[int]] = {}
    for event in events:
        if isinstance(event, EpochEvent):
            epochs.setdefault(event.trial, []).append(event.epoch)
    return epochs


def machine(folder: Path) -> dict[str, str]:
    """The variables of a process on a machine of its own: nothing of it is another one's."""
    return {"XDG_CACHE_HOME": str(folder / "cache"), "XDG_STATE_HOME": str(folder / "state")}
