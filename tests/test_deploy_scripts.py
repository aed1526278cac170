"""Tests the script for Slurm, run with stand-ins for commands that are not here."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy_files import DEPLOY, asked_of_search
from tests.waiting import wait_until


@pytest.fixture
def commands(tmp_path: Path) -> Path:
    """Makes a folder of stand-ins for commands that are not here: each prints how it was called."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("tunebook", "srun"):
        stand_in = folder / name
        stand_in.write_text(f"#!/bin/sh\nprintf '%s\\n' {name} \"$@\"\n")
        stand_in.chmod(0o755)
    return folder


def run(script: str, *arguments: str, commands: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a script of deploy/, with the stand-ins before all other commands."""
    return subprocess.run(
        [str(DEPLOY / script), *arguments],
        env={"PATH": f"{commands}:{os.environ['PATH']}", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )


def called(script: str, *arguments: str, commands: Path, **environment: str) -> list[str]:
    """Returns what a script of deploy/ calls in the end, word by word."""
    done = run(script, *arguments, commands=commands, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture
def slurm(commands: Path, tmp_path: Path) -> list[str]:
    """Returns how the Slurm script calls srun, in an allocation of two nodes with one GPU each."""
    return called(
        *("slurm/tunebook.sbatch", "study.yaml", "/shared/searches", "flowers"),
        commands=commands,
        SLURM_SUBMIT_DIR="/shared/tunebook",
        SLURM_JOB_ID="123456",
        SLURM_JOB_NUM_NODES="2",
        SLURM_CPUS_PER_TASK="8",
        SLURM_GPUS_ON_NODE="1",
        TUNEBOOK_HEAD_IP="192.0.2.1",
        TMPDIR=str(tmp_path),
    )


def test_the_slurm_script_starts_ray_on_every_node_and_the_search_on_the_head(slurm: list[str]) -> None:
    assert slurm[:5] == ["srun", "--ntasks=2", "--ntasks-per-node=1", "--cpus-per-task=8", "ray"]
    words = slurm[slurm.index("tunebook") + 1 :]
    assert asked_of_search(words) == {
        "study": Path("study.yaml"),
        "storage": "/shared/searches",
        "name": "flowers",
        "address": "192.0.2.1:23456",
        "again": True,
    }


def test_the_installed_ray_takes_the_slurm_scripts_words(slurm: list[str]) -> None:
    from ray.scripts.scripts import cli, start
    from ray.scripts.symmetric_run import curate_and_validate_ray_start_args, symmetric_run

    name, *words = slurm[slurm.index("ray") + 1 :]
    assert cli.commands[name] is symmetric_run
    before = words[: words.index("--")]
    parsed = symmetric_run.make_context("ray", [*before, "--", "true"], resilient_parsing=True).params
    assert (parsed["address"], parsed["min_nodes"]) == ("192.0.2.1:23456", 2)
    for_ray_start = curate_and_validate_ray_start_args(before)
    started = start.make_context("start", for_ray_start).params
    assert (started["num_cpus"], started["num_gpus"]) == (8, 1)


def test_the_slurm_script_ends_with_the_exit_code_of_the_search(commands: Path, tmp_path: Path) -> None:
    (commands / "srun").write_text("#!/bin/sh\nexit 3\n")
    done = run(
        *("slurm/tunebook.sbatch", "study.yaml", "/shared/searches", "flowers"),
        commands=commands,
        SLURM_SUBMIT_DIR="/shared/tunebook",
        SLURM_JOB_ID="1",
        SLURM_JOB_NUM_NODES="1",
        TMPDIR=str(tmp_path),
    )
    assert done.returncode == 3


def test_the_slurm_script_passes_the_warning_before_the_time_limit_on_to_the_search(
    commands: Path, tmp_path: Path
) -> None:
    checkout, started = tmp_path / "checkout", tmp_path / "started"
    checkout.mkdir()
    (checkout / "deploy").symlink_to(DEPLOY)
    (commands / "srun").write_text('#!/bin/sh\nuntil [ "$1" = -- ]; do shift; done\nshift\nexec "$@"\n')
    (commands / "tunebook").write_text(
        f"#!/bin/sh\ntrap 'exit 130' TERM\ntouch {started}\nwhile true; do sleep 0.05; done\n"
    )
    script = subprocess.Popen(
        [str(DEPLOY / "slurm/tunebook.sbatch"), "study.yaml", str(tmp_path), "flowers"],
        env={
            "PATH": f"{commands}:{os.environ['PATH']}",
            "TUNEBOOK_HOME": str(checkout),
            "SLURM_JOB_ID": "1",
            "SLURM_JOB_NUM_NODES": "1",
            "TMPDIR": str(tmp_path),
        },
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until(started.exists)
        script.send_signal(signal.SIGUSR1)
        printed, _ = script.communicate(timeout=20)
    finally:
        script.kill()
    assert (script.returncode, printed.split(":")[0]) == (130, "Told to stop")


def test_the_slurm_script_says_how_it_is_called() -> None:
    script = str(DEPLOY / "slurm/tunebook.sbatch")
    done = subprocess.run(
        [script], capture_output=True, text=True, check=False, timeout=30, env=dict(os.environ)
    )
    assert (done.returncode, done.stderr.split(":")[0]) == (2, "usage")


def test_the_slurm_script_is_sound_to_its_shell_and_to_shellcheck() -> None:
    for check in (["bash", "-n"], [str(Path(sys.executable).with_name("shellcheck"))]):
        script = str(DEPLOY / "slurm/tunebook.sbatch")
        done = subprocess.run([*check, script], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
