"""Runs what the pages tell a reader to type, each page from top to bottom, in a folder with small made data.

A page's commands and its blocks of Python run as they stand there, but with less to do: see `SMALL`. What
cannot run here is in `NOT_HERE`, with the reason. tests/test_commands_in_documents.py reads the other pages.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from tests.document_lines import FENCE, lines

ROOT = Path(__file__).parents[2]
PAGES = [
    "README.md",
    "docs/index.md",
    "docs/tutorial.md",
    "docs/first-day.md",
    "docs/python.md",
    "docs/checks.md",
    *(f"docs/how-to/{path.name}" for path in sorted((ROOT / "docs/how-to").glob("*.md"))),
]

# Added to each command of the name. Of an option that is given twice, the last counts.
SMALL = {"search": "--trials 2 --epochs 1", "extend": "--trials 1", "check": "--seconds 5", "delete": "--yes"}
SMALL_BUDGET = '"trials": 2, "epochs": 1'  # in place of that in a block of Python

A_CLUSTER = "it needs a cluster's head at that address; tests/integration/test_jobs.py submits to one"
SERVES = "it serves until Ctrl-C; tests/integration/test_mlflow_pages.py opens its pages"
NOT_HERE = {
    ("README.md", "search --data flowers --download"): "a longer form of it follows there",
    ("README.md", "submit study.yaml"): A_CLUSTER,
    ("README.md", "status --address"): A_CLUSTER,
    ("README.md", "fetch JOB"): A_CLUSTER,
    ("README.md", "import tunebook"): "docs/python.md begins with it, and with a smaller budget",
    ("docs/first-day.md", "submit ../study.yaml"): A_CLUSTER,
    ("docs/first-day.md", "submit study.yaml"): A_CLUSTER,
    ("docs/first-day.md", "fetch JOB"): A_CLUSTER,
    ("docs/index.md", "ui searches/digits"): SERVES,
    ("docs/tutorial.md", "ui searches/signs"): SERVES,
    ("docs/how-to/other-tools.md", "ui searches/flowers"): SERVES,
}

# Other programs in the blocks of shell: those of Slurm, of other machines, of clouds and containers
OTHERS = {"sbatch", "ssh", "scp", "rsync", "tail", "exit", "ray", "docker", "helm", "kubectl"}
OTHERS |= {"git", "make", "cd", "export", "$EDITOR"}  # and what comes before them

# The file that a page's commands call its block of YAML
STUDIES = {
    "docs/first-day.md": "../study.yaml",
    "docs/how-to/masks.md": "nuclei.yaml",
}
# What a page leaves to its reader to write
OWN_CODE = {"docs/python.md": "from own_search import build_model, make_data\n"}


def commands(page: str) -> list[str]:
    """Return what a page says to type after `tunebook`, in its order."""
    found = sorted(lines(ROOT / page), key=lambda line: line.number)
    return [line.text for line in found if not line.is_synopsis]


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return [block for kind, block in FENCE.findall(text) if kind == language]


def runs_here(page: str, text: str) -> bool:
    return not any(text.startswith(start) for where, start in NOT_HERE if where == page)


@pytest.mark.parametrize(("page", "start"), NOT_HERE)
def test_what_cannot_run_stands_in_its_page(page: str, start: str) -> None:
    assert any(text.startswith(start) for text in [*commands(page), *blocks(page, "python")])


def test_no_other_program_is_called_than_those_that_need_another_machine() -> None:
    typed = [line for page in PAGES for block in blocks(page, "sh") for line in block.splitlines()]
    assert {line.split()[0].removeprefix(".venv/bin/") for line in typed} - {"tunebook"} == OTHERS


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with all data that pages name, and a finished search under two names."""
    folder = tmp_path_factory.mktemp("made")
    digits, seen = load_digits(), Counter[int]()
    for pixels, label in zip(digits.images[:360], digits.target[:360], strict=True):
        image, number = Image.fromarray((pixels * 15).astype("uint8")), seen[label]
        seen[label] += 1
        series = f"plant_{label}{number // 4}"  # of four images
        write(image, folder / f"flowers/{label}/{number}.png")
        write(image, folder / f"plants/{label}/{series}_{number % 4}.png")
        write(image, folder / f"leaves/{'ill' if label == 1 else 'well'}/{label}-{number}.png")
        write(image, folder / f"signs/{label}/IMG_{1110 + number}.JPG")
        if label < 2:
            write(image, folder / f"photos/{label}-{number}.png")
            row = f"photos/{label}-{number}.png,{['oak', 'beech'][label]},{series}"
            with (folder / "trees.csv").open("a") as file:
                print(row if file.tell() else f"path,label,group\n{row}", file=file)
    draws = np.random.default_rng(0)
    for number in range(40):
        (across, down), (y, x) = draws.integers(8, 24, 2), np.mgrid[:32, :32]
        mask = ((x - across) ** 2 + (y - down) ** 2 < 36).astype("uint8")
        pixels = 60 + 120 * mask + draws.integers(0, 20, mask.shape)  # no two images are equal
        write(Image.fromarray(pixels.astype("uint8")), folder / f"nuclei/images/{number}.png")
        write(Image.fromarray(mask), folder / f"nuclei/masks/{number}.png")
    tunebook(f"search --data flowers --name flowers {SMALL['search']}", folder)
    shutil.copytree(folder / "searches/flowers", folder / "searches/leaves")
    return folder


def write(image: Image.Image, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path)


def tunebook(command: str, folder: Path) -> None:
    run(["-m", "search", *shlex.split(command)], folder)


def run(arguments: list[str], folder: Path) -> None:
    """Run Python in a folder; no browser is opened."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "BROWSER": "true", "PYTHONPATH": str(ROOT / "examples")},
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
    )
    assert done.returncode == 0, f"{arguments}: {done.stdout[-2000:]}{done.stderr[-2000:]}"


@pytest.mark.integration
@pytest.mark.scenario
@pytest.mark.timeout(1800)  # each command imports torch
@pytest.mark.slow("searches, trains and bundles")
@pytest.mark.parametrize("page", [page for page in PAGES if commands(page) or blocks(page, "python")])
def test_the_commands_and_scripts_of_a_page_run(page: str, made: Path, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    folder = shared / "tunebook"  # where docs/first-day.md has the clone
    here = [text.replace("/shared/", f"{shared}/") for text in commands(page) if runs_here(page, text)]
    scripts = "\n".join(block for block in blocks(page, "python") if runs_here(page, block))
    shutil.copytree(made, folder)
    for place, target in (("data", folder), ("searches", folder / "searches")):
        (shared / place).symlink_to(target)
    for name in re.findall(r'(?:--name |"name": ")(\w+)', " ".join(here) + scripts):  # it searches itself
        shutil.rmtree(folder / "searches" / name, ignore_errors=True)
    if page in STUDIES:
        study = next(block for block in blocks(page, "yaml") if re.search(r"^data:", block, re.MULTILINE))
        (folder / STUDIES[page]).write_text(study.replace("/shared/", f"{shared}/"))

    for command in here:
        tunebook(f"{command} {SMALL.get(command.split()[0], '')}", folder)
    if scripts:
        small = re.sub(r'"trials": \d+, "epochs": \d+', SMALL_BUDGET, scripts)
        (folder / "script.py").write_text(OWN_CODE.get(page, "") + small)
        run(["script.py"], folder)
