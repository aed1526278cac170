"""Tests the page of the benchmark of pruning, against figures reckoned by hand."""

from __future__ import annotations

from typing import Any

import pytest

import shrinking
import shrinking_networks
from shrinking import OTHERS, SETS, SHARES, page, settings
from trainable.shrinking.fine_tuning import LR_FACTOR
from trainable.shrinking.prune import RANKING
from trainable.shrinking.shrink import PRUNED, SCRATCH, TUNED, UNPRUNED

WHERE: dict[str, Any] = {
    "processor": "a processor",
    "cores": 2,
    "threads": 1,
    "python": "3.11",
    "versions": {"torch": "2.15"},
    "bytecode_compiled": True,
    "commit": "abc",
    "load_before": 0.5,
    "command": "python benchmarks/shrinking.py",
}


def run(setting: dict[str, Any], tuned: float) -> dict[str, Any]:
    """Return a run whose unpruned network is right about nine images of ten."""
    latency = {"1": {"median_ms": 2.0}, "32": {"median_ms": 30.0}}
    halves = {"1": {"median_ms": 1.5}, "32": {"median_ms": 15.0}}
    return {
        "setting": setting,
        "left": 0.49,
        "accuracies": {UNPRUNED: 0.9, PRUNED: 0.4, TUNED: tuned, SCRATCH: 0.9},
        "parameters": {UNPRUNED: 100, PRUNED: 47},
        "latencies": {UNPRUNED: latency, PRUNED: halves},
    }


def test_settings_are_those_of_the_command_and_the_other_ways_below_the_mildest_share() -> None:
    found = list(settings())
    assert len({tuple(each.items()) for each in found}) == len(found)
    own = [each for each in found if (each["ranking"], each["lr_factor"]) == (RANKING, LR_FACTOR)]
    assert len(own) == len(SETS) * 3 * len(SHARES)
    assert len(found) - len(own) == len(SETS) * 3 * (len(SHARES) - 1) * len(OTHERS)


def test_rows_hold_means_intervals_and_ratios() -> None:
    own = [
        each
        for each in settings()
        if (each["data"], each["share"], each["ranking"], each["lr_factor"])
        == ("digits", 0.5, RANKING, LR_FACTOR)
    ]
    runs = [run(each, tuned) for each, tuned in zip(own, (0.88, 0.89, 0.90), strict=True)]
    shown = page(runs, WHERE)
    half = shrinking.STUDENT[3] / 3**0.5
    assert (
        f"| digits | 0.5 | 0.490 | 3 | 90.0 % | -50.0 (-50.0 to -50.0) | -1.0 ({-1 - half:+.1f} to "
        f"{-1 + half:+.1f}) | +0.0 (+0.0 to +0.0) | 0.47 | 0.75 | 0.50 |"
    ) in shown
    other = {"left": 0.49, "accuracies": {TUNED: 0.7}}
    others = [{**other, "setting": {**each, "lr_factor": 0.1}} for each in own]
    assert "| digits | 0.5 | uniform | 0.1 | 3 | -20.0 (-20.0 to -20.0) |" in page([*runs, *others], WHERE)
    assert page([], WHERE).endswith("    python benchmarks/shrinking.py\n")


def test_networks_and_steps_have_tables() -> None:
    one, other, timed, *_ = (
        *list(shrinking_networks.settings())[:2],
        next(each for each in shrinking_networks.settings() if "time" in each),
    )
    times = {"1": {"1": 3.0, "32": 30.0}, "8": {"1": 2.0, "32": 20.0}, "whole": {"1": 4.0, "32": 40.0}}
    found: list[dict[str, Any]] = [
        {"setting": one, "left": 0.4987},
        {"setting": other, "refused": "its name: cannot be pruned: why"},
        {"setting": timed, "ms": times},
    ]
    shown = page(found, WHERE)
    assert f"| torchvision's {one['network']} | 0.499 |" in shown
    assert f"| torchvision's {other['network']} | refused: cannot be pruned: why |" in shown
    assert "| torchvision's resnet18 | 8 | 1 | 0.50 (0.50 to 0.50) | 0.50 (0.50 to 0.50) |" in shown


@pytest.mark.parametrize("count", shrinking.STUDENT)
def test_the_quantiles_are_students(count: int) -> None:
    from search.record.finals import student

    assert shrinking.STUDENT[count] == pytest.approx(student(count - 1), abs=5e-4)
