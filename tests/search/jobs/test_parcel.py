"""Tests that a search's folder passes through a log whole, but without checkpoints and passwords."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

import pytest

from search.jobs.parcel import REPORT_FILE, packed, unpacked
from search.learning.search import Search
from search.record.folder import read_search
from tests.search.planted_searches import Run, planted
from trainable.errors import UserError


def steady(at: Mapping[str, float], luck: random.Random) -> Run:
    return Run(0.9 + luck.gauss(0.0, 0.01), 0.95)


def test_a_folder_comes_out_as_it_went_in_but_for_its_checkpoints(tmp_path: Path) -> None:
    folder = planted(tmp_path / "searches", steady, trials=4)
    (folder / "trials" / "0000").mkdir(parents=True)
    (folder / "trials" / "0000" / "state.pt").write_bytes(b"gigabytes")
    text = f"setting up\n{packed(folder)}\ntrailing words\n"
    assert max(map(len, text.splitlines())) < 100, "a log may cut long lines"
    names = unpacked(text, tmp_path / "here")
    assert sorted(names) == sorted([REPORT_FILE, "study.yaml", "facts.json", ".synced", "events.jsonl"])
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
