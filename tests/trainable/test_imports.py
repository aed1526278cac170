"""Tests which folders a command imports from."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainable.imports import SAFE_PATH, import_installed_alone, imports_installed_alone


@pytest.fixture(autouse=True)
def a_new_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(SAFE_PATH, "")
    monkeypatch.setattr("sys.argv", [str(tmp_path / "bin" / "tunebook")])
    monkeypatch.chdir(tmp_path)


def test_the_folder_of_the_program_is_searched_no_more_and_processes_that_are_started_inherit_that(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sys.path", [str(tmp_path / "bin"), "/lib"])
    assert not imports_installed_alone()
    import_installed_alone()
    assert sys.path == ["/lib"]
    assert imports_installed_alone()
    assert os.environ[SAFE_PATH] == "1"


def test_the_folder_where_python_s_own_program_runs_is_searched_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.argv", ["-c"])
    monkeypatch.setattr("sys.path", ["", "/lib"])
    import_installed_alone()
    assert sys.path == ["/lib"]


@pytest.mark.parametrize("told", ["", "1"])
def test_folders_that_somebody_named_stay(told: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = [str(tmp_path), "/lib"] if not told else [str(tmp_path / "bin"), "/lib"]
    monkeypatch.setenv(SAFE_PATH, told)
    monkeypatch.setattr("sys.path", list(before))
    import_installed_alone()
    assert sys.path == before, "as PYTHONPATH has it"


@pytest.mark.parametrize("empty", ["", ".", "./"])
def test_an_empty_folder_in_pythonpath_names_none(
    empty: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{empty}{os.pathsep}/mine")
    monkeypatch.setattr("sys.path", [str(tmp_path / "bin"), str(tmp_path), "/mine", "/lib"])
    import_installed_alone()
    assert os.environ["PYTHONPATH"] == "/mine", "which processes that are started inherit"
    assert sys.path == ["/mine", "/lib"]


def test_nothing_is_imported_before_it_is_known_from_where(tmp_path: Path) -> None:
    for name in ("typer", "pydantic", "rich", "yaml"):
        (tmp_path / f"{name}.py").write_text(f"raise RuntimeError('{name}.py lies where the command runs')")
    program = [sys.executable, str(Path(sys.executable).with_name("tunebook")), "--help"]
    environment = {**os.environ, "PYTHONPATH": f"{os.pathsep}/nowhere", SAFE_PATH: ""}
    done = subprocess.run(program, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
