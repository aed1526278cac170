"""Sends a search to MLflow and to optuna-dashboard's database, from a process of its own.

What is sent is read from the journal, so the driver has no part in it: MLflow takes a processor at 30
to 60 results a second, and in the driver's process each decision would wait for it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import TYPE_CHECKING

from search.followers.consumer import Backlog
from search.followers.mirror import Mirror
from search.followers.tracker import Tracker
from search.record.home import LOG_FILE, MIRROR_FILE, Home
from search.results.export import recipe_text
from search.results.finals_table import winner_line
from search.results.search import Search
from search.running.log_file import logging_to
from search.study import Study
from search.study.code import NO_CODE, Code
from search.verdicts.conclusions import Conclusion, conclusion
from spaces.space import Space
from trainable.files.store import Store

if TYPE_CHECKING:  # torch takes seconds to import
    from torch.export import ExportedProgram

    from trainable.tune.carried import Carried

RECEIVERS = (Tracker.receiver, Mirror.receiver)
TOLD_SECONDS = 0.5
"""So often the process is told what it may send, where that changes."""
STARTS = 3
BEHIND_THE_DRIVER = 10  # its niceness: slots wait for decisions, nobody for MLflow; Ray's that train have 15
ENDED, SILENT = "the process that sends has ended", "the process that sends has not answered in time"
INSTALLED = str(Path(__file__).parents[2])  # where this program is, for a script that found it in its own way
PROGRAM = """
import signal, sys
for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # they are for the driver, which then closes
    signal.signal(each, signal.SIG_IGN)
sys.path.append(sys.argv[2])
from search.running.following import follow
follow(int(sys.argv[1]))
"""
MARGIN_SECONDS = 10.0
"""For so long it is waited for beyond the time that it was given."""

logger = logging.getLogger(__name__)


def tracker_of(home: Home, study: Study, model: Carried | None = None) -> Tracker:
    """Return the consumer that sends the journal of a study's search to MLflow.

    `model` builds the network, where it is a person's own.
    """
    search = Search(home.folder)  # its space is read once a trial is in the journal

    def program() -> ExportedProgram:
        from search.results.trained_trial import best_program

        code = NO_CODE if model is None else Code(model=model.load())
        return best_program(Search(home.folder), code)

    def conclude() -> Conclusion:
        summary = Search(home.folder).summary
        final = winner_line(summary.finals, summary.objective) if summary.finals is not None else ""
        return conclusion(summary, final)

    return Tracker(
        home,
        study,
        lambda trial: recipe_text(trial.whole_recipe, search.space),
        conclude,
        lambda: search.info,
        program,
    )


@dataclass(frozen=True)
class Followed:
    """A search as its followers need it."""

    folder: Path
    store: str | None
    study: Study
    space: Space
    model: Carried | None

    def tracker(self) -> Tracker:
        home = Home(self.folder, None if self.store is None else Store(self.store))
        return tracker_of(home, self.study, self.model)

    def mirror(self) -> Mirror:
        return Mirror(self.folder, self.study, self.space)


@dataclass(frozen=True)
class May:
    """Whether MLflow may be sent anything now, and of how many of the journal's first bytes."""

    send: bool = True
    until: int | None = None


@dataclass(frozen=True)
class Request:
    """Asks MLflow to catch up with the journal, or, at the end, both receivers to get the `rest` of it."""

    number: int
    seconds: float  # for each receiver
    is_last: bool = False
    rest: bool = True


