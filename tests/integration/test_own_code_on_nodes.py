"""A person's own network is trained on two machines, by two ranks each, that have none of their files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from search.learning.search import Search
from tests.integration.clusters import NODES, ROOT, Cluster
from tests.integration.own_scripts import small_study, write_script
from tests.integration.small_searches import digits_study
from tests.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.integration


@pytest.mark.scenario
def test_a_script_s_functions_reach_machines_without_its_files(cluster: Cluster, tmp_path: Path) -> None:
    """All nodes share this machine's disk, but none has the folder of the script's module in its path."""
    digits_study(tmp_path / "storage")  # brings a database of MLflow
    study = small_study(
        tmp_path / "storage",
        budget={"trials": 2, "epochs": 2},
        scheduler={"kind": "none"},
        resources={"workers": 2},
    )
    script = write_script(tmp_path, study, address=cluster.address)
    ran = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": cluster.token,
        },
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    found = Search(tmp_path / "storage" / "mine")
    assert [trial.state for trial in found.trials] == ["finished", "finished"]
    machines = {each.name for each in (tmp_path / "machines").iterdir()}
    assert machines >= {f"machine-{name}" for name in NODES}
