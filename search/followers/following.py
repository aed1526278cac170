"""The process that sends a search to MLflow and to optuna-dashboard's database.

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
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from search.followers.conclusions import Conclusion, conclusion
from search.followers.consumer import Backlog
from search.followers.in_store import InStore
from search.followers.mirror import Mirror
from search.followers.tracker import Tracker
from search.learning.search import Search
from search.record.folder import read_search
from search.record.home import LOG_FILE, MIRROR_FILE, Home
from search.record.lease import Lease
from search.reporting.tables import winner_line
from search.results.export import text_of_trial
from search.running.guests import Followed
from search.running.log_file import logging_to
from search.running.switch import StopSwitch
from search.study import Study
from search.study.code import NO_CODE, Code
from trainable.bench import Say
from trainable.collector import paused
from trainable.stages import stage

if TYPE_CHECKING:  # torch takes seconds to import
    from torch.export import ExportedProgram

    from trainable.tune.carried import Carried

RECEIVERS = (Tracker.receiver, Mirror.receiver)
TOLD_SECONDS = 0.5  # so often the process is told what it may send, where that changes
DRAIN_SECONDS = 60.0  # the end of a search waits so long for MLflow, and leaves the rest to `tunebook sync`
STARTS = 3
BEHIND_THE_DRIVER = 10  # its niceness: slots wait for decisions, nobody for MLflow; Ray's that train have 15
ENDED, SILENT = "the process that sends has ended", "the process that sends has not answered in time"
INSTALLED = str(Path(__file__).parents[2])  # where this program is, for a script that found it in its own way
PROGRAM = """
import signal, sys
for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # they are for the driver, which then closes
    signal.signal(each, signal.SIG_IGN)
sys.path.append(sys.argv[2])
from search.followers.following import follow
follow(int(sys.argv[1]))
"""
MARGIN_SECONDS = 10.0  # an answer is waited for so long beyond the time that was given

logger = logging.getLogger(__name__)


def tracker_of(home: Home, study: Study, model: Carried | None = None) -> Tracker:
    """Return the consumer that sends the journal of a study's search to MLflow.

    `model` builds the network, where it is a person's own.
    """
    search = Search(home.folder)  # its space is read once a trial is in the journal

    def program() -> ExportedProgram:
        with paused():  # torch takes seconds to import
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
        lambda trial: text_of_trial(trial, search),
        conclude,
        lambda: search.info,
        program,
    )


def mirror_of(followed: Followed) -> Mirror:
    """Return the consumer that copies a search for optuna-dashboard."""
    return Mirror(followed.home.folder, followed.study, followed.space)


def in_store_of(home: Home, lease: Lease | None) -> InStore | None:
    """Return the consumer that copies a search to its store; None where it has no store."""
    return InStore(home.folder, home.store, lease) if home.store is not None and lease is not None else None


@dataclass(frozen=True)
class Permission:
    """Whether MLflow may be sent anything now, and of how many of the journal's first bytes."""

    send: bool = True
    until: int | None = None


@dataclass(frozen=True)
class Request:
    """A request that MLflow catch up with the journal, or, at the end, both receivers to get the `rest` of
    it."""

    number: int
    seconds: float  # for each receiver
    is_last: bool = False
    rest: bool = True


class Following:
    """A process that runs the followers of a search, and is kept at work until it is closed.

    `may` says what MLflow may be sent now; without it, everything. A process that ends is started again,
    twice. Nothing raises: what went wrong is in the backlogs, which are known when it is closed.
    """

    def __init__(self, followed: Followed, may: Callable[[], Permission] = Permission) -> None:
        self.backlogs: list[Backlog] = []
        self._followed, self._may = followed, may
        self._told = Permission()
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
            _send(self._line, Request(self._requests, seconds, is_last, rest))
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
            _send(self._line, now)
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
            self._process = start_process(theirs.fileno(), self._followed.home.folder / LOG_FILE)
        self._told = self._may()
        self._line.send((self._followed, self._told))


class Deliveries:
    """All followers of one search: MLflow and optuna-dashboard by a process of their own, and its store.

    Raises UserError where MLflow cannot be sent anything.
    """

    def __init__(self, followed: Followed, lease: Lease | None, say: Say) -> None:
        self._followed, self._say = followed, say
        self._in_store = in_store_of(followed.home, lease)
        self._following: Following | None = None
        # its faults are told before anything begins
        tracker_of(followed.home, followed.study, followed.model)

    @contextlib.contextmanager
    def at_work(self, switch: StopSwitch) -> Iterator[None]:
        """Send what the journal holds to all of them in the block, and let them catch up at its end.

        They do not catch up where another driver has taken the search over: then the journal here is no
        longer the search's. A driver that takes over goes on from the store: what MLflow had beyond that
        would be there twice.
        """
        in_store = self._in_store
        if in_store is None:
            following = Following(self._followed)
        else:
            in_store.start(lambda: switch.sure)
            following = Following(self._followed, lambda: Permission(switch.sure, in_store.stored_bytes))
        self._following = following
        try:
            yield
        finally:
            with stage("sending the last results, and the best network, to MLflow"):
                following.close(DRAIN_SECONDS, rest=not switch.lost)
            if in_store is not None:  # last: it copies what the others wrote
                with stage("sending the last files to the object store"):
                    in_store.close(DRAIN_SECONDS, rest=not switch.lost)

    def has_stored(self, trial: int) -> bool:
        return self._in_store is None or self._in_store.has_stored(trial)

    def catch_up(self, seconds: float) -> None:
        if self._following is not None:
            with stage("waiting for MLflow"):
                self._following.catch_up(seconds)

    def say_what_is_lacking(self) -> None:
        backlogs = [] if self._following is None else list(self._following.backlogs)
        if self._in_store is not None:
            backlogs.append(self._in_store.backlog())
        for line in undelivered(backlogs, self._followed.home.address):
            self._say(line)


def undelivered(backlogs: Iterable[Backlog], address: str) -> Iterator[str]:
    """Yield what followers lack at the end of a search, with the command that sends it, or have refused."""
    for backlog in backlogs:
        if not backlog.complete:
            yield f"{backlog}; send it with `tunebook sync {quote(address)}`"
        elif backlog.refused:
            yield str(backlog)


def sync(home: Home, lease: Lease | None, say: Say) -> bool:
    """Send MLflow, and the search's store, what they lack; return whether nothing is left to send."""
    search = Search(home.folder)
    settled = search.record.settled  # read first: where the journal is damaged, nothing is written
    with stage("sending what MLflow lacks"):
        backlogs = [tracker_of(home, read_search(home.folder)).sync()]
    if settled is not None:
        with stage("writing optuna.db"):
            backlogs.append(mirror_of(Followed(home, search.study, search.space, None)).sync())
    if (in_store := in_store_of(home, lease)) is not None:
        with stage("sending files to the object store"):
            backlogs.append(in_store.sync())
    for backlog in backlogs:
        say(str(backlog))
    return all(backlog.complete for backlog in backlogs)


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


def _send(line: Connection, message: Permission | Request) -> None:
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
        with logging_to(followed.home.folder / LOG_FILE):
            try:
                _follow(line, followed, may)
            except (EOFError, OSError):
                raise
            except Exception:
                logger.exception("MLflow and %s", MIRROR_FILE)
    os._exit(0)


def _follow(line: Connection, followed: Followed, may: Permission) -> None:
    tracker, mirror = tracker_of(followed.home, followed.study, followed.model), mirror_of(followed)

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
            case Permission() as may:
                pass
            case Request() as request:  # what may be sent may change before it is answered
                threading.Thread(target=answer, args=(request,), daemon=True).start()
