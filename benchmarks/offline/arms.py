"""Defines the arms of the search-quality benchmark: samplers, with or without priors and pruning."""

from __future__ import annotations

import ast
import hashlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from optuna.samplers import BaseSampler, TPESampler

from offline.beliefs import Worth, believing
from offline.replay import Replay, Replayed
from offline.search_task import seed_of
from offline.tasks import task
from search.deciding.make import make_sampler
from search.deciding.sampler import Sampler
from search.deciding.scheduler import Asha, PromotionAsha, Scheduler, rungs
from search.deciding.tpe import TpeSampler
from search.study import SamplerKind
from spaces.priors import Confidence
from spaces.space import Space

REDUCTION_FACTOR = 3
"""All arms have this factor, which Ray's and Optuna's users set: samplers are compared, not pruning."""
ROOT = Path(__file__).parents[2]
SOURCES = (
    "benchmarks/offline/replay.py",
    "benchmarks/offline/search_task.py",
    "search/deciding/make.py",
    "search/deciding/optuna_trials.py",
    "search/deciding/points.py",
    "search/deciding/scheduler.py",
    "search/deciding/tpe.py",
)
"""Every result depends on these files, beside its settings; those of tasks and of priors are added."""
SOURCES_OF_TASKS = {
    "lcbench": ("benchmarks/offline/lcbench.py",),
    "taskset": ("benchmarks/offline/curve_tables.py",),
    "fashion": ("benchmarks/offline/curve_tables.py", "benchmarks/tables/fashion_mnist_4000.jsonl"),
}
SOURCES_OF_PRIORS = ("benchmarks/offline/beliefs.py", "search/deciding/prior_tpe.py", "spaces/priors.py")

Make = Callable[[Space, int], Sampler]


@dataclass(frozen=True)
class Arm:
    """Holds one arm: `make` builds the sampler from space and seed. With `priors` trial 0 is their mode."""

    make: Make
    priors: Worth | None = None
    pruned: bool = True
    scheduler: type[Scheduler] = Asha
    first: int = 0
    """The first trial has this number: Sobol's sequence leaves trial 0 to the documented recipe."""


def ours(kind: SamplerKind) -> Make:
    """Returns a sampler as `make_sampler` builds it; every task's score is maximised."""
    return lambda space, seed: make_sampler(space, kind, seed, "max")


class PlainTpe(TpeSampler):
    """Draws with Optuna's TPESampler, which gets nothing but a seed."""

    def optuna_sampler(self, number: int) -> BaseSampler:
        return TPESampler(seed=seed_of(str(self._seed), number))


ARMS: dict[str, Arm] = {
    "random": Arm(ours("random"), pruned=False),
    "random+asha": Arm(ours("random")),
    "random+promotion": Arm(ours("random"), scheduler=PromotionAsha),
    "qmc+asha": Arm(ours("qmc"), first=1),
    "tpe+asha": Arm(ours("tpe")),
    "tpe+promotion": Arm(ours("tpe"), scheduler=PromotionAsha),
    "tpe-plain+asha": Arm(lambda space, seed: PlainTpe(space, seed, "max")),
    "prior-tpe+asha right": Arm(ours("prior-tpe"), "right"),
    "prior-tpe+asha off": Arm(ours("prior-tpe"), "off"),
    "prior-tpe+asha adversarial": Arm(ours("prior-tpe"), "adversarial"),
    "prior-only+asha right": Arm(ours("random"), "right"),
    "prior-only+asha off": Arm(ours("random"), "off"),
    "prior-only+asha adversarial": Arm(ours("random"), "adversarial"),
}
"""Each arm has a name; `random` on a space with priors draws from them alone."""
BASELINE = "tpe+asha"


@dataclass(frozen=True)
class Settings:
    """Holds what every run of a benchmark has in common. Budgets are counted in whole trainings' epochs."""

    trainings: int = 40
    beyond: float = 1.5
    """A search is followed to so many times its budget."""
    workers: int = 4
    confidence: Confidence = "medium"

    def epochs(self, whole: int) -> int:
        """Returns how long a search is, if a whole training has so many epochs."""
        return round(self.trainings * self.beyond * whole)


def run(arm: Arm, name: str, seed: int, settings: Settings) -> Replayed:
    """Runs one search of an arm on a task."""
    chosen = task(name)
    space = chosen.space
    if arm.priors is not None:
        space = believing(chosen, arm.priors, seed, settings.confidence)
    steps = rungs(chosen.grace, REDUCTION_FACTOR, chosen.epochs) if arm.pruned else ()
    sampler = arm.make(space, seed_of(f"search {name}", seed))
    scheduler = arm.scheduler(steps, REDUCTION_FACTOR, "max")
    own = space.own if arm.priors is not None else None
    search = Replay(chosen.begin(), chosen.epochs, sampler, scheduler, own, arm.first)
    return search.run(settings.epochs(chosen.epochs), settings.workers)


def digest(arm: Arm, name: str, settings: Settings) -> str:
    """Names everything on which the results of an arm on a task depend: after a change they are run again."""
    sources = (*SOURCES, *SOURCES_OF_TASKS[name.partition("-")[0]])
    if arm.priors is not None:
        sources += SOURCES_OF_PRIORS
    described = (_definition(arm), settings, *(_meaning(ROOT / each) for each in sources))
    return hashlib.sha256(repr(described).encode()).hexdigest()[:16]


def _definition(arm: Arm) -> tuple[object, ...]:
    captured = inspect.getclosurevars(arm.make).nonlocals
    return inspect.getsource(arm.make), captured, arm.priors, arm.pruned, arm.scheduler.__name__, arm.first


@cache
def _meaning(path: Path) -> str:
    """Returns a file's content; for a program, without its comments."""
    if not path.exists():
        return ""
    text = path.read_text()
    return ast.dump(ast.parse(text)) if path.suffix == ".py" else text


def chosen_arms(wanted: str) -> dict[str, Arm]:
    """Returns the baseline and the arms that begin with a word of a comma-separated list; `all` for all.

    Raises ValueError with the known names for a word that begins none.
    """
    words = tuple(wanted.split(","))
    if unknown := [word for word in words if word != "all" and not any(map(_begins(word), ARMS))]:
        raise ValueError(f"expected arms, got {', '.join(unknown)}; known: {', '.join(ARMS)}")
    return {
        name: arm
        for name, arm in ARMS.items()
        if name == BASELINE or "all" in words or name.startswith(words)
    }


def _begins(word: str) -> Callable[[str], bool]:
    return lambda name: name.startswith(word)
