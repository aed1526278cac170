"""Tests what goes to a cluster with a job, and how a search's folder comes back through its log."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from search.jobs.package import (
    ROOT,
    SCRIPT,
    check_for_cluster,
    entrypoint,
    from_checkout,
    pack,
    variables,
)
from search.jobs.parcel import REPORT_FILE, packed, unpacked
from search.learning.search import Search
from search.record.folder import read_search
from search.study import Study, StudyError
from tests.search.planted_searches import Run, planted
from trainable.errors import UserError
from trainable.imports import PACKAGES

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


def steady(at: Mapping[str, float], luck: random.Random) -> Run:
    return Run(0.9 + luck.gauss(0.0, 0.01), 0.95)


def test_a_folder_comes_out_as_it_went_in_but_for_its_checkpoints(tmp_path: Path) -> None:
    folder = planted(tmp_path / "searches", steady, trials=4)
    (folder / "trials" / "0000").mkdir(parents=True)
    (folder / "trials" / "0000" / "state.pt").write_bytes(b"gigabytes")
    text = f"setting up\n{packed(folder)}\ntrailing words\n"
    assert max(map(len, text.splitlines())) < 100, "a log may cut long lines"
    names = unpacked(text, tmp_path / "here")
    files = ("study.yaml", "facts.json", "findings.json", ".synced", "events.jsonl")
    assert sorted(names) == sorted([REPORT_FILE, *files])
    assert Search(tmp_path / "here").progress == Search(folder).progress
    assert read_search(tmp_path / "here") == read_search(folder)
    assert "planted: " in (tmp_path / "here" / REPORT_FILE).read_text()


def test_a_password_stays_on_the_cluster(tmp_path: Path) -> None:
    uri = "postgresql://me:hunter2@db/mlflow"
    folder = planted(tmp_path / "searches", steady, trials=2, tracking__uri=uri)
    unpacked(packed(folder), tmp_path / "here")
    assert read_search(tmp_path / "here").tracking.uri == "postgresql://me:***@db/mlflow"
    assert not any(b"hunter2" in each.read_bytes() for each in (tmp_path / "here").iterdir())


@pytest.mark.parametrize("log", ["", "sh: python: not found\n", "-----BEGIN TUNEBOOK SEARCH-----\nH4sI"])
def test_a_log_without_a_whole_parcel_is_refused(log: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"could not pack the search: .*(no output|not found|H4sI)"):
        unpacked(log, tmp_path / "here")
    assert not (tmp_path / "here").exists()
