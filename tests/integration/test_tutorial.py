"""Runs the commands of the tutorial, one after another, on a small folder of images."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image
from sklearn.datasets import load_digits

from tests.document_lines import lines

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial.md"
SERVES = "ui"  # until Ctrl-C


@pytest.mark.integration
@pytest.mark.scenario
@pytest.mark.timeout(1800)  # each of a dozen commands imports torch
@pytest.mark.slow("searches, trains and bundles")
def test_the_tutorial_works_from_the_folder_to_the_bundle(tmp_path: Path) -> None:
    digits = load_digits()
    for number, (pixels, label) in enumerate(zip(digits.images[:300], digits.target[:300], strict=True)):
        folder = tmp_path / "signs" / str(label)
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray((pixels * 15).astype("uint8")).save(folder / f"{number}.png")
    commands = [shlex.split(in_a_minute(line.text)) for line in lines(TUTORIAL)]
    run = [command for command in commands if command[0] != SERVES]
    assert len(run) > 8
    for command in run:
        done = subprocess.run(
            [sys.executable, "-m", "search", *command],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    assert (tmp_path / "searches/signs/report.html").is_file()
    assert (tmp_path / "signs-bundle/model.onnx").is_file()


def in_a_minute(command: str) -> str:
    """Return a command with a budget that a test has time for."""
    shorter = re.sub(r"--epochs \d+", "--epochs 2", re.sub(r"--trials \d+", "--trials 2", command))
    return f"{shorter} --seconds 5" if shorter.startswith("check ") else shorter
