"""Searches from a folder with modules of the names that a search imports: none of them is imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from search.record.journal import EndEvent
from tests.integration.small_searches import digits_study, events_in
from trainable.imports import SAFE_PATH

pytestmark = pytest.mark.integration

NAMES = ("trainable", "search", "spaces", "timm", "torch", "numpy", "yaml", "ray", "PIL", "typing", "socket")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder in which every module raises an error when it is imported."""
    monkeypatch.delenv(SAFE_PATH, raising=False)
    folder = tmp_path / "here"
    folder.mkdir()
    for name in NAMES:
        (folder / f"{name}.py").write_text(
            f"raise RuntimeError('{name}.py was imported from where it runs')\n"
        )
    (folder / "multiprocessing").mkdir()
    (folder / "multiprocessing" / "__init__.py").write_text("raise RuntimeError('multiprocessing')\n")
    return folder


def called(folder: Path, *arguments: str) -> str:
    command = [str(Path(sys.executable).with_name("tunebook")), *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.scenario
def test_a_search_and_its_ranks_import_nothing_from_the_folder_where_it_runs(folder: Path) -> None:
    study = digits_study(
        folder / "storage", budget__trials=1, budget__epochs=1, resources__workers=2, name="s"
    )
    study.write(folder)
    called(folder, "search", "study.yaml")
    ended = [each for each in events_in(folder / "storage" / "s") if isinstance(each, EndEvent)]
    assert [each.state for each in ended] == ["finished"]


def test_processes_that_read_images_import_nothing_from_the_folder_where_it_runs(folder: Path) -> None:
    for number in range(40):
        image = folder / "images" / "ab"[number % 2] / f"{number}.png"
        image.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (16, 16), (number, 0, 0)).save(image)
    (folder / "recipe.yaml").write_text(
        "data: {path: images, in_memory: false}\n"
        "model: {width: 4, depth: 8}\n"
        "loop: {epochs: 1, batch_size: 8, workers: 2}\n"
    )
    assert "validation" in called(folder, "train", "recipe.yaml")
