"""Tests what is said of a machine that lacks a driver or a compiler."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from trainable.training import devices
from trainable.training.devices import driver_problem, problem_here

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
