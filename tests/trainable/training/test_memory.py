"""Tests what a process may hold on a GPU between two runs."""

from __future__ import annotations

import pytest
import torch

from trainable.training.devices import (
    ALLOWANCE_BYTES,
    CONTEXT_BYTES,
    Baseline,
    held_bytes,
    memory_fraction,
    ran_out,
)


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


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("CUDA error: an illegal memory access was encountered"),
        RuntimeError("could not create a primitive descriptor for the matmul primitive."),
        RuntimeError("CUBLAS_STATUS_NOT_INITIALIZED"),
        ValueError("out of memory"),
    ],
    ids=str,
)
def test_other_errors_do_not_say_that_memory_ran_out(error: Exception) -> None:
    assert not ran_out(error)


def test_a_share_of_a_gpu_pays_for_the_context_of_its_process() -> None:
    total = 80 * 2**30
    allowed = memory_fraction(0.25, total) * total
    assert allowed + CONTEXT_BYTES == pytest.approx(0.25 * total)
    with pytest.raises(ValueError, match=r"a share of 0\.05 of a GPU with 8\.0 GiB leaves no memory"):
        memory_fraction(0.05, 8 * 2**30)
