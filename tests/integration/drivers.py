"""Runs `tunebook ARGUMENTS` in a process of its own, to be waited for, killed, stopped or interrupted."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from search.record.journal import Event
from tests.integration import followers
from tests.integration.forks import FORKS
from tests.integration.processes import everyone, is_trial
from tests.integration.small_searches import events_in
from tests.waiting import PATIENCE_SECONDS, wait_until

# The drivers of the test that runs; those that a failed test leaves are ended after it
STARTED: list[Driver] = []


class Driver:
    """A driver in a session of its own: it runs the code `first`, and writes all it prints to `log`."""

    def __init__(self, *arguments: str | Path, log: Path, first: str = "", **variables: str) -> None:
        self.log = log
        words = [str(each) for each in arguments]
        environment = {**os.environ, **variables}
        given = (words, log, first, environment, followers.address())
        self.process = FORKS.Process(target=_drive, args=given, daemon=True)
        self.process.start()
        STARTED.append(self)

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    @property
    def exit_code(self) -> int | None:
        """Is None while it runs."""
        return self.process.exitcode

    def wait(self) -> int:
        self.process.join(PATIENCE_SECONDS)
        if self.exit_code is None:
            self.send(signal.SIGKILL)
            raise AssertionError(f"the driver did not end:\n{self.log.read_text()}")
        return self.exit_code

    def send(self, number: int) -> None:
        os.kill(self.pid, number)
        if number == signal.SIGKILL:
            self.process.join(PATIENCE_SECONDS)

    def end(self) -> None:
        """Kill the driver and all that it started, if it still runs, also where it was stopped."""
        if self.exit_code is None:
            for pid in everyone():
                if self._started(pid):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            self.process.join(PATIENCE_SECONDS)

    def send_to_all(self, number: int) -> None:
        os.killpg(self.pid, number)

    def trial_processes(self) -> list[int]:
        """Return this driver's processes that train trials: all that it starts stays in its session."""
        return [pid for pid in filter(is_trial, everyone()) if self._started(pid)]

    def _started(self, pid: int) -> bool:
        try:
            return os.getsid(pid) == self.pid
        except OSError:
            return False

    def wait_for(self, folder: Path, condition: Callable[[list[Event]], bool]) -> list[Event]:
        """Return the journal's events once they meet a condition."""
        self.wait_until(lambda: condition(events_in(folder)))
        return events_in(folder)

    def wait_until(self, holds: Callable[[], bool]) -> None:
        """Fail when that takes too long, or the driver ends before."""

        def holds_or_ends() -> bool:
            return holds() or self.exit_code is not None

        wait_until(holds_or_ends, fault=self.log.read_text)
        assert self.exit_code is None or holds(), f"the driver ended early:\n{self.log.read_text()}"


def tunebook(*arguments: str | Path, **variables: str) -> tuple[int, str]:
    """Return the exit code of `tunebook ARGUMENTS`, and all that it prints."""
    with TemporaryDirectory() as folder:
        driver = Driver(*arguments, log=Path(folder) / "log", **variables)
        return driver.wait(), driver.log.read_text()


def assert_all_agree(search: str | Path, **variables: str) -> None:
    """Fail unless `tunebook audit` finds every epoch of a search in all its parts, once."""
    code, said = tunebook("audit", search, **variables)
    assert (code, "agree" in said) == (0, True), said


def machine(folder: Path) -> dict[str, str]:
    """Return the variables of a process on a machine of its own: nothing of it is another one's."""
    return {"XDG_CACHE_HOME": str(folder / "cache"), "XDG_STATE_HOME": str(folder / "state")}


def _drive(words: list[str], log: Path, first: str, environment: dict[str, str], server: str) -> None:
    os.setsid()
    with log.open("ab") as out:
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
    os.environ.clear()
    os.environ.update(environment)
    exec(first)
    sys.argv = ["tunebook", *words]
    from search.followers import following
    from search.program import main
    from trainable.probes import speed

    following.start_process = followers.started_by(lambda: server)  # type: ignore[assignment]
    speed.SECONDS = 0.0  # as tests/conftest.py has it

    main()
