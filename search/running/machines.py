"""Checks before any trial whether the machines can train what a search will ask of them."""

from __future__ import annotations

from typing import Any

from search.facts.hardware import PerTrial
from spaces.space import Space
from trainable.errors import UserError

COMPILES = "loop.compile"


def compiles(space: Space) -> bool:
    """Returns whether a trial of the space may compile its network."""
    return bool(space.base.get(COMPILES)) or any(each.path == COMPILES for each in space.dimensions)


def check_this_machine(trial: PerTrial, may_compile: bool) -> None:
    """Raises UserError if this machine cannot train such trials."""
    from trainable.training.devices import problem_here

    if (problem := problem_here("cuda" if trial.gpus else "cpu", may_compile)) is not None:
        raise UserError(f"this machine: {problem}")


def check_cluster(trial: PerTrial, may_compile: bool) -> None:
    """Raises UserError naming the machines of the joined Ray that cannot train such trials, and why.

    Only what a trial needs is looked at: GPUs where it has one, compilers where its network may be compiled.
    Each machine answers after the seconds that it needs to import PyTorch.
    """
    if not trial.gpus and not may_compile:
        return
    import ray

    kind = "cuda" if trial.gpus else "cpu"
    nodes = [each for each in ray.nodes() if each["Alive"] and each["Resources"].get(_resource(kind), 0) > 0]
    answers = ray.get([_asked(each["NodeID"]).remote(kind, may_compile) for each in nodes])
    problems = {
        each["NodeManagerAddress"]: problem for each, problem in zip(nodes, answers, strict=True) if problem
    }
    if problems:
        raise UserError("\n".join(f"machine {address}: {problem}" for address, problem in problems.items()))


def _resource(kind: str) -> str:
    return "GPU" if kind == "cuda" else "CPU"


def _asked(node: str) -> Any:
    """Returns Ray's function that asks one machine; it takes nothing that trials use."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    there = NodeAffinitySchedulingStrategy(node, soft=False)
    return ray.remote(num_cpus=0, scheduling_strategy=there)(_problem)


def _problem(kind: str, may_compile: bool) -> str | None:
    from trainable.training.devices import problem_here

    return problem_here(kind, may_compile)
