"""Tests what is said of a machine that lacks a driver or a compiler, and what a run may leave on a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from trainable.training import devices
from trainable.training.devices import (
    ALLOWANCE_BYTES,
    CONTEXT_BYTES,
    Baseline,
    driver_problem,
    held_bytes,
    memory_fraction,
    problem_here,
    ran_out,
)

LOADED = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {}.05  Release Build\nGCC version: gcc 12\n"
)


@pytest.fixture
def driver_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(devices, "DRIVER_FILE", tmp_path / "version")
    return tmp_path / "version"


@pytest.mark.parametrize(
    ("cuda", "driver", "least"),
    [("13.2", "570.86", 580), ("12.8", "470.1", 525), ("13.0", "580.65", None), ("12.4", "550.54", None)],
)
def test_a_driver_that_is_too_old_is_named_with_what_is_needed(
    driver_file: Path, monkeypatch: pytest.MonkeyPatch, cuda: str, driver: str, least: int | None
) -> None:
    monkeypatch.setattr(torch.version, "cuda", cuda)
    driver_file.write_text(LOADED.format(driver))
    problem = driver_problem()
    assert (problem is None) == (least is None)
    if problem is not None:
        assert f"driver {driver} is too old" in problem
        assert f"CUDA {cuda}, which needs driver {least} or newer" in problem


def test_a_machine_without_a_driver_or_a_pytorch_without_cuda_has_no_problem(
    driver_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert driver_problem() is None
    driver_file.write_text(LOADED.format("570.86"))
    monkeypatch.setattr(torch.version, "cuda", None)
    assert driver_problem() is None


@pytest.mark.skipif(torch.cuda.is_available(), reason="PyTorch sees a GPU here")
def test_a_gpu_that_pytorch_does_not_see_is_a_problem_of_those_who_need_one(driver_file: Path) -> None:
    assert str(problem_here("cuda", may_compile=False)).startswith("PyTorch sees no GPU here: ")
    assert problem_here("cpu", may_compile=False) is None


def test_a_compiler_is_looked_for_where_it_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    assert problem_here("cpu", may_compile=False) is None
    assert "none of g++ is on the PATH" in str(problem_here("cpu", may_compile=True))
    own = tmp_path / "my-c++"
    own.write_text("#!/bin/sh\n")
    own.chmod(0o755)
    monkeypatch.setenv("CXX", "my-c++")
    assert problem_here("cpu", may_compile=True) is None


# --- memory -------------------------------------------------------------------------------------------


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
