"""A password in the tracking URI is shown by no command, and written to no file that others may read."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from search.study import STUDY_FILE
from tests.integration.clusters import free_port
from tests.integration.drivers import tunebook
from tests.integration.small_searches import digits_study

pytestmark = pytest.mark.integration

PASSWORD = "hunter2"


@pytest.mark.scenario
def test_no_command_shows_the_password_of_the_tracking_uri(tmp_path: Path) -> None:
    """Nothing answers at its address: so every command has an error to report."""
    uri = f"http://me:{PASSWORD}@127.0.0.1:{free_port()}"
    study = digits_study(tmp_path / "storage", name="mine", budget__trials=1, budget__epochs=1)
    study.with_values({"tracking.uri": uri}).write(tmp_path)
    folder = tmp_path / "storage" / "mine"
    code, said = tunebook("search", tmp_path / "study.yaml")
    assert (code, "MLflow lacks" in said) == (0, True), said
    for words in (
        *(("sync", folder), ("audit", folder), ("ui", folder), ("show", folder), ("explain", folder)),
        *(("resume", folder), ("refine", folder, "-o", tmp_path / "next.yaml")),
        ("search", "--data", "digits", "--tracking-uri", f"s3://me:{PASSWORD}@bucket/runs"),
    ):
        _, printed = tunebook(*words)
        said += printed
    assert "me:***@127.0.0.1" in said
    assert PASSWORD not in said
    for file in filter(Path.is_file, tmp_path.rglob("*")):
        if file.name in (STUDY_FILE, "next.yaml"):  # a search cannot go on without it
            assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
        else:
            assert PASSWORD.encode() not in file.read_bytes(), file
