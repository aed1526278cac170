"""Starts deploy/ray/aws.yaml against a server that answers as Amazon's EC2 does, up to the first SSH."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import boto3
import pytest

from tests.deploy_files import DEPLOY
from tests.s3_server import s3_server
from tests.waiting import wait_until

pytestmark = pytest.mark.integration

LAUNCHER = DEPLOY / "ray/aws.yaml"
REGION = "us-west-2"
# What the head's autoscaler does for a kind of worker, with what `ray up` has worked out
ADD_WORKER = """
import sys
from ray.autoscaler._private.commands import _bootstrap_config
from ray.autoscaler._private.providers import _get_node_provider
import yaml

launcher = yaml.safe_load(open(sys.argv[1]))
config = _bootstrap_config(launcher, no_config_cache=True)
provider = _get_node_provider(config["provider"], config["cluster_name"])
for kind, count in (("gpu-on-demand", 1), ("gpu-spot", 3)):
    found = config["available_node_types"][kind]
    tags = {"ray-node-type": "worker", "ray-user-node-type": kind}
    provider.create_node(found["node_config"], tags, count)
"""


@pytest.fixture
def amazon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """The environment of a person whose Amazon is the server."""
    monkeypatch.setenv("MOTO_IAM_LOAD_MANAGED_POLICIES", "true")  # Amazon's own, which the head's role gets
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("0123456789abcdef" * 4)
    ssh = tmp_path / "bin" / "ssh"  # the addresses of these machines are those of others
    ssh.parent.mkdir()
    ssh.write_text("#!/bin/sh\nexit 255\n")
    ssh.chmod(0o755)
    path = f"{ssh.parent}:{os.environ['PATH']}"
    own = {"PATH": path, "AWS_DEFAULT_REGION": REGION, "HOME": str(tmp_path), "RAY_AUTH_MODE": "token"}
    with s3_server() as server:
        yield {**os.environ, **own, "AWS_ENDPOINT_URL": f"http://{server.address}"}


@pytest.mark.scenario
def test_machines_are_asked_for_as_the_file_says(
    amazon: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in amazon.items():
        monkeypatch.setenv(name, value)
    ec2 = boto3.client("ec2", region_name=REGION)
    log = tmp_path / "up.log"
    with log.open("w") as said:
        command = [str(Path(sys.executable).with_name("ray")), "up", "-y", "--no-config-cache", str(LAUNCHER)]
        up = subprocess.Popen(
            command, env=amazon, stdout=said, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        wait_until(lambda: "SSH" in log.read_text() or up.poll() is not None, fault=log.read_text)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(up.pid, signal.SIGKILL)
        up.wait()
    subprocess.run([sys.executable, "-c", ADD_WORKER, str(LAUNCHER)], env=amazon, check=True)
    machines = by_kind(ec2)
    # this server makes as few as are asked for at least, one, where Amazon makes as many as it has
    assert set(machines) == {"head", "gpu-on-demand", "gpu-spot"}
    for each in (one for kind in machines.values() for one in kind):
        assert each["ImageId"] == "ami-00000000000000000"
        assert each["KeyName"].startswith("ray-autoscaler")
        assert [group["GroupName"] for group in each["SecurityGroups"]] == ["ray-autoscaler-tunebook"]
    assert machines["head"][0]["InstanceType"] == "m6i.2xlarge"
    assert {each["InstanceType"] for each in machines["gpu-spot"]} == {"g6.2xlarge"}
    assert {each.get("InstanceLifecycle") for each in machines["gpu-spot"]} == {"spot"}
    assert "InstanceLifecycle" not in machines["gpu-on-demand"][0]
    role = machines["head"][0]["IamInstanceProfile"]["Arn"]
    assert "ray-autoscaler" in role, "the head may start machines"
    opened = ec2.describe_security_groups(GroupNames=["ray-autoscaler-tunebook"])["SecurityGroups"][0]
    ports = {rule.get("FromPort") for rule in opened["IpPermissions"] if rule.get("IpRanges")}
    assert ports == {22}, "nothing but SSH is open to others"
    assert list((tmp_path / ".ssh").glob("ray-autoscaler*.pem")), "the key lies where SSH finds it"


def by_kind(ec2: Any) -> dict[str, list[dict[str, Any]]]:
    """Return the machines by the name that the launcher's file gives their kind."""
    found: dict[str, list[dict[str, Any]]] = {}
    for reservation in ec2.describe_instances()["Reservations"]:
        for each in reservation["Instances"]:
            tags = {tag["Key"]: tag["Value"] for tag in each["Tags"]}
            assert tags["ray-cluster-name"] == "tunebook"
            found.setdefault(tags["ray-user-node-type"], []).append(each)
    return found
