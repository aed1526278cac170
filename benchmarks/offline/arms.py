"""The arms of the search-quality benchmark: our samplers, with or without priors and pruning.

Peers are in `peer_arms`.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from optuna.samplers import BaseSampler, TPESampler

from offline.beliefs import Worth, believing
from offline.finetuning_tables import documented
from offline.our_search import Replay
from offline.peer_arms import PEERS, PeerArm, search_with
from offline.replay import Replayed
from offline.search_task import BareSpace, SearchTask, seed_of
from offline.tasks import task
from offline.translation import asked_of
from search.deciding.make import make_sampler, make_scheduler
from search.deciding.pruning import Pruning
from search.deciding.sampler import Sampler
from search.deciding.scheduler import rungs
from search.deciding.tpe import TpeSampler
from search.study import SamplerKind, SchedulerKind
from spaces.priors import Confidence
from spaces.space import Space

REDUCTION_FACTOR = 3  # of all arms, as Ray's and Optuna's users set it: samplers are compared, not pruning
ROOT = Path(__file__).parents[2]
# The files on which results depend, beside settings: of all arms, of ours, and of peers
SOURCES = tuple(
    f"benchmarks/offline/{name}.py"
    for name in ("beliefs", "curve_tables", "finetuning_tables", "lcbench", "replay", "search_task")
)
SOURCES_OF_OURS = ("benchmarks/offline/our_search.py", "search/deciding/*.py", "spaces/priors.py")
SOURCES_OF_PEERS = ("benchmarks/offline/peers/serving.py", "benchmarks/offline/translation.py")

Make = Callable[[Space, int], Sampler]


@dataclass(frozen=True)
class Arm:
    """One arm: `make` builds the sampler from space and seed. With `priors` trial 0 is their mode.

    `documented` ones are those of the rules, which only tables of fine-tuning have; trial 0 is then the
    documented recipe.
    """

    make: Make
    priors: Worth | Literal["documented"] | None = None
    pruned: bool = True
    scheduler: SchedulerKind = "asha"
    first: int = 0  # trial's number: Sobol's sequence leaves 0 to the documented recipe


def ours(kind: SamplerKind) -> Make:
    """Return a sampler as `make_sampler` builds it; every task's score is maximised."""
    return lambda space, seed: make_sampler(space, kind, seed, "max")


class PlainTpe(TpeSampler):
    """Optuna's TPESampler, which gets nothing but a seed."""

    def optuna_sampler(self, number: int) -> BaseSampler:
        return TPESampler(seed=seed_of(str(self._seed), number))


ARMS: dict[str, Arm] = {  # `random` on a space with priors draws from them alone
    "random": Arm(ours("random"), pruned=False),
    "random+asha": Arm(ours("random")),
    "random+promotion": Arm(ours("random"), scheduler="promotion"),
    "qmc+asha": Arm(ours("qmc"), first=1),
    "tpe+asha": Arm(ours("tpe")),
    "tpe+promotion": Arm(ours("tpe"), scheduler="promotion"),
    "tpe-plain+asha": Arm(lambda space, seed: PlainTpe(space, seed, "max")),
    "mutation+asha": Arm(ours("mutation")),
    "gp+asha": Arm(ours("gp")),
    "auto+asha": Arm(ours("auto")),
    "auto+promotion": Arm(ours("auto"), scheduler="promotion"),
    "auto+model": Arm(ours("auto"), scheduler="model"),
    "auto+asha right": Arm(ours("auto"), "right"),
    "auto+asha off": Arm(ours("auto"), "off"),
    "auto+asha adversarial": Arm(ours("auto"), "adversarial"),
    "prior-tpe+asha right": Arm(ours("prior-tpe"), "right"),
    "prior-tpe+asha off": Arm(ours("prior-tpe"), "off"),
    "prior-tpe+asha adversarial": Arm(ours("prior-tpe"), "adversarial"),
    "prior-only+asha right": Arm(ours("random"), "right"),
    "prior-only+asha off": Arm(ours("random"), "off"),
    "prior-only+asha adversarial": Arm(ours("random"), "adversarial"),
}
DOCUMENTED: dict[str, Arm] = {
    "documented auto+asha": Arm(ours("auto"), "documented"),
    "documented prior-only+asha": Arm(ours("random"), "documented"),
}  # for tables of fine-tuning alone
BASELINE = "random+asha"


