"""Tests what a process may hold on a GPU between two runs."""

from __future__ import annotations

import pytest
import torch

from trainable.training.memory import ALLOWANCE_BYTES, Baseline, held_bytes


def test_the_first_run_s_rest_is_the_baseline_and_what_rises_far_above_it_an_excess() -> None:
    baseline = Baseline()
    assert baseline.excess(10**9) == 0
    assert baseline.excess(10**9 + ALLOWANCE_BYTES) == 0
    assert baseline.excess(10**9 + ALLOWANCE_BYTES + 7) == 7
    assert baseline.excess(0) == 0
    assert baseline.excess(10**9 + ALLOWANCE_BYTES + 8) == 8, "the baseline stays that of the first run"


def test_a_cpu_holds_no_gpu_memory() -> None:
    assert held_bytes(torch.device("cpu")) == 0


@pytest.mark.gpu
def test_workspaces_are_released_and_tensors_are_counted() -> None:
    device = torch.device("cuda")
    before = held_bytes(device)
    held = torch.ones(1024, 1024, device=device)
    torch.mm(held, held)
    assert held_bytes(device) - before == held.nbytes
