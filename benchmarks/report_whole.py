"""Measures the whole report: its bytes, the seconds to write it, and until a browser has drawn it.

    python benchmarks/report_whole.py [--rounds 5]

The searches have invented curves in the space that `document` gives for digits. The page is that of
`tunebook report`, with 24 images of noise as mistakes, which no format makes small. Headless Chromium opens
it from the disk, at 1280 x 900 pixels; it is drawn when it has loaded, and two frames were painted.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import Browser, sync_playwright

from report import described, environment, write
from report_page import CHROMIUM, FRAMES, spread
from search.learning.search import Search
from search.reporting.answered import Answers, Mistake
from search.reporting.answers import THUMBNAIL_PIXELS, WORST, class_scores, thumbnail
from search.reporting.content import Report
from search.reporting.gather import report_of
from search.reporting.page import page
from tests.search.planted_searches import EPOCHS, Run, planted

CLASSES = 10
KINDS: Mapping[str, dict[str, Any]] = {
    "1 trial": {"trials": 1},
    "2,000 trials, stopped early by ASHA": {"trials": 2_000},
    "2,000 trials, none stopped": {"trials": 2_000, "scheduler": {"kind": "none"}},
}


def landscape(at: Mapping[str, float], luck: random.Random) -> Run:
    """Make trials the better, the nearer their values are to the middle of their ranges."""
    lost = statistics.fmean(abs(each - 0.5) for each in at.values()) if at else 0.0
    accuracy = 0.98 - 0.5 * lost + luck.gauss(0.0, 0.01)
    return Run(accuracy, accuracy + 0.01, diverges=luck.random() < 0.02)


def answers(trial: int) -> Answers:
    """Return scores of ten classes, and as many mistakes as a report has."""
    draws, confusion = np.random.default_rng(0), np.full((CLASSES, CLASSES), 3).tolist()
    true, predicted = np.indices((CLASSES, CLASSES)).reshape(2, -1)
    pixels = draws.integers(0, 256, (WORST, 3, THUMBNAIL_PIXELS, THUMBNAIL_PIXELS), dtype=np.uint8)
    mistakes = [
        Mistake(true="1", predicted="7", probability=0.9, probability_true=0.1, thumbnail=thumbnail(each))
        for each in pixels
    ]
    return Answers(
        trial=trial,
        images=300,
        accuracy=0.1,
        classes=class_scores([str(each) for each in range(CLASSES)], true.repeat(3), predicted.repeat(3)),
        confusion=tuple(map(tuple, confusion)),
        mistakes=tuple(mistakes),
    )


def measure(kind: str, browser: Browser, rounds: int) -> dict[str, Any]:
    """Return the bytes of one kind of search's page, and the seconds of each round."""
    with tempfile.TemporaryDirectory() as storage:
        folder = planted(Path(storage), landscape, sampler__kind="random", **KINDS[kind])
        began = time.process_time()
        report: Report = report_of(Search(folder))
        gathered = time.process_time() - began
        report = report.model_copy(update={"answers": answers(report.answer.best or 0)})
        file, written, drawn = Path(storage) / "report.html", [], []
        for _ in range(rounds):
            began = time.process_time()
            file.write_text(page(report))
            written.append(time.process_time() - began)
            with browser.new_page(viewport={"width": 1280, "height": 900}) as shown:
                shown.goto(file.as_uri())
                drawn.append(float(shown.evaluate(FRAMES)) / 1000.0)
        size = file.stat().st_size
    found = {"bytes": size, "gather_seconds": gathered, "write_seconds": written, "drawn_seconds": drawn}
    return {**found, "epochs": report.answer.epochs_trained}


def page_of(runs: Mapping[str, dict[str, Any]], rounds: int, where: Mapping[str, Any]) -> str:
    """Return the results as Markdown."""
    lines = [
        "# The whole report",
        "",
        f"Invented curves of up to {EPOCHS} epochs in the space `document`; {WORST} images of noise as "
        f"mistakes; median (least to most) of {rounds} rounds, in headless Chromium {where['chromium']}. "
        "Gathered, once, and written: seconds of processor time.",
        "",
        "| search | epochs | page, MB | gathered, s | written, s | drawn, s |",
        "|-|-|-|-|-|-|",
    ]
    lines += [
        f"| {kind} | {run['epochs']:,} | {run['bytes'] / 1e6:.2f} | {run['gather_seconds']:.1f} "
        f"| {spread(run['write_seconds'])} | {spread(run['drawn_seconds'])} |"
        for kind, run in runs.items()
    ]
    return "\n".join([*lines, "", described(where)])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    where = environment(1)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        where["chromium"] = browser.version
        runs = {kind: measure(kind, browser, rounds) for kind in KINDS}
        browser.close()
    write(
        "report-whole", {"environment": where, "rounds": rounds, "runs": runs}, page_of(runs, rounds, where)
    )


if __name__ == "__main__":
    main()
