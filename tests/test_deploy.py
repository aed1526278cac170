"""Tests the files of deploy/: valid by their schema, in agreement with the lock and the commands, no secrets.

Nothing here starts a cluster, a container or a job: docs/cluster.md says what has never been tried.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
from ruamel.yaml import YAML

from tests.deploy_files import DEPLOY, ROOT, asked_of_search, read
from trainable.training.devices import LEAST_DRIVERS

PINNED = dict(re.findall(r"^([\w.-]+)==([\w.]+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE))
KUBERNETES = "1.34"

# The fields of KubeRay 1.6, ray.io/v1, after its API reference in Ray's documentation ("KubeRay CRD API
# reference"): no package carries the schema. Those of a pod are Kubernetes' own.
RAY_JOB_FIELDS = {
    "activeDeadlineSeconds",
    "backoffLimit",
    "clusterSelector",
    "deletionStrategy",
    "entrypoint",
    "entrypointNumCpus",
    "entrypointNumGpus",
    "entrypointResources",
    "jobId",
    "managedBy",
    "metadata",
    "preRunningDeadlineSeconds",
    "rayClusterSpec",
    "runtimeEnvYAML",
    "shutdownAfterJobFinishes",
    "submissionMode",
    "submitterConfig",
    "submitterPodTemplate",
    "suspend",
    "ttlSecondsAfterFinished",
}
RAY_CLUSTER_FIELDS = {
    "authOptions",
    "autoscalerOptions",
    "enableInTreeAutoscaling",
    "gcsFaultToleranceOptions",
    "headGroupSpec",
    "headServiceAnnotations",
    "managedBy",
    "rayVersion",
    "suspend",
    "upgradeStrategy",
    "workerGroupSpecs",
}
HEAD_FIELDS = {
    "enableIngress",
    "headService",
    "labels",
    "rayStartParams",
    "resources",
    "serviceType",
    "template",
}
WORKER_FIELDS = {
    "groupName",
    "idleTimeoutSeconds",
    "labels",
    "maxReplicas",
    "minReplicas",
    "numOfHosts",
    "rayStartParams",
    "replicas",
    "resources",
    "scaleStrategy",
    "template",
}


def leaves(value: object) -> Iterator[object]:
    """Yield every value of a tree that is neither a mapping nor a list."""
    if isinstance(value, Mapping):
        for part in value.values():
            yield from leaves(part)
    elif isinstance(value, list):
        for part in value:
            yield from leaves(part)
    else:
        yield value


# --- Ray's cluster launcher -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ray/on-premise.yaml", "ray/aws.yaml"])
def test_a_cluster_file_follows_the_schema_that_ray_ships(name: str) -> None:
    import ray.autoscaler

    schema = json.loads((Path(str(ray.autoscaler.__file__)).parent / "ray-schema.json").read_text())
    jsonschema.validate(read(name), schema)


@pytest.mark.parametrize("name", ["ray/on-premise.yaml", "ray/aws.yaml"])
def test_ray_itself_accepts_a_cluster_file_with_its_defaults_filled_in(name: str) -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    validate_config(prepare_config(read(name)))


def test_a_misspelt_field_of_a_cluster_file_is_refused() -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    wrong = read("ray/aws.yaml") | {"max_worker": 4}
    with pytest.raises(jsonschema.ValidationError, match="max_worker"):
        validate_config(prepare_config(wrong))


@pytest.mark.parametrize("name", ["ray/on-premise.yaml", "ray/aws.yaml"])
def test_every_machine_of_a_cluster_file_asks_for_the_token_and_has_it(name: str) -> None:
    cluster = read(name)
    assert any(path.endswith("/.ray/auth_token") for path in cluster["file_mounts"])
    asked = " ".join(cluster.get("docker", {}).get("run_options", []))
    for start in ("head_start_ray_commands", "worker_start_ray_commands"):
        assert "RAY_AUTH_MODE=token" in asked + " ".join(cluster[start])


def test_the_cloud_cluster_has_a_fixed_size_and_spot_machines_beside_one_that_stays() -> None:
    cluster = read("ray/aws.yaml")
    workers = {name: kind for name, kind in cluster["available_node_types"].items() if name != "head"}
    assert all(kind["min_workers"] == kind["max_workers"] for kind in workers.values())
    assert sum(kind["max_workers"] for kind in workers.values()) == cluster["max_workers"]
    markets = {
        name: kind["node_config"].get("InstanceMarketOptions", {}).get("MarketType")
        for name, kind in workers.items()
    }
    assert markets == {"gpu-on-demand": None, "gpu-spot": "spot"}


# --- Kubernetes -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rayjob() -> dict[str, Any]:
    return read("kubernetes/rayjob.yaml")


def test_the_ray_job_has_only_fields_that_kuberay_knows(rayjob: dict[str, Any]) -> None:
    assert (rayjob["apiVersion"], rayjob["kind"]) == ("ray.io/v1", "RayJob")
    cluster = rayjob["spec"]["rayClusterSpec"]
    assert set(rayjob["spec"]) <= RAY_JOB_FIELDS
    assert set(cluster) <= RAY_CLUSTER_FIELDS
    assert set(cluster["headGroupSpec"]) <= HEAD_FIELDS
    for group in cluster["workerGroupSpecs"]:
        assert set(group) <= WORKER_FIELDS


def test_the_ray_job_has_the_fields_that_kuberay_needs_in_their_types(rayjob: dict[str, Any]) -> None:
    spec, cluster = rayjob["spec"], rayjob["spec"]["rayClusterSpec"]
    for count in ("backoffLimit", "ttlSecondsAfterFinished", "preRunningDeadlineSeconds"):
        assert type(spec[count]) is int
    assert spec["shutdownAfterJobFinishes"] is True
    assert cluster["authOptions"] == {"mode": "token"}
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
        (container,) = group["template"]["spec"]["containers"]
        assert container["name"]
        assert container["image"]


def test_pods_follow_the_schema_of_kubernetes_and_hold_nothing_else(rayjob: dict[str, Any]) -> None:
    """The schema is that of Kubernetes' own API, which the package kubernetes-validate carries."""
    cluster = rayjob["spec"]["rayClusterSpec"]
    templates = [group["template"] for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"])]
    for template in templates:
        assert kubernetes_validate.validate(pod_template(template), KUBERNETES, strict=True)
    misspelt = copy.deepcopy(templates[0])
    misspelt["spec"]["containers"][0]["volumeMount"] = []
    with pytest.raises(kubernetes_validate.ValidationError, match="volumeMount"):
        kubernetes_validate.validate(pod_template(misspelt), KUBERNETES, strict=True)


def pod_template(template: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "pod"}, "template": template}


