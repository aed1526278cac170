"""Tests what is sent to a cluster: a study that means the same there, the project, the named variables."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from search.jobs.package import (
    PACKAGES,
    ROOT,
    SCRIPT,
    check_for_cluster,
    entrypoint,
    from_checkout,
    pack,
    variables,
)
from search.study import Study, StudyError
from trainable.errors import UserError

THERE: dict[str, Any] = {
    "data": {"path": "/shared/flowers"},
    "storage": "/shared/searches",
    "name": "flowers",
}


def study(**values: Any) -> Study:
    return Study.from_tree(THERE).with_values(
        {path.replace("__", "."): value for path, value in values.items()}
    )


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"data__path": "digits"},
        {"data__path": "s3://bucket/flowers"},
        {"base__model__weights": "/shared/weights.safetensors"},
        {"tracking__uri": "http://mlflow:5000"},
        {"tracking__uri": "sqlite:////shared/mlflow.db"},
    ],
)
def test_paths_of_the_cluster_are_left_as_they_are(values: dict[str, Any]) -> None:
    check_for_cluster(study(**values))


@pytest.mark.parametrize(
    ("values", "where"),
    [
        ({"data__path": "flowers"}, "data.path"),
        ({"storage": "searches"}, "storage"),
        ({"space__learn_from": ["/shared/old", "s3://b/old", "searches/old"]}, "space.learn_from.2"),
        ({"base__model__weights": "weights.safetensors"}, "base.model.weights"),
        (
            {
                "base__model__kind": "timm",
                "space__overrides": {"model.name": {"choice": ["resnet18", "local-dir:nets/mine"]}},
            },
            "space.overrides.model.name: local-dir:nets/mine",
        ),
        ({"tracking__uri": "sqlite:///mlflow.db"}, "tracking.uri"),
        ({"space__name": "documents"}, "space.name"),
        ({"tracking__uri": "postgresql://me:hunter2@db/mlflow"}, "tracking.uri"),
        ({"tracking__uri": "postgresql://db/mlflow?user=me&password=hunter2"}, "tracking.uri"),
    ],
)
def test_what_means_this_machine_is_refused_here(values: dict[str, Any], where: str) -> None:
    with pytest.raises(StudyError) as raised:
        check_for_cluster(study(**values))
    assert [path for path, _ in raised.value.faults] == [where]


def test_a_job_finds_the_project_in_its_folder(tmp_path: Path) -> None:
    pack(tmp_path)
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted([SCRIPT, *PACKAGES])
    assert not list(tmp_path.rglob("__pycache__"))


def test_a_checkout_is_distinguished_from_an_installation(tmp_path: Path) -> None:
    assert from_checkout(ROOT)
    assert not from_checkout(tmp_path)
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "another"\n')
    assert not from_checkout(tmp_path)


def test_variables_are_passed_on_by_name_or_with_a_value() -> None:
    passed = variables(["TOKEN", "A=b=c", "EMPTY="], {"TOKEN": "secret"})
    assert passed == {"TOKEN": "secret", "A": "b=c", "EMPTY": ""}
    with pytest.raises(UserError, match="--env HOST: is not set here"):
        variables(["HOST"], {})


@pytest.mark.integration
def test_a_job_takes_the_python_that_ray_runs_with(tmp_path: Path) -> None:
    """The test stands in for Ray's processes: it has loaded Ray, and there is no Python on its PATH."""
    pack(tmp_path)
    (tmp_path / "asked.py").write_text("import sys; print(sys.executable, sys.argv[1:])")
    starts = (
        "import ray._raylet, subprocess; "
        f"subprocess.run({entrypoint('asked', 'two words')!r}, shell=True, check=True)"
    )
    done = subprocess.run(
        [sys.executable, "-c", starts],
        cwd=tmp_path,
        env={**os.environ, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == f"{sys.executable} ['two words']"
