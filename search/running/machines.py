"""Checks before any trial whether the machines can train what a search will ask of them."""

from __future__ import annotations

from typing import Any

from search.facts.hardware import Hardware, PerTrial
from search.facts.measured import Say
from spaces.space import Space
from trainable.errors import UserError
from trainable.recipe.training import COMPILED

ANSWER_SECONDS = 300.0
"""Importing PyTorch takes a machine seconds, and minutes where its packages come over a slow network."""


def check_machines(trial: PerTrial, space: Space, hardware: Hardware, say: Say) -> None:
    """Raises UserError naming the machines that cannot train a space's trials, and why.

    Only what a trial needs is looked at: GPUs where it has one, compilers where its network may be compiled.
    If trials train without a GPU since PyTorch cannot use this machine's driver, it says so.
    """
    may_compile = any(space.may_have("loop.compile", each) for each in COMPILED)
    if hardware.cluster:
        _check_cluster("cuda" if trial.gpus else "cpu", may_compile)
    else:
        _check_this_machine(trial, may_compile, say)


def _check_this_machine(trial: PerTrial, may_compile: bool, say: Say) -> None:
    from trainable.training.devices import driver_problem, problem_here

    if (problem := problem_here("cuda" if trial.gpus else "cpu", may_compile)) is not None:
        raise UserError(f"this machine: {problem}")
    if not trial.gpus and (problem := driver_problem()) is not None:
        say(f"trials train without a GPU: {problem}")


def _check_cluster(kind: str, may_compile: bool) -> None:
    """Asks all machines at once; each answers after the seconds that it needs to import PyTorch."""
    if kind == "cpu" and not may_compile:
        return
    import ray

    nodes = [each for each in ray.nodes() if each["Alive"] and each["Resources"].get(_resource(kind), 0) > 0]
    asked = [_asked(each["NodeID"]).remote(kind, may_compile) for each in nodes]
    problems = {
        each["NodeManagerAddress"]: problem
        for each, answer in zip(nodes, asked, strict=True)
        if (problem := _answer(answer)) is not None
    }
    if problems:
        raise UserError("\n".join(f"machine {address}: {problem}" for address, problem in problems.items()))


def _answer(answer: Any) -> str | None:
    """Returns what a machine says, or why it says nothing."""
    import ray
    from ray.exceptions import RayError

    try:
        problem: str | None = ray.get(answer, timeout=ANSWER_SECONDS)
    except RayError as error:  # the machine has gone, or hangs
        return f"it could not be asked about its driver and compiler: {type(error).__name__}"
    return problem


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
