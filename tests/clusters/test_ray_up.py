"""Starts Ray on three hosts with Ray's own launcher, searches there through a tunnel, and ends it all."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from tests.clusters.hosts import Hosts
from tests.clusters.trials import places_of
from tests.deploy_files import DEPLOY
from tests.integration.clusters import free_port
from tests.integration.small_searches import digits_study, events_in
from tests.waiting import PATIENCE_SECONDS, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.ssh]

RAY = str(Path(sys.executable).with_name("ray"))
# Seconds until the Ray of a worker ends itself, which has lost its head: a minute by default
IMPATIENT = "export RAY_gcs_rpc_server_reconnect_timeout_s=5"
TOKEN = "0123456789abcdef" * 4


@pytest.mark.scenario
def test_three_hosts_join_a_search_runs_there_and_nothing_is_left(
    hosts: Hosts, checkout: Path, tmp_path: Path
) -> None:
    home = tmp_path / "home"  # of the person
    (home / ".ray").mkdir(parents=True)
    (home / ".ray" / "auth_token").write_text(TOKEN)
    launcher = tmp_path / "on-premise.yaml"
    text = (DEPLOY / "ray/on-premise.yaml").read_text().replace("/shared/tunebook", str(checkout))
    tree = yaml.safe_load(text.replace("ulimit", f"{IMPATIENT}; ulimit"))
    tree["provider"] |= {"head_ip": hosts.address(1), "worker_ips": [hosts.address(2), hosts.address(3)]}
    tree["auth"] = {"ssh_user": "root", "ssh_private_key": str(hosts.key)}
    launcher.write_text(yaml.safe_dump(tree))

    port = free_port()
    person = {**os.environ, "HOME": str(home), "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN}

    def run(*command: str) -> str:
        done = subprocess.run(
            command, env=person, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def launch() -> None:
        """Launch the hosts, again where Ray gives a node up, as it does after 30 s on a busy machine."""
        command = (RAY, "up", str(launcher), "-y", "--no-config-cache")
        done = subprocess.run(command, env=person, capture_output=True, text=True, check=False)
        if "timed out during startup" in done.stdout + done.stderr:
            run(*command)
        else:
            assert done.returncode == 0, done.stdout + done.stderr

    def ray(*words: str) -> str:
        return run(RAY, words[0], str(launcher), *words[1:])

    def tunebook(*words: str) -> str:
        return run(sys.executable, "-m", "search", *words, "--address", f"http://127.0.0.1:{port}")

    def raylets() -> list[list[str]]:
        return [hosts.processes(host, "raylet") for host in (1, 2, 3)]

    try:
        launch()
        wait_until(lambda: all(raylets()), every=1.0)  # asking Ray is seconds of computing each time
        wait_until(lambda: "3 local.cluster.node" in ray("exec", "ray status"), every=2.0)
        study = digits_study(tmp_path / "searches", name="sent", budget__trials=1, budget__epochs=1)
        ranks = {"resources.workers": 3, "resources.cpus": 1}  # a host has two processors
        study.with_values({"scheduler.kind": "none", "concurrent": None, **ranks}).write(tmp_path)
        with tunnel(RAY, "dashboard", str(launcher), f"--port={port}", env=person):
            wait_until(lambda: answers(port))
            sent = tunebook("submit", str(tmp_path / "study.yaml"))
            job = re.search(r"^job (\S+):", sent, re.MULTILINE)
            assert job is not None, sent
            tunebook("fetch", job[1], "--out", str(tmp_path / "fetched"))
        assert (tmp_path / "fetched" / "best.yaml").exists()
        machines = Counter(place.machine for place in places_of(events_in(tmp_path / "fetched")))
        assert sorted(machines.values()) == [1, 2], "three ranks of a trial train on two hosts"
        ray("down", "-y")
        wait_until(lambda: not any(raylets()))
    except BaseException:
        for host in (1, 2, 3):
            hosts.run(host, "pkill", "-9", "raylet|gcs_server|ray::")
        raise


@contextmanager
def tunnel(*command: str, env: Mapping[str, str]) -> Iterator[None]:
    """Run a command for the block, with the SSH that it starts."""
    forwards = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        yield
    finally:
        os.killpg(forwards.pid, signal.SIGTERM)
        forwards.wait()


def answers(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0