def test_the_ray_job_names_the_ray_that_the_image_has(rayjob: dict[str, Any]) -> None:
    assert rayjob["spec"]["rayClusterSpec"]["rayVersion"] == PINNED["ray"]


def test_the_groups_of_the_ray_job_have_a_fixed_size_and_each_worker_a_gpu(rayjob: dict[str, Any]) -> None:
    groups = rayjob["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    assert [group["groupName"] for group in groups] == ["gpu", "gpu-spot"]
    for group in groups:
        assert group["minReplicas"] == group["replicas"] == group["maxReplicas"]
        resources = group["template"]["spec"]["containers"][0]["resources"]
        assert resources["requests"] == resources["limits"]
        assert resources["limits"]["nvidia.com/gpu"] == 1


def test_only_the_spot_workers_go_to_spot_machines(rayjob: dict[str, Any]) -> None:
    on_demand, spot = (
        group["template"]["spec"] for group in rayjob["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    )
    ((key, value),) = spot["nodeSelector"].items()
    taint = {"key": key, "operator": "Equal", "value": value, "effect": "NoSchedule"}
    assert taint in spot["tolerations"]
    assert taint not in on_demand["tolerations"]
    assert "nodeSelector" not in on_demand


def test_every_volume_that_a_pod_mounts_is_declared_in_it(rayjob: dict[str, Any]) -> None:
    cluster = rayjob["spec"]["rayClusterSpec"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        pod = group["template"]["spec"]
        mounted = {mount["name"]: mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
        assert set(mounted) == {volume["name"] for volume in pod["volumes"]}
        assert mounted["shared"] == "/shared"


def test_a_stopped_ray_job_has_time_for_a_clean_end(rayjob: dict[str, Any]) -> None:
    from ray.dashboard.modules.job.job_supervisor import JobSupervisor

    # The class stands behind ray's actor decorator in some versions.
    supervisor = getattr(JobSupervisor, "__ray_metadata__", None)
    known = (supervisor.modified_class if supervisor else JobSupervisor).VALID_STOP_SIGNALS
    settings = YAML(typ="safe").load(rayjob["spec"]["runtimeEnvYAML"])["env_vars"]
    assert settings["RAY_JOB_STOP_SIGNAL"] in known
    assert all(isinstance(value, str) for value in settings.values())
    assert int(settings["RAY_JOB_STOP_WAIT_TIME_S"]) > JobSupervisor.DEFAULT_RAY_JOB_STOP_WAIT_TIME_S


def test_the_entrypoint_is_a_command_of_tunebook_and_needs_no_quoting(rayjob: dict[str, Any]) -> None:
    entrypoint = rayjob["spec"]["entrypoint"]
    assert re.fullmatch(r"[\w.:/ -]+", entrypoint)
    program, *words = entrypoint.split()
    assert program == "tunebook"
    assert asked_of_search(words) == {
        "file": "/etc/tunebook/study.yaml",
        "storage": "/shared/searches",
        "name": "flowers",
        "address": "auto",
        "tracking_uri": "http://mlflow.example.com:5000",
        "again": True,
    }


# --- the MLflow server ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return read("compose.yaml")


def test_the_compose_file_follows_the_compose_specification(compose: dict[str, Any]) -> None:
    """Its schema is carried by the package check-jsonschema."""
    text = (
        resources.files("check_jsonschema").joinpath("builtin_schemas/vendor/compose-spec.json").read_text()
    )
    schema = json.loads(text)
    jsonschema.validate(compose, schema)
    compose = copy.deepcopy(compose)
    compose["services"]["mlflow"]["enviroment"] = {}
    with pytest.raises(jsonschema.ValidationError, match="enviroment"):
        jsonschema.validate(compose, schema)


def test_the_server_is_the_mlflow_of_the_lock(compose: dict[str, Any]) -> None:
    assert f"mlflow=={PINNED['mlflow']} " in compose["services"]["mlflow"]["build"]["dockerfile_inline"]
    for name in ("mlflow", "bucket"):
        assert compose["services"][name]["image"] == f"tunebook-mlflow:{PINNED['mlflow']}"


def test_services_wait_for_healthy_ones_and_keep_their_data_in_volumes(compose: dict[str, Any]) -> None:
    services = compose["services"]
    for service in services.values():
        for other, when in service.get("depends_on", {}).items():
            if when["condition"] == "service_healthy":
                assert "healthcheck" in services[other]
    mounted = {volume.split(":")[0] for name in ("postgres", "s3") for volume in services[name]["volumes"]}
    assert mounted == set(compose["volumes"])
    assert [name for name, service in services.items() if "ports" in service] == ["mlflow"]


@pytest.mark.slow("asks other programs")
def test_the_flags_of_the_server_exist(compose: dict[str, Any]) -> None:
    from mlflow.cli import cli

    command, *flags = compose["services"]["mlflow"]["command"].split()[1:]
    known = {option for parameter in cli.commands[command].params for option in parameter.opts}
    assert {flag for flag in flags if flag.startswith("--")} <= known
    from_environment = {parameter.envvar for parameter in cli.commands[command].params}
    assert {"MLFLOW_BACKEND_STORE_URI", "MLFLOW_ARTIFACTS_DESTINATION"} <= from_environment
    assert "MLFLOW_SERVER_ALLOWED_HOSTS" in from_environment


def test_every_variable_of_the_compose_file_is_in_the_example_and_the_secrets_are_empty_there() -> None:
    example = dict(re.findall(r"^(\w+)=(.*)$", (DEPLOY / ".env.example").read_text(), re.MULTILINE))
    used = set(re.findall(r"\$\{(\w+)", (DEPLOY / "compose.yaml").read_text()))
    assert used == set(example)
    assert {name for name, value in example.items() if value} == {"MLFLOW_BIND"}


def test_no_secret_stands_in_the_compose_file(compose: dict[str, Any]) -> None:
    settings = [service.get("environment", {}) for service in compose["services"].values()]
    secret = [
        value
        for setting in settings
        for name, value in setting.items()
        if re.search("PASSWORD|SECRET|ACCESS_KEY", name)
    ]
    assert len(secret) == 7
    assert all(str(value).startswith("${") for value in secret)


def test_the_filled_in_environment_is_never_committed() -> None:
    assert "/deploy/.env" in (ROOT / ".gitignore").read_text().splitlines()


# --- the image ------------------------------------------------------------------------------------------


def test_the_image_takes_only_what_its_ignore_file_lets_in_and_all_of_that_exists() -> None:
    ignored, *allowed = [
        line
        for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    assert ignored == "*"
    let_in = {line[1:] for line in allowed if line.startswith("!")}
    copies = re.findall(r"^COPY (?:--\S+ )*(.+) \S+$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    copied = {source for line in copies for source in line.split()}
    assert copied == let_in
    assert all((ROOT / path).exists() for path in copied)


def test_the_image_runs_as_a_user_without_rights_and_lets_others_choose_the_command() -> None:
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    (user,) = [line.split()[1] for line in lines if line.startswith("USER ")]
    assert int(user) > 0
    assert not [line for line in lines if line.startswith("ENTRYPOINT")]


def test_the_image_is_given_gpus_and_can_compile() -> None:
    """No base image of NVIDIA's asks the container toolkit for GPUs, and slim images have no compiler."""
    text = (DEPLOY / "Dockerfile").read_text()
    assert "NVIDIA_VISIBLE_DEVICES=all" in text
    assert "NVIDIA_DRIVER_CAPABILITIES=compute,utility" in text
    assert re.search(r"apt-get install .*\bg\+\+", text)
    cuda = int(PINNED["cuda-toolkit"].split(".")[0])
    assert f"contain CUDA {cuda}:" in text
    assert f"a driver, {LEAST_DRIVERS[cuda]} or newer" in text


# --- all of them ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["ray/on-premise.yaml", "ray/aws.yaml", "kubernetes/rayjob.yaml", "compose.yaml"]
)
def test_addresses_and_names_to_be_filled_in_are_those_reserved_for_examples(name: str) -> None:
    text = "\n".join(str(leaf) for leaf in leaves(read(name)))
    for address in re.findall(r"\b\d{1,3}(?:\.\d{1,3}){3}\b", text):
        assert address.startswith(("192.0.2.", "127.0.0.1", "0.0.0.0"))
    for image in re.findall(r"\S+/tunebook:\S+", text):
        assert image.startswith("registry.example.com/")


def test_every_file_of_deploy_is_named_in_the_document() -> None:
    document = (ROOT / "docs" / "cluster.md").read_text()
    files = [path for path in DEPLOY.rglob("*") if path.is_file() and path.name != ".env"]
    assert files
    assert [path.name for path in files if path.name not in document] == []
