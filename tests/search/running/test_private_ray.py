"""Tests what Ray is told of a driver; no Ray is started."""

from __future__ import annotations

import pytest

from search.running.private_ray import driver_settings
from trainable.imports import SAFE_PATH


@pytest.mark.parametrize(("told", "without_the_folder"), [("1", True), ("", False)])
def test_processes_that_train_import_from_the_driver_s_folder_for_a_script_of_one_s_own_alone(
    told: str, without_the_folder: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SAFE_PATH, told)
    assert driver_settings()._client_job is without_the_folder
