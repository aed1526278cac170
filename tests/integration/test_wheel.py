"""Builds the wheel and the source distribution, and looks at a search from an empty environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from trainable.extras import INSTALL, RUN

ROOT = Path(__file__).parents[2]
MOST_BYTES = 80e6
UV = (sys.executable, "-m", "uv")

pytestmark = [pytest.mark.integration, pytest.mark.slow("builds packages, and installs one")]


def run(*words: str | Path, cwd: Path, code: int = 0) -> str:
    done = subprocess.run(
        list(map(str, words)),
        cwd=cwd,
        env={**os.environ, "BROWSER": "true", "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the source distribution, the wheel made of it, and `direct`, that of the tree."""
    tree, out = tmp_path_factory.mktemp("tree") / "tunebook", tmp_path_factory.mktemp("built")
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file() and not name.startswith(("tests/", "benchmarks/", "docs/")):
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tree / name)
    # with the setuptools of this environment: an empty one would have to be filled from the network
    backend = ("--no-build-isolation", "--python", sys.executable)
    run(*UV, "build", *backend, "--out-dir", out, ".", cwd=tree)
    run(*UV, "build", *backend, "--wheel", "--out-dir", out / "direct", ".", cwd=tree)
    return out


@pytest.fixture(scope="module")
def environment(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an environment in which the wheel is all that was asked for."""
    folder = tmp_path_factory.mktemp("environment") / "venv"
    run(*UV, "venv", "--python", sys.executable, folder, cwd=built)
    install = [
        *UV,
        "pip",
        "install",
        "--python",
        str(folder / "bin" / "python"),
        *map(str, built.glob("*.whl")),
    ]
    offline = subprocess.run([*install, "--offline"], capture_output=True, text=True, check=False)
    if offline.returncode:  # not all of it is in the cache
        online = subprocess.run(install, capture_output=True, text=True, check=False)
        if online.returncode and "TUNEBOOK_ALL_SERVERS" not in os.environ:
            pytest.skip(f"there is no network for packages: {online.stderr[-300:]}")
        assert online.returncode == 0, online.stderr
    return folder


def test_a_wheel_of_the_source_distribution_is_that_of_the_tree(built: Path) -> None:
    (of_sources,), (of_tree,) = built.glob("*.whl"), (built / "direct").glob("*.whl")
    with ZipFile(of_sources) as first, ZipFile(of_tree) as second:
        assert {each: first.getinfo(each).CRC for each in first.namelist()} == {
            each: second.getinfo(each).CRC for each in second.namelist()
        }
        packed = {each for each in second.namelist() if not each.startswith("tunebook-")}
    ours = {
        each.relative_to(ROOT).as_posix()
        for name in ("search", "spaces", "trainable", "tunebook")
        for each in (ROOT / name).rglob("*")
        if each.is_file() and "__pycache__" not in each.parts
    }
    assert packed == ours


def test_an_empty_environment_gets_a_light_client(environment: Path, tmp_path: Path) -> None:
    (site,) = environment.glob("lib/python*/site-packages")
    heavy = [name for name in RUN if (site / name).exists() or (site / f"{name}.py").exists()]
    taken = sum(each.lstat().st_size for each in environment.rglob("*") if not each.is_symlink())
    assert heavy == []
    assert taken < MOST_BYTES, f"{taken / 1e6:.1f} MB"
    shutil.copytree(ROOT / "tests" / "net" / "labels", tmp_path / "labels")
    tunebook = environment / "bin" / "tunebook"
    for line in (
        "--version",
        "--help",
        "list .",
        "show labels",
        "report labels",
        "open labels",
        "explain labels",
    ):
        assert run(tunebook, *line.split(), cwd=tmp_path)
    assert (tmp_path / "labels" / "report.html").stat().st_size > 10_000
    said = run(tunebook, "resume", "labels", cwd=tmp_path, code=2)
    assert said.endswith(f" resume needs PyTorch: {INSTALL}\n")


def test_another_package_of_our_name_is_warned_of(environment: Path, tmp_path: Path) -> None:
    (site,) = environment.glob("lib/python*/site-packages")
    other = site / "elastic_search-1.2.dist-info"
    other.mkdir()
    (other / "RECORD").write_text("search/__init__.py,sha256=x,3\nelastic_search-1.2.dist-info/RECORD,,\n")
    try:
        python = environment / "bin" / "python"
        said = run(environment / "bin" / "tunebook", "list", ".", cwd=tmp_path)
        assert f"elastic_search 1.2 has a package search in {site}" in said
        assert "has a package search" in run(python, "-c", "import tunebook; tunebook.show", cwd=tmp_path)
    finally:
        shutil.rmtree(other)
    assert "elastic" not in run(environment / "bin" / "tunebook", "list", ".", cwd=tmp_path)
