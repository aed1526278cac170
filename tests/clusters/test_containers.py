"""Builds the image of deploy/Dockerfile, searches in a container of it, and in two pods of rayjob.yaml.

No registry is asked: the image that it builds on must be there, such as `podman pull` brings it; so nothing
here fails where podman is missing. Pods need netavark and catatonit, which podman's packages recommend.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from search.study import STUDY_FILE
from tests.deploy_files import DEPLOY, ROOT, read
from tests.integration.small_searches import digits_study
from tests.waiting import PATIENCE_SECONDS, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.containers]

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
BASE = f"docker.io/library/python:{PYTHON}-slim-bookworm"
IMAGE = "localhost/tunebook:tests"
BUILD_SECONDS = 800.0
TOKEN = "0123456789abcdef" * 4
# No network or limit is made that a container of a CI machine could not have
RUN = ("--network=host", "--ulimit=nofile=1024:4096", "--ulimit=nproc=30000:30000")
FOR_PODS = ("netavark", "catatonit")
HELPERS = [Path(each) for each in ("/usr/lib/podman", "/usr/libexec/podman", "/usr/bin")]
CERTIFICATES = Path("/usr/local/share/ca-certificates")


def podman(*words: str | Path, seconds: float = PATIENCE_SECONDS, given: str | None = None) -> str:
    done = subprocess.run(
        ["podman", *words], input=given, capture_output=True, text=True, timeout=seconds, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def image() -> str:
    if os.geteuid() != 0:
        pytest.skip("only root's containers own their files as those of a cluster do")
    if shutil.which("podman") is None:
        pytest.skip("podman is not installed")
    if subprocess.run(["podman", "image", "exists", BASE], check=False).returncode != 0:
        pytest.skip(f"no image {BASE} to build on")
    ours = "".join(each.read_text() for each in sorted(CERTIFICATES.glob("*.crt")))
    podman(
        *("build", "--isolation=chroot", "--network=host", "--tag", IMAGE),
        *("--build-arg", f"PYTHON={PYTHON}", "--build-arg", f"CERTIFICATE={ours}"),
        *("--file", DEPLOY / "Dockerfile", "--ignorefile", DEPLOY / "Dockerfile.dockerignore", ROOT),
        seconds=BUILD_SECONDS,
    )
    return IMAGE


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A folder that every container mounts as /shared, to which user 1000 may write."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o777)
    study = digits_study(Path("/shared/searches"), name="mine", budget__trials=2, budget__epochs=1)
    own = {"scheduler.kind": "none", "concurrent": None, "tracking.uri": "sqlite:////home/tunebook/mlflow.db"}
    study.with_values(own).write(folder)
    (folder / STUDY_FILE).chmod(0o644)  # a study may name a secret, so only its owner reads it
    return folder


@pytest.mark.scenario
def test_a_search_in_one_container_is_owned_by_its_user(image: str, shared: Path) -> None:
    mounts = (*RUN, f"--volume={shared}:/shared")
    said = podman("run", "--rm", *mounts, image, "tunebook", "search", "/shared/study.yaml")
    assert "[2/2]" in said
    assert (shared / "searches/mine/best.yaml").stat().st_uid == 1000


@pytest.mark.scenario
def test_a_search_over_the_pods_of_the_ray_job_as_they_are_written(image: str, shared: Path) -> None:
    """What KubeRay adds to a pod is added here: the command, the address of the head, and the token."""
    if absent := [name for name in FOR_PODS if not any((folder / name).exists() for folder in HELPERS)]:
        pytest.skip(f"pods need {absent[0]}")
    cluster = read("kubernetes/rayjob.yaml")["spec"]["rayClusterSpec"]
    study = {"study.yaml": (shared / "study.yaml").read_text()}
    trees: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "tunebook-study"}, "data": study}
    ]
    groups = {"head": cluster["headGroupSpec"], "worker": cluster["workerGroupSpecs"][0]}
    (container,) = groups["head"]["template"]["spec"]["containers"]
    (port,) = (each["containerPort"] for each in container["ports"] if each["name"] == "gcs-server")
    address = f"tb-head:{port}"
    for name, command in start(address).items():
        trees.append(pod(f"tb-{name}", groups[name]["template"]["spec"], command, image, shared))
    head = "tb-head-ray-head"
    try:
        podman("kube", "play", "-", given=yaml.safe_dump_all(trees))
        wait_until(lambda: nodes(head, address) == 2, every=3.0, fault=lambda: podman("logs", head))
        search = ("search", "/etc/tunebook/study.yaml", "--address", address)
        assert "[2/2]" in podman("exec", head, "tunebook", *search)
        assert podman("exec", head, "id", "--user").strip() == "1000"
    finally:  # where `kube play` has failed, some are not there
        subprocess.run(["podman", "pod", "rm", "--force", "--ignore", "tb-head", "tb-worker"], check=False)
        subprocess.run(["podman", "volume", "rm", "--force", "tunebook-study"], check=False)
    assert (shared / "searches/mine/best.yaml").stat().st_uid == 1000


def pod(name: str, spec: Mapping[str, Any], command: str, image: str, shared: Path) -> dict[str, Any]:
    """Return a pod as KubeRay would make it, on a machine of two processors without a GPU."""
    (container,) = spec["containers"]
    token = [{"name": "RAY_AUTH_MODE", "value": "token"}, {"name": "RAY_AUTH_TOKEN", "value": TOKEN}]
    own = {
        "image": image,
        "imagePullPolicy": "Never",
        "command": ["bash", "-lc", f"ulimit -n 4096; {command}"],
    }
    limits = {"cpu": "1", "memory": "6Gi"}
    made = {**container, **own, "env": [*container["env"], *token], "resources": {"limits": limits}}
    volumes = [
        {"name": each["name"], "hostPath": {"path": str(shared), "type": "Directory"}}
        if "persistentVolumeClaim" in each
        else each
        for each in spec["volumes"]
    ]
    whole = {"securityContext": spec["securityContext"], "containers": [made], "volumes": volumes}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": whole}


def start(address: str) -> dict[str, str]:
    """Return how Ray starts on a head and on a worker that finds it at this address."""
    port = address.partition(":")[2]
    return {
        "head": f"ray start --head --port={port} --num-cpus=0 --include-dashboard=false --block",
        "worker": f"ray start --address={address} --num-cpus=1 --block",
    }


def nodes(head: str, address: str) -> int:
    """Return how many machines the cluster of a container has, which finds it at this address."""
    asked = subprocess.run(
        ["podman", "exec", head, "ray", "status", f"--address={address}"],
        capture_output=True,
        text=True,
        check=False,
    )
    return len(re.findall(r"^ 1 node_", asked.stdout, re.MULTILINE))
