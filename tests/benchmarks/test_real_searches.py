"""Tests what the pages about real searches make of their records."""

from __future__ import annotations

from typing import Any

import pytest

from real_searches_page import epochs_to, halfway, page


def record(seed: int, best: float = 0.9, arm: str = "document, auto") -> dict[str, Any]:
    """Return a search of 100 epochs, better after 10, 40 and 80 of them."""
    scores = {"halfway": 0.82, "best": best - 0.02, "documented": 0.7}
    fresh = {
        which: {"test": [each - 0.01, each, each + 0.01], "validation": [each + 0.01] * 3}
        for which, each in scores.items()
    }
    return {
        **{"data": "nuclei", "arm": arm, "seed": seed, "epochs": 100, "best": best, "trial": 30},
        **{"course": [(10, 0.8, 3), (40, 0.85, 8), (80, best, 30)], "fresh": fresh, "ends": {"finished": 9}},
        **{"command": "tunebook search", "environment": {"processor": "P", "gpu": None}},
    }


def test_what_was_best_when_half_of_the_epochs_were_spent() -> None:
    assert halfway(record(0)) == (0.85, 8)
    assert halfway({"epochs": 100, "course": [(60, 0.8, 3)]}) is None


def test_epochs_to_a_score_are_read_from_records_with_and_without_trials() -> None:
    assert epochs_to(record(0), 0.84) == 40
    assert epochs_to({"course": [[10, 0.8], [40, 0.85]]}, 0.84) == 40
    assert epochs_to(record(0), 0.95) is None


def test_the_page_has_what_the_later_half_gained_by_own_and_by_fresh_figures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("real_searches_page.described", lambda _: "")
    runs = [record(0), record(1, 0.92), record(0, 0.8, "wide, auto"), record(1, 0.8, "wide, auto")]
    text = page(runs)
    [later] = [line for line in text.split("later half gained")[1].splitlines() if "document, auto" in line]
    cells = [each.strip() for each in later.strip("|").split("|")]
    assert cells[2] == "2"
    assert cells[3].startswith("+6.00 (")  # .90 and .92 less .85
    assert cells[5].startswith("+7.00 (")  # .88 and .90 less .82
    assert cells[6:8] == ["1.00", "0.7000"]
    assert cells[8].startswith("+19.00 (")
    [against] = [line for line in text.splitlines() if "document, auto | wide, auto" in line]
    assert "| 0.10, 0.10 |" in against
