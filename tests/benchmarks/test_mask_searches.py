"""Tests the page that compares the documents' recipe for masks with the best of a search."""

from __future__ import annotations

from typing import Any

import pytest

import mask_searches

OURS, BEST = [0.70, 0.72, 0.71], [0.80, 0.84, 0.82]


def run(**changed: Any) -> dict[str, Any]:
    scores = {"documents": {"test": OURS, "validation": OURS}, "best": {"test": BEST, "validation": BEST}}
    found = {"set": "shapes", "epochs": 40, "ends": {"finished": 2, "stopped": 1}, "fresh": scores}
    written = {
        "values": {"optimizer.lr": 0.1},
        "command": "tunebook search",
        "environment": {"commit": "a1b2c3"},
    }
    return {**found, **written, **changed}


def test_a_row_has_both_means_and_the_interval_of_the_gain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Welch by hand: a difference of 11 points, errors of 1 and 2 points over 3 seeds each, 2.94 degrees."""
    monkeypatch.setattr(mask_searches, "described", lambda _: "")
    page = mask_searches.page([run()])
    assert "| shapes | 2, 1, 0 | 40 | 71.0 ± 1.0 | 82.0 ± 2.0 | 71.0 ± 1.0 | 82.0 ± 2.0 | +11.0 (" in page
    assert "Commits of the runs: shapes a1b2c3." in page
    low, high = (float(each) for each in page.split("+11.0 (")[1].split(")")[0].split(" to "))
    assert (low, high) == pytest.approx((11 - 3.22 * 1.291, 11 + 3.22 * 1.291), abs=0.1)


def test_equal_recipes_gain_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mask_searches, "described", lambda _: "")
    same = {"test": OURS, "validation": OURS}
    assert "+0.0 (" in mask_searches.page([run(fresh={"documents": same, "best": same})])
