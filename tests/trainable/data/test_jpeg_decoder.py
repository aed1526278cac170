"""Tests that a torchcodec that does not fit the installed torch costs speed, and no training."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tests.trainable.small_images import write_noise_jpeg
from trainable.data import jpeg_decoder

ROOT = Path(__file__).parents[3]
READ = """
import sys, torch
from trainable.bench import ON_CPU
from trainable.data.assembly import load
from trainable.tasks.kits import make_loader
from trainable.recipe import Recipe
from trainable.recipe.data import Data
from trainable.recipe.training import Loop

if __name__ == "__main__":
    data = load(Data(path=sys.argv[1], image_size=12, in_memory=False))
    loader = make_loader(data, Recipe(loop=Loop(workers=2)), ON_CPU)
    print(sum(len(images) for images, _ in loader.train(torch.arange(12).split(3), 0)))
    loader.close()
    data.idle_readers.end()
"""


@pytest.mark.parametrize(
    "error", ["RuntimeError('Could not load it.\\nWhy:')", "OSError('no symbol')", "AttributeError('ops')"]
)
def test_whatever_the_import_raises_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: str
) -> None:
    monkeypatch.syspath_prepend(broken_torchcodec(tmp_path, error))
    for name in [each for each in sys.modules if each.partition(".")[0] == "torchcodec"]:
        monkeypatch.delitem(sys.modules, name)

    assert runpy.run_path(jpeg_decoder.__file__)["decode"] is None
    (record,) = caplog.records
    assert "decoded by Pillow" in record.message
    assert "Why" not in record.message


@pytest.mark.integration
def test_pillow_decodes_where_torchcodec_cannot_be_imported(tmp_path: Path) -> None:
    broken = broken_torchcodec(tmp_path, "RuntimeError('Could not load it.')")
    (tmp_path / "read.py").write_text(READ)
    for number in range(16):
        part, label = ("train", "val")[number >= 12], ("a", "b")[number % 2]
        write_noise_jpeg(tmp_path / "images" / part / label / f"{number}.jpg", seed=number, size=20)

    done = subprocess.run(
        [sys.executable, str(tmp_path / "read.py"), str(tmp_path / "images")],
        env={**os.environ, "PYTHONPATH": f"{broken}:{ROOT}"},
        capture_output=True,
        text=True,
        timeout=300,
    )

    assert done.stdout.split() == ["12"], done.stderr
    assert "decoded by Pillow" in done.stderr
    assert "Traceback" not in done.stderr


def broken_torchcodec(folder: Path, error: str) -> Path:
    """Write a torchcodec whose import raises an error, and return the folder in which it is found."""
    (folder / "broken" / "torchcodec").mkdir(parents=True)
    (folder / "broken" / "torchcodec" / "__init__.py").write_text(f"raise {error}\n")
    return folder / "broken"


@pytest.mark.integration
def test_the_commands_help_imports_no_decoder() -> None:
    code = "import sys, search.__main__; sys.exit('torchcodec' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=300).returncode == 0
