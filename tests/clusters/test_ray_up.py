"""Starts Ray on three hosts with Ray's own launcher, searches there, and ends it all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.clusters.hosts import Hosts
from tests.deploy_files import DEPLOY
from tests.integration.small_searches import digits_study
from tests.waiting import PATIENCE_SECONDS, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.ssh]

TOKEN = "0123456789abcdef" * 4


def test_three_hosts_join_a_search_runs_there_and_nothing_is_left(
    hosts: Hosts, checkout: Path, tmp_path: Path
) -> None:
    home = tmp_path / "home"  # of the person, and of root on each host
    (home / ".ray").mkdir(parents=True)
    (home / ".ray" / "auth_token").write_text(TOKEN)
    launcher = tmp_path / "on-premise.yaml"
    text = (DEPLOY / "ray/on-premise.yaml").read_text().replace("/shared/tunebook", str(checkout))
    tree = yaml.safe_load(text)
    tree["provider"] |= {"head_ip": hosts.address(1), "worker_ips": [hosts.address(2), hosts.address(3)]}
    tree["auth"] = {"ssh_user": "root", "ssh_private_key": str(hosts.key)}
    launcher.write_text(yaml.safe_dump(tree))

    def ray(*words: str) -> str:
        command = [str(Path(sys.executable).with_name("ray")), words[0], str(launcher), *words[1:]]
        done = subprocess.run(
            command,
            env={**os.environ, "HOME": str(home), "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN},
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    try:
        ray("up", "-y", "--no-config-cache")
        wait_until(lambda: "3 local.cluster.node" in ray("exec", "ray status"), every=2.0)
        study = digits_study(tmp_path / "searches", budget__trials=1, budget__epochs=1)
        study.with_values({"scheduler.kind": "none", "concurrent": None}).write(tmp_path)
        searched = hosts.run(
            1,
            *(sys.executable, "-m", "search", "search", tmp_path / "study.yaml", "--address", "auto"),
            RAY_AUTH_MODE="token",
            RAY_AUTH_TOKEN=TOKEN,
            PYTHONPATH=str(checkout),
        )
        assert searched.returncode == 0, searched.stdout + searched.stderr
        ray("down", "-y")
    except BaseException:
        for host in (1, 2, 3):
            hosts.run(host, "pkill", "-9", "raylet|gcs_server|ray::")
        raise
    wait_until(lambda: not any(hosts.processes(host, "raylet") for host in (1, 2, 3)))
