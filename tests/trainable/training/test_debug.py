"""Tests that the debug tools are off by default, say that they are on, and are gone afterwards."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.optim import optimizer as torch_optimizer

from trainable.bench import ON_CPU, Bench
from trainable.debug_tools import tools_named
from trainable.errors import UserError
from trainable.training.debug import ACTIVE, PROFILE_FILE, WAIT, WARMUP, debugging

CPU = torch.device("cpu")


def steps(count: int) -> None:
    """Take so many optimizer steps of a small net."""
    net = nn.Linear(64, 64)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(count):
        optimizer.zero_grad()
        net(torch.ones(16, 64)).square().mean().backward()
        optimizer.step()


def test_tools_are_known_by_name_each_once() -> None:
    assert tools_named([]) == ()
    assert tools_named(["anomaly", "profile", "anomaly"]) == ("profile", "anomaly")


@pytest.mark.parametrize(
    ("name", "message"), [("profil", "known: profile, anomaly"), ("gradcheck", "tunebook check")]
)
def test_a_tool_that_is_none_here_is_refused_with_those_that_are(name: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as refused:
        tools_named(["profile", name])
    assert f"--debug {name}" in str(refused.value)
    assert "profile, anomaly" in str(refused.value)


def test_without_tools_nothing_is_on_and_nothing_is_said(tmp_path: Path) -> None:
    said: list[str] = []
    with debugging((), Bench(device_name="cpu", say=said.append), tmp_path):
        steps(WAIT + WARMUP + ACTIVE)
        assert not torch.is_anomaly_enabled()
        assert not torch_optimizer._global_optimizer_post_hooks
    assert said == []
    assert list(tmp_path.iterdir()) == []


def test_anomaly_names_the_function_whose_gradient_is_nan_and_is_off_afterwards() -> None:
    said: list[str] = []

    def backward() -> None:
        zero: Tensor = torch.zeros(1, requires_grad=True)
        (zero.sqrt() * 0.0).sum().backward()  # 0 * inf

    with (
        pytest.raises(RuntimeError, match="SqrtBackward0"),
        pytest.warns(UserWarning, match="Traceback of forward call"),
        debugging(("anomaly",), Bench(device_name="cpu", say=said.append), None),
    ):
        backward()
    assert not torch.is_anomaly_enabled()
    assert len(said) == 1
    assert "anomaly is on" in said[0]
    backward()  # and nobody minds


def test_anomaly_leaves_a_caller_s_own_detection_on() -> None:
    with torch.autograd.set_detect_anomaly(True):
        with debugging(("anomaly",), ON_CPU, None):
            pass
        assert torch.is_anomaly_enabled()


def test_a_profile_records_some_steps_tells_the_costliest_and_leaves_a_trace(tmp_path: Path) -> None:
    said: list[str] = []
    with debugging(("profile",), Bench(device_name="cpu", say=said.append), tmp_path):
        steps(3 * (WAIT + WARMUP + ACTIVE))
    assert (
        said[0] == f"debug profile is on: steps {WAIT + WARMUP + 1} to {WAIT + WARMUP + ACTIVE} are recorded"
    )
    rows = [re.fullmatch(r"(\S.*?) +(\d+) +([\d.]+) +([\d.]+)%", line) for line in said[2:-1]]
    shares = [float(row[4]) for row in rows if row]
    assert len(shares) == len(rows) > 5
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) <= 100.5
    calls = {row[1]: int(row[2]) for row in rows if row}
    assert calls["Optimizer.step#SGD.step"] == ACTIVE
    assert PROFILE_FILE in said[-1]
    assert [path.name for path in tmp_path.iterdir()] == [PROFILE_FILE]

    def refuse(text: str) -> float:
        raise AssertionError(f"{text} is not finite")

    trace = json.loads((tmp_path / PROFILE_FILE).read_text(), parse_constant=refuse)
    stepped = [event for event in trace["traceEvents"] if event.get("name") == "Optimizer.step#SGD.step"]
    assert len(stepped) == ACTIVE
    assert not torch_optimizer._global_optimizer_post_hooks


def test_a_profile_without_a_folder_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said: list[str] = []
    with debugging(("profile",), Bench(device_name="cpu", say=said.append), None):
        steps(WAIT + WARMUP + ACTIVE)
    assert any("Optimizer.step" in line for line in said)
    assert list(tmp_path.iterdir()) == []


def test_a_run_too_short_to_profile_says_so(tmp_path: Path) -> None:
    said: list[str] = []
    with debugging(("profile",), Bench(device_name="cpu", say=said.append), tmp_path):
        steps(WAIT)
    assert "nothing was recorded" in said[-1]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.gpu
def test_on_a_gpu_the_times_are_the_gpu_s() -> None:
    device, said = torch.device("cuda"), list[str]()
    net = nn.Linear(512, 512, device=device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with debugging(("profile",), Bench(device_name=str(device), say=said.append), None):
        for _ in range(WAIT + WARMUP + ACTIVE):
            net(torch.ones(64, 512, device=device)).square().mean().backward()
            optimizer.step()
    assert "cuda ms" in said[1]
    assert any("gemm" in line or "mm" in line for line in said[2:])