@dataclass(frozen=True)
class Settings:
    """What every run of a benchmark has in common. Budgets are counted in whole trainings' epochs."""

    trainings: int = 40
    beyond: float = 1.5  # a search is followed to so many times its budget
    workers: int = 4
    confidence: Confidence = "medium"

    def epochs(self, whole: int) -> int:
        """Return how long a search is, if a whole training has so many epochs."""
        return round(self.trainings * self.beyond * whole)


def run(arm: Arm | PeerArm, name: str, seed: int, settings: Settings) -> Replayed:
    """Run one search of an arm on a task."""
    chosen = task(name)
    space = chosen.space
    if arm.priors == "documented":
        space = documented(name)
    elif arm.priors is not None:
        space = believing(chosen, arm.priors, seed, settings.confidence)
    drawn, epochs = seed_of(f"search {name}", seed), settings.epochs(chosen.epochs)
    match arm:
        case Arm():
            return _replay(arm, chosen, space, drawn).run(epochs, settings.workers)
        case PeerArm():
            asked = asked_of(chosen, space, REDUCTION_FACTOR, settings.trainings, settings.confidence, drawn)
            return search_with(arm, chosen, space, asked, epochs, settings.workers)


def _replay(arm: Arm, chosen: SearchTask, space: BareSpace, seed: int) -> Replay:
    steps = rungs(chosen.grace, REDUCTION_FACTOR, chosen.epochs) if arm.pruned else ()
    scheduler = make_scheduler(space, Pruning(steps, REDUCTION_FACTOR, "", arm.scheduler), "max")
    own = space.own if arm.priors is not None else None
    return Replay(chosen.begin(), chosen.epochs, arm.make(space, seed), scheduler, own, arm.first)


def digest(arm: Arm | PeerArm, name: str, settings: Settings) -> str:
    """Name everything on which the results of an arm on a task depend: after a change they are run again."""
    family = name.partition("-")[0]
    match arm:
        case Arm():
            sources: Sequence[str] = SOURCES_OF_OURS
            definition: object = _definition(arm)
        case PeerArm():
            sources = [*SOURCES_OF_PEERS, *arm.sources()]
            definition = arm
    sources = [*SOURCES, f"benchmarks/tables/{family}_*.jsonl", *sources]
    files = [file for pattern in sources for file in sorted(ROOT.glob(pattern))]
    described = (definition, family, settings, *map(_meaning, files))
    return hashlib.sha256(repr(described).encode()).hexdigest()[:16]


def _definition(arm: Arm) -> tuple[object, ...]:
    captured = inspect.getclosurevars(arm.make).nonlocals
    return inspect.getsource(arm.make), captured, arm.priors, arm.pruned, arm.scheduler, arm.first


@cache
def _meaning(path: Path) -> str:
    """Return a file's content; for a program, without its comments."""
    text = path.read_text()
    return ast.dump(ast.parse(text)) if path.suffix == ".py" else text


def arm_of(name: str) -> Arm | PeerArm:
    """Return the arm of this name, ours or a peer."""
    known: dict[str, Arm | PeerArm] = {**ARMS, **DOCUMENTED, **PEERS}
    return known[name]


def chosen_arms(wanted: str, peers: bool = False) -> dict[str, Arm | PeerArm]:
    """Return the baseline and the arms that begin with a word of a comma-separated list.

    `all` stands for all of ours, but for documented ones. Peers are among them where `peers`, or where a word
    is the beginning of their name. Raises ValueError with the known names for a word that begins none.
    """
    words = tuple(wanted.split(","))
    known: dict[str, Arm | PeerArm] = {**ARMS, **DOCUMENTED, **PEERS}
    if unknown := [word for word in words if word != "all" and not any(map(_begins(word), known))]:
        raise ValueError(f"expected arms, got {', '.join(unknown)}; known: {', '.join(known)}")
    return {
        name: arm
        for name, arm in known.items()
        if name == BASELINE
        or ("all" in words and name in ARMS)
        or (peers and name in PEERS)
        or name.startswith(words)
    }


def _begins(word: str) -> Callable[[str], bool]:
    return lambda name: name.startswith(word)
