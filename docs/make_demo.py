"""Makes the demo that the landing page shows: `python docs/make_demo.py` searches the bundled digits again.

It writes docs/demo/report.html, the report as the search left it, and report.png, its first screen, and puts
what the command printed into docs/index.md. It takes two to ten minutes of two cores, and needs chromium.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

DOCS = Path(__file__).parent
COMMAND = (
    "tunebook search --data digits --name digits --trials 16 --epochs 30 "
    '--set data.validation_fraction=.47 --set data.test_fraction=.48 --set "finalists={top: 2, seeds: 3}"'
)
OUTPUT = re.compile(r"(<!-- Made by docs/make_demo.py -->\n```console\n).*?(```\n)", re.DOTALL)
WIDTH = 110  # columns of the terminal


def main() -> None:
    """Search, and write what the landing page shows."""
    with tempfile.TemporaryDirectory() as folder:
        printed = _run(COMMAND, folder)
        report = Path(folder, "searches/digits/report.html").read_text(encoding="utf-8")
    Path(DOCS, "demo").mkdir(exist_ok=True)
    Path(DOCS, "demo/report.html").write_text(_relative(report, folder), encoding="utf-8")
    photograph()
    page = DOCS / "index.md"
    lines = [f"$ {COMMAND}", *_relative(printed, folder).rstrip().splitlines()]
    shown = "".join(f"{line.rstrip()}\n" for line in lines)
    text, made = OUTPUT.subn(lambda found: found[1] + shown + found[2], page.read_text(encoding="utf-8"))
    assert made == 1, "docs/index.md has no block for the output"
    page.write_text(text, encoding="utf-8")


def photograph() -> None:
    """Write a picture of the report's first screen."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.goto((DOCS / "demo/report.html").as_uri())
        page.screenshot(path=DOCS / "demo/report.png")
        browser.close()


def _run(command: str, folder: str) -> str:
    """Return what a command prints in a folder, as if this environment were the active one."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "COLUMNS": str(WIDTH)}
    done = subprocess.run(
        command, shell=True, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


def _relative(text: str, folder: str) -> str:
    """Return a text whose paths begin where the command ran."""
    return text.replace(f"{os.path.realpath(folder)}/", "").replace(f"{folder}/", "")


if __name__ == "__main__":
    main()
