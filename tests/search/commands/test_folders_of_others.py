"""Tests that somebody else's folder of a search is read as data, and no link in it is written through."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from search.record.lock import locked
from search.running.log_file import logging_to
from tests.search.command_line import Refusal, Tunebook
from tests.search.planted_searches import planted
from tests.search.reporting.small_reports import BELIEVED, hill
from trainable.errors import UserError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return planted(tmp_path, hill, trials=3, sampler__kind="random", **BELIEVED)


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("mine")
    return tmp_path / "precious"


def replaced_by_a_link(file: Path, precious: Path) -> None:
    file.unlink(missing_ok=True)
    file.symlink_to(precious / "file")


WRITTEN = {
    ".lock": "sync",
    ".mlflow.lock": "sync",
    "optuna.db-wal": "sync",
    "report.html": "sync",  # it would be read, and sent to the server that the study names
    "search.log": "resume",
    "mlflow-ui.log": "resume",
    "events.jsonl": "resume",
}


@pytest.mark.parametrize(("name", "command"), WRITTEN.items())
def test_a_link_in_the_place_of_a_file_is_named_and_not_followed(
    refusal: Refusal, folder: Path, precious: Path, name: str, command: str
) -> None:
    replaced_by_a_link(folder / name, precious)
    err = refusal(command, folder)
    assert (f"{folder / name}: " in err, "a link" in err) == (True, True)
    assert (precious / "file").read_text() == "mine"


def test_a_link_in_the_place_of_a_folder_is_named_and_not_followed(
    refusal: Refusal, folder: Path, precious: Path
) -> None:
    (folder / "trials").symlink_to(precious)
    assert "trials: is a link" in refusal("extend", folder, "--trials", "1")
    assert [each.name for each in precious.iterdir()] == ["file"]


def test_a_log_is_written_through_no_link(tmp_path: Path, precious: Path) -> None:
    replaced_by_a_link(tmp_path / "search.log", precious)
    with pytest.raises(UserError, match=r"search\.log: .*is a link"), logging_to(tmp_path / "search.log"):
        pass


def test_a_folder_that_is_reached_by_a_link_is_locked_as_ever(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(folder)
    with locked(tmp_path / "alias"):
        assert (folder / ".lock").read_text().startswith("process ")


@pytest.mark.parametrize(
    "name",
    [
        "answers.json",
        "findings.json",
        "mlflow.json",
        "report.json",
        "samples.json",
        "verification.json",
        ".lock",
    ],
)
def test_a_report_waits_for_no_named_pipe(tunebook: Tunebook, folder: Path, name: str) -> None:
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    code, out, err = tunebook("report", folder, "-o", "page.html")
    assert (code, out) == (0, "page.html\n") or (code, f"{name}: " in err) == (2, True), err


@pytest.mark.parametrize("name", ["events.jsonl", "study.yaml"])
@pytest.mark.parametrize("command", ["report", "show", "audit", "sync", "resume"])
def test_a_named_pipe_in_the_place_of_what_is_needed_is_one_message(
    tunebook: Tunebook, folder: Path, name: str, command: str
) -> None:
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    code, _, err = tunebook(command, folder)
    assert code == (1 if name == "events.jsonl" else 2), err
    assert f"{folder / name}: " in err
    assert "named pipe" in err


def test_a_study_that_does_not_say_where_its_runs_are_is_one_message(refusal: Refusal, folder: Path) -> None:
    assert "study.yaml: tracking.uri: expected where the runs are" in refusal("sync", folder)
