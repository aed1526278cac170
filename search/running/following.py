"""Sends a search to MLflow and to optuna-dashboard's database, from a process of its own.

What is sent is read from the journal, so the driver has no part in it: at a hundred results a second MLflow
takes more than a processor, and in the driver's process each decision would wait for it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import TYPE_CHECKING

from search.followers.consumer import Backlog, Consumer
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
BEHIND_THE_DRIVER = 10
"""Its niceness: slots wait for decisions, and nobody for MLflow. Ray's processes that train have 15."""
MARGIN_SECONDS = 10.0
"""For so long it is waited for beyond the time that it was given."""

logger = logging.getLogger(__name__)


def tracker_of(home: Home, study: Study, model: Carried | None = None) -> Tracker:
    """Returns the consumer that sends the journal of a study's search to MLflow.

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
    """Says what is followed: the first message to the process."""

    folder: Path
    store: str | None
    study: Study
    space: Space
    model: Carried | None

    def followers(self) -> list[Consumer]:
        home = Home(self.folder, None if self.store is None else Store(self.store))
        return [tracker_of(home, self.study, self.model), Mirror(self.folder, self.study, self.space)]


@dataclass(frozen=True)
class May:
    """Says whether anything may be sent now, and of how many of the journal's first bytes."""

    send: bool = True
    until: int | None = None


@dataclass(frozen=True)
class Ask:
    """Asks to send what the journal holds now, in so many seconds for each receiver.

    The answer is what is lacking then. One that is the `last` ends the process; without `rest`, at once.
    """

    seconds: float
    last: bool = False
    rest: bool = True


class Following:
    """Runs the followers of a search in a process of their own until it is closed.

    `may` says what may be sent, now; without it, everything may. No method raises: what went wrong is in the
    backlogs, as what the receivers lacked when that was asked last.
    """

    def __init__(self, followed: Followed, may: Callable[[], May] | None = None) -> None:
        self.backlogs: list[Backlog] = []
        self._line, theirs = Pipe()
        self._over = threading.Event()
        self._says = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        command = [sys.executable, "-m", __name__, str(theirs.fileno())]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
            self._say(followed)
        except OSError as error:
            self._lacks(f"no process that sends could be started: {error.strerror}")
        finally:
            theirs.close()
        if may is not None:
            threading.Thread(target=self._tell, args=(may,), name="what may be sent", daemon=True).start()

    @property
    def process_id(self) -> int | None:
        """The process that sends; None where it could not be started."""
        return None if self._process is None else self._process.pid

    def catch_up(self, seconds: float) -> None:
        """Wait until the receivers have what the journal holds now, or have failed to get it."""
        self._ask(Ask(seconds))

    def close(self, seconds: float, *, rest: bool = True) -> None:
        """Have the rest sent, and end the process; a slow receiver gets so many seconds, a dead one less."""
        self._over.set()
        self._ask(Ask(seconds, last=True, rest=rest))
        self._line.close()
        if self._process is not None:
            try:
                self._process.wait(MARGIN_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def _ask(self, question: Ask) -> None:
        try:
            self._say(question)
            if self._line.poll(question.seconds * len(RECEIVERS) + MARGIN_SECONDS):
                self.backlogs = self._line.recv()
            else:
                self._lacks("has not answered in time")
        except (OSError, EOFError):
            self._lacks("the process that sends has ended")

    def _say(self, message: Followed | May | Ask) -> None:
        with self._says:
            self._line.send(message)

    def _lacks(self, why: str) -> None:
        if not any(backlog.error for backlog in self.backlogs):
            logger.error("MLflow and %s: %s", MIRROR_FILE, why)
            self.backlogs = [Backlog(each, 0, why) for each in RECEIVERS]

    def _tell(self, may: Callable[[], May]) -> None:
        told = None
        while not self._over.wait(TOLD_SECONDS):
            if (now := may()) != told:
                told = now
                with contextlib.suppress(OSError):  # the next question says that the process has ended
                    self._say(now)


def follow(line: Connection) -> None:
    """Do the work of `Following` in its process: it ends when the driver says so, or has died."""
    followed: Followed = line.recv()
    may, followers = May(), followed.followers()

    def answer(question: Ask) -> None:
        if question.last:
            line.send([each.close(question.seconds, rest=question.rest) for each in followers])
            os._exit(0)  # a delivery that has not ended by now is left to `tunebook sync`
        line.send([each.catch_up(question.seconds) for each in followers])

    with logging_to(followed.folder / LOG_FILE):
        for each in followers:
            each.start(lambda: may.send, lambda: may.until)
        while True:
            match line.recv():
                case May() as may:
                    pass
                case Ask() as question:  # what may be sent may change before it is answered
                    threading.Thread(target=answer, args=(question,), daemon=True).start()


def main(handle: int) -> None:
    """Follow what is asked for through a file handle that the driver has opened."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # the driver is told, too, and closes
        signal.signal(number, signal.SIG_IGN)
    os.nice(BEHIND_THE_DRIVER)
    with contextlib.suppress(EOFError, OSError):
        follow(Connection(handle))
    os._exit(0)  # the driver has died: what it has left is sent when the search goes on


if __name__ == "__main__":
    from search.running import following  # messages are of its classes

    following.main(int(sys.argv[1]))
