"""Tests the script for Slurm, run with stand-ins for commands that are not here."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.deploy_files import DEPLOY, asked_of_search
from tests.waiting import wait_until

SCRIPT = DEPLOY / "slurm/tunebook.sbatch"


@pytest.fixture
def commands(tmp_path: Path) -> Path:
    """Make a folder of stand-ins for commands that are not here, or take long.

    `srun` runs what it is given as on the first node; `ray` prints how it was called and waits.
    """
    folder = tmp_path / "bin"
    folder.mkdir()
    stand_in(
        folder, "srun", 'while [ "$1" != bash ]; do shift; done; SLURM_NODEID=${NODE:-0} exec "$@" >>ray.txt'
    )
    stand_in(folder, "ray", 'printf "%s\\n" "$@"; [ "$1" = health-check ] || exec sleep 60')
    stand_in(folder, "python", "cat >/dev/null; echo 2 of 2 nodes have started Ray")
    started = "until grep -qx start ray.txt; do sleep 0.05; done"
    stand_in(folder, "tunebook", f'{started}; printf "%s\\n" tunebook "$@"')
    return folder


def stand_in(folder: Path, name: str, does: str) -> None:
    (folder / name).write_text(f"#!/bin/bash\n{does}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def run(commands: Path, tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start the script for Slurm, as in an allocation of two nodes with one GPU each."""
    started: list[subprocess.Popen[str]] = []

    def start(**variables: str) -> subprocess.Popen[str]:
        allocation = {
            "SLURM_SUBMIT_DIR": "/shared/tunebook",
            "SLURM_JOB_ID": "123456",
            "SLURM_JOB_NUM_NODES": "2",
            "SLURM_CPUS_PER_TASK": "8",
            "SLURM_GPUS_ON_NODE": "1",
            "TUNEBOOK_HEAD_IP": "192.0.2.1",
        }
        script = subprocess.Popen(
            [str(SCRIPT), "study.yaml", "/shared/searches", "flowers"],
            env={"PATH": f"{commands}:{os.environ['PATH']}", **allocation, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            start_new_session=True,
        )
        started.append(script)
        return script

    yield start
    for script in started:
        with suppress(ProcessLookupError):
            os.killpg(script.pid, signal.SIGKILL)
        script.wait()


def test_the_slurm_script_starts_the_search_where_ray_is(run: Callable[..., subprocess.Popen[str]]) -> None:
    printed, _ = (script := run()).communicate(timeout=30)
    assert script.returncode == 0
    lines = printed.splitlines()
    assert "2 of 2 nodes have started Ray" in lines
    assert asked_of_search(lines[lines.index("tunebook") + 1 :]) == {
        "file": "study.yaml",
        "storage": "/shared/searches",
        "name": "flowers",
        "address": "192.0.2.1:23456",
        "again": True,
    }


@pytest.mark.parametrize(("node", "is_head"), [("0", True), ("1", False)])
def test_each_node_starts_a_ray_that_is_the_head_or_finds_it(
    run: Callable[..., subprocess.Popen[str]], tmp_path: Path, node: str, is_head: bool
) -> None:
    from ray.scripts.scripts import start

    run(NODE=node).communicate(timeout=30)
    words = (tmp_path / "ray.txt").read_text().splitlines()
    parsed = start.make_context("start", words[words.index("start") + 1 :]).params
    assert (parsed["num_cpus"], parsed["num_gpus"], parsed["block"]) == (8, 1, True)
    assert parsed["head"] is is_head
    if is_head:
        assert (parsed["node_ip_address"], parsed["port"]) == ("192.0.2.1", 23456)
        assert parsed["ray_client_server_port"] == 33456, "another job may be on this node"
        assert parsed["no_monitor"], "nothing scales here, and its end would be a traceback"
    else:
        assert parsed["address"] == "192.0.2.1:23456"


def test_the_slurm_script_ends_with_the_exit_code_of_the_search_and_ends_ray(
    run: Callable[..., subprocess.Popen[str]], commands: Path
) -> None:
    stand_in(commands, "tunebook", "exit 3")
    (script := run()).communicate(timeout=30)
    assert script.returncode == 3
    wait_until(lambda: not is_any_alive(script.pid))


def is_any_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_ray_that_does_not_start_is_said_with_its_log(
    run: Callable[..., subprocess.Popen[str]], commands: Path
) -> None:
    stand_in(commands, "ray", "exit 1")
    _, said = (script := run()).communicate(timeout=60)
    assert (script.returncode, said) == (1, "Ray did not start: see tunebook-123456-ray.log\n")


def test_a_head_that_does_not_start_in_three_tries_ends_the_step(
    run: Callable[..., subprocess.Popen[str]], commands: Path, tmp_path: Path
) -> None:
    stand_in(commands, "ray", "echo $1; exit 1")
    stand_in(commands, "scancel", 'echo "scancel $1"')
    run(SLURM_STEP_ID="0").communicate(timeout=60)
    assert (tmp_path / "ray.txt").read_text().split("\n") == [*["start"] * 3, "scancel 123456.0", ""]


def test_the_slurm_script_passes_the_warning_before_the_time_limit_on_to_the_search(
    run: Callable[..., subprocess.Popen[str]], commands: Path, tmp_path: Path
) -> None:
    started = tmp_path / "started"
    stand_in(commands, "tunebook", f"trap 'exit 130' TERM; touch {started}; while true; do sleep 0.05; done")
    script = run()
    wait_until(started.exists)
    script.send_signal(signal.SIGUSR1)
    printed, _ = script.communicate(timeout=20)
    assert script.returncode == 130
    assert "Told to stop: the search ends, and goes on when this job is submitted again." in printed


def test_a_warning_before_the_search_has_begun_ends_the_job(
    run: Callable[..., subprocess.Popen[str]], commands: Path, tmp_path: Path
) -> None:
    asked = tmp_path / "asked"
    stand_in(commands, "ray", f'[ "$1" = health-check ] || exec sleep 60; touch {asked}; exit 1')
    script = run()
    wait_until(asked.exists)
    script.send_signal(signal.SIGUSR1)
    printed, _ = script.communicate(timeout=20)
    assert script.returncode == 143
    assert "tunebook\n" not in printed


def test_the_slurm_script_says_how_it_is_called() -> None:
    done = subprocess.run(
        [str(SCRIPT)], capture_output=True, text=True, check=False, timeout=30, env=dict(os.environ)
    )
    assert (done.returncode, done.stderr.split(":")[0]) == (2, "usage")


def test_the_slurm_script_is_sound_to_its_shell_and_to_shellcheck() -> None:
    for check in (["bash", "-n"], [str(Path(sys.executable).with_name("shellcheck"))]):
        done = subprocess.run([*check, str(SCRIPT)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
