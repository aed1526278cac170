"""Tests that every trial of a process trains with compiled code, and compiles for training alone."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.fx import GraphModule

from tests.trainable.small_runs import data_set, small_recipe
from tests.trainable.tune.in_process import InProcess
from trainable.tune.seat import Seat
from trainable.tune.worker import TrialAssignment, Worker

TRIALS = 6
"""torch compiles a function 8 times in a process: each of these once for training, once for scoring was too
often."""

VARIANTS: dict[str, tuple[dict[str, Any], int]] = {
    "plain": ({}, 1),
    "frozen, then thawed": ({"model.freeze_epochs": 1}, 2),
}
"""A graph is compiled again when other weights learn."""


@pytest.mark.slow("compiles networks")
@pytest.mark.parametrize(("variant", "expected"), VARIANTS.values(), ids=VARIANTS)
def test_every_trial_of_a_worker_is_compiled_and_compiles_what_it_trains(
    variant: dict[str, Any], expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graphs: list[GraphModule] = []

    def backend(graph: GraphModule, _: list[torch.Tensor]) -> Any:
        graphs.append(graph)
        return graph.forward

    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=backend))
    worker = Worker(Seat(InProcess(data_set(train=64, validation=23)), "cpu", threads=1, step_seconds=60.0))
    compiled = []
    for trial in range(TRIALS):
        values = {**variant, "loop.compile": True, "model.width": 4 + 4 * (trial % 3)}
        assignment = TrialAssignment(
            small_recipe({**values, "evaluation.batch_size": 10}), tmp_path / str(trial)
        )
        for _ in range(3):
            worker.step(assignment)
        assert worker.free() == ""
        compiled.append(len(graphs))
        graphs.clear()
    assert compiled == [expected] * TRIALS


def test_compiling_takes_the_processors_of_the_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch._inductor.config as inductor

    monkeypatch.delenv("TORCHINDUCTOR_COMPILE_THREADS", raising=False)
    threads, compiling = torch.get_num_threads(), inductor.compile_threads
    other = len(os.sched_getaffinity(0)) + 1
    try:
        Worker(Seat(InProcess(data_set()), "cpu", threads=other, step_seconds=60.0))
        assert inductor.compile_threads == other
    finally:
        torch.set_num_threads(threads)
        inductor.compile_threads = compiling
