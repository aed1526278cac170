"""The arms that are others' searches, each in a process of its own, in the same simulation as ours.

Most need packages that this project does not: `python benchmarks/peer_environments.py` makes an environment
for each from the pinned list beside its program. A peer is told the space, the ends of a training, and how
good its trials are after each epoch; it decides what trains next, and for how long.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from offline.beliefs import Worth
from offline.peers.serving import READY, Asked
from offline.replay import Replayed, Search
from offline.search_task import BareSpace, SearchTask
from offline.translation import values_of
from search.record.journal import TrialEnd
from spaces.domains import Values
from trainable.files.paths import cache_root

BENCHMARKS = Path(__file__).parents[1]
PROGRAMS = BENCHMARKS / "offline" / "peers"
LAST_LINES = 15


@dataclass(frozen=True)
class PeerArm:
    """One arm: its program in `peers/`, the program's words, and the environment that runs it.

    Without an environment it runs in the project's own.
    """

    program: str
    words: tuple[str, ...] = ()
    environment: str | None = None
    priors: Worth | None = None

    def sources(self) -> list[str]:
        """Return the files on which its results depend."""
        names = [f"{self.program}.py", *([f"{self.environment}.txt"] if self.environment else [])]
        return [f"benchmarks/offline/peers/{name}" for name in names]


PEERS: dict[str, PeerArm] = {  # PriorBand without priors perturbs the best trial, and draws evenly
    "optuna-gp+hyperband": PeerArm("optuna_gp"),
    "syne-tune-asha": PeerArm("syne_tune", ("ASHA",), "syne_tune"),
    "syne-tune-bohb": PeerArm("syne_tune", ("BOHB",), "syne_tune"),
    "syne-tune-mobster": PeerArm("syne_tune", ("MOBSTER",), "mobster"),
    "smac-multifidelity": PeerArm("smac", (), "smac"),
    "neps-hyperband": PeerArm("neps", ("hyperband",), "neps"),
    "neps-priorband": PeerArm("neps", ("priorband",), "neps"),
    "neps-priorband right": PeerArm("neps", ("priorband",), "neps", "right"),
    "neps-priorband off": PeerArm("neps", ("priorband",), "neps", "off"),
    "neps-priorband adversarial": PeerArm("neps", ("priorband",), "neps", "adversarial"),
}


def pins(environment: str) -> Path:
    """Return the list of an environment's packages."""
    return PROGRAMS / f"{environment}.txt"


def folder_of(environment: str) -> Path:
    """Return where an environment with just these packages is, or is to be made."""
    digest = hashlib.sha256(pins(environment).read_bytes()).hexdigest()[:12]
    return cache_root() / "peers" / f"{environment}-{digest}"


def python_of(arm: PeerArm) -> Path:
    """Return the interpreter that runs an arm."""
    return folder_of(arm.environment) / "bin" / "python" if arm.environment else Path(sys.executable)


def missing_environments(arms: Iterable[PeerArm]) -> str:
    """Say which environments of arms there are not, and how they are made; nothing if all are there."""
    missing = sorted({arm.environment for arm in arms if arm.environment and not python_of(arm).exists()})
    if not missing:
        return ""
    return (
        f"expected environments for {', '.join(missing)} in {cache_root() / 'peers'}; make them with:\n"
        f"    python benchmarks/peer_environments.py {' '.join(missing)}"
    )


class PeerSearch(Search):
    """A search by a peer's process. Use it in a `with` statement, which ends the process."""

    def __init__(self, task: SearchTask, space: BareSpace, command: list[str], asked: Asked) -> None:
        super().__init__(task.begin(), task.epochs)
        self._space = space
        self._command = command
        self._asked = asked

    def __enter__(self) -> PeerSearch:
        with ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            self._errors = stack.enter_context((Path(folder) / "errors.txt").open("w+"))
            self._process = stack.enter_context(
                subprocess.Popen(
                    self._command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=self._errors,
                    text=True,
                    cwd=folder,
                    env={**os.environ, "PYTHONPATH": str(BENCHMARKS), "OMP_NUM_THREADS": "1"},
                )
            )
            stack.callback(self._process.terminate)
            self._send(asdict(self._asked))
            while self._read() != READY:
                pass
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def ask(self) -> tuple[int, Values]:
        number, given = self._answer("ask")
        return number, values_of(self._space, given)

    def begin(self, number: int, values: Values) -> None:
        """Tell a peer nothing: none can be told that it got other values than it asked for."""

    def report(self, number: int, epoch: int, score: float) -> bool:
        goes_on: bool = self._answer("report", number, epoch, score)
        return goes_on

    def end(self, number: int, outcome: TrialEnd, scores: Mapping[int, float]) -> None:
        if outcome == "diverged":
            self._answer("diverged", number)

    def _answer(self, *question: object) -> Any:
        self._send(question)
        return json.loads(self._read())

    def _send(self, message: object) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None

    def _read(self) -> str:
        assert self._process.stdout is not None
        if line := self._process.stdout.readline():
            return line.rstrip("\n")
        raise self._ended()

    def _ended(self) -> RuntimeError:
        self._errors.seek(0)
        last = "".join(self._errors.readlines()[-LAST_LINES:])
        return RuntimeError(f"{' '.join(self._command)} ended:\n{last}")


def search_with(
    arm: PeerArm, task: SearchTask, space: BareSpace, asked: Asked, epochs: int, workers: int
) -> Replayed:
    """Run one search of a peer until it has trained so many epochs."""
    command = [str(python_of(arm)), "-m", f"offline.peers.{arm.program}", *arm.words]
    with PeerSearch(task, space, command, asked) as search:
        return search.run(epochs, workers)