class Following:
    """Keeps a process at work that runs the followers of a search, until it is closed.

    `may` says what MLflow may be sent now; without it, everything. A process that ends is started again,
    twice. Nothing raises: what went wrong is in the backlogs, which are known when it is closed.
    """

    def __init__(self, followed: Followed, may: Callable[[], May] = May) -> None:
        self.backlogs: list[Backlog] = []
        self._followed, self._may = followed, may
        self._told = May()
        self._process: subprocess.Popen[bytes] | None = None
        self._line: Connection | None = None
        self._starts = self._requests = 0
        self._is_over, self._has_begun = threading.Event(), threading.Event()
        self._uses = threading.Lock()  # of the line and the process
        self._keeper = threading.Thread(target=self._keep, name="keeps what follows", daemon=True)
        self._keeper.start()

    @property
    def process_id(self) -> int | None:
        """The process that sends; None before it has been started."""
        return None if self._process is None else self._process.pid

    def catch_up(self, seconds: float) -> None:
        """Wait until MLflow has what the journal holds now, or has failed to get it."""
        self._ask(seconds)

    def close(self, seconds: float, *, rest: bool = True) -> None:
        """Have the rest sent, and end the process; a slow receiver gets so many seconds, a dead one less."""
        answer = self._ask(seconds, is_last=True, rest=rest)
        self._is_over.set()
        self._keeper.join(MARGIN_SECONDS)
        if isinstance(answer, str):
            answer = [Backlog(receiver, 0, answer) for receiver in RECEIVERS]
        self.backlogs = answer
        if self._line is not None:
            self._line.close()
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(MARGIN_SECONDS)
            self._process.kill()
            self._process.wait()

    def _ask(self, seconds: float, *, is_last: bool = False, rest: bool = True) -> list[Backlog] | str:
        """Return what the receivers lack, or in words why nobody has answered."""
        deadline = time.monotonic() + seconds * (len(RECEIVERS) if is_last else 1) + MARGIN_SECONDS
        if not (self._has_begun.wait(MARGIN_SECONDS) and self._uses.acquire(timeout=MARGIN_SECONDS)):
            return SILENT
        try:
            if self._line is None:
                return ENDED
            if is_last:
                self._is_over.set()  # a process that ends now is not started again
            self._requests += 1
            _say(self._line, Request(self._requests, seconds, is_last, rest))
            while (left := deadline - time.monotonic()) > 0.0:
                if not self._line.poll(min(left, TOLD_SECONDS)):
                    self._tell()  # the answer may wait for what arrives in a store meanwhile
                    continue
                number, answer = self._line.recv()
                if number == self._requests:  # else it is that of an earlier one, which was not waited for
                    return list(answer)
        except (OSError, EOFError):
            return ENDED
        else:
            return SILENT
        finally:
            self._uses.release()

    def _tell(self) -> None:
        """Tell the process what it may send, where that has changed."""
        if self._line is not None and (now := self._may()) != self._told:
            _say(self._line, now)
            self._told = now

    def _keep(self) -> None:
        """Start the process, again if it ends, and tell it what may be sent."""
        while not self._is_over.is_set():
            if self._uses.acquire(timeout=TOLD_SECONDS):  # else a request is being answered
                try:
                    if self._is_over.is_set():
                        return
                    if self._process is None or self._process.poll() is not None:
                        self._start()
                    else:
                        self._tell()
                except Exception as error:  # the search goes on
                    logger.error("MLflow and %s: %s", MIRROR_FILE, error)
                finally:
                    self._has_begun.set()
                    self._uses.release()
            self._is_over.wait(TOLD_SECONDS)

    def _start(self) -> None:
        """Start the process, unless that has been done too often."""
        if self._process is not None:
            words = f"the process that sends has ended, with code {self._process.returncode}"
            logger.error("MLflow and %s: %s", MIRROR_FILE, words)
        if self._starts == STARTS:
            self._is_over.set()
            self._line = None
            return
        self._starts += 1
        self._line, theirs = Pipe()
        with theirs:  # closed before anything is sent: else nobody would notice that the process has ended
            self._process = start_process(theirs.fileno(), self._followed.folder / LOG_FILE)
        self._told = self._may()
        self._line.send((self._followed, self._told))


def start_process(handle: int, log: Path) -> subprocess.Popen[bytes]:
    """Start the process that runs `follow` with a file handle of this one; `log` gets why, if it fails."""
    with log.open("ab") as said:
        return subprocess.Popen(
            [sys.executable, "-P", "-c", PROGRAM, str(handle), INSTALLED],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=said,
            pass_fds=[handle],
            start_new_session=True,  # Ctrl-C is for the driver, which then closes
        )


def _say(line: Connection, message: May | Request) -> None:
    """Send the process something small; raise OSError where it has ended, or reads nothing any more."""
    if not select.select([], [line], [], MARGIN_SECONDS)[1]:
        raise OSError(SILENT)
    line.send(message)


def follow(handle: int) -> None:
    """Do the work of `Following` in its process, through a file handle that the driver has opened.

    It ends when the driver says so, or has died: then the next driver, or `tunebook sync`, sends the rest.
    """
    os.nice(BEHIND_THE_DRIVER)
    line = Connection(handle)
    with contextlib.suppress(EOFError, OSError):
        followed, may = line.recv()
        with logging_to(followed.folder / LOG_FILE):
            try:
                _follow(line, followed, may)
            except (EOFError, OSError):
                raise
            except Exception:
                logger.exception("MLflow and %s", MIRROR_FILE)
    os._exit(0)


def _follow(line: Connection, followed: Followed, may: May) -> None:
    tracker, mirror = followed.tracker(), followed.mirror()

    def answer(request: Request) -> None:
        if not request.is_last:
            line.send((request.number, [tracker.catch_up(request.seconds)]))
            return
        left = [each.close(request.seconds, rest=request.rest) for each in (tracker, mirror)]
        line.send((request.number, left))
        os._exit(0)  # a delivery that has not ended by now is left to `tunebook sync`

    tracker.start(lambda: may.send, lambda: may.until)
    mirror.start(lambda: may.send)
    while True:
        match line.recv():
            case May() as may:
                pass
            case Request() as request:  # what may be sent may change before it is answered
                threading.Thread(target=answer, args=(request,), daemon=True).start()
