"""Tests what the page about compiled steps says of processes that were not done in time."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import pytest
import torch

import first_steps
from gpu import compiled

DONE = {"first_seconds": 9.0, "second_seconds": 1.0, "images_per_second": 100.0}
OPTIONS = argparse.Namespace(side=8, batch=4, device="cpu", rounds=2, networks=["a"], images=None)


@pytest.mark.parametrize(
    ("cold", "warm", "cells"),
    [
        (DONE, DONE, "9.0 | 9.0 (9.0 to 9.0) | 100 (100 to 100) | 1.00"),
        (None, DONE, "over the limit | 9.0 (9.0 to 9.0) | 100 (100 to 100) | 1.00"),
        (DONE, None, "9.0 | over the limit | over the limit | over the limit"),
        (None, None, "over the limit | over the limit | over the limit | over the limit"),
    ],
)
def test_a_process_over_the_limit_is_named_so_and_is_not_taken_for_another(
    cold: first_steps.Found | None,
    warm: first_steps.Found | None,
    cells: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ones: Iterator[first_steps.Found | None] = iter([DONE, DONE, *[cold, warm, warm] * 2])
    monkeypatch.setattr(first_steps, "in_process", lambda *_: next(ones))
    record, page = compiled(OPTIONS, torch.device("cpu"))
    case = "channels_last, compiled"
    assert f"| a | {case} | {cells} |" in page
    assert f"| a | {case} by blocks | {cells} |" in page
    assert [len(record["a"][f"{case}, {each}"]) for each in ("cold", "warm")] == [
        1 if cold else 0,
        2 if warm else 0,
    ]
