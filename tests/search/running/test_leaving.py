"""Tests that Ray is left in a moment in which nothing of it is collected as garbage."""

from __future__ import annotations

import gc
import weakref

import pytest
import ray

from search.running.leaving import leave_ray


class Reference:
    """In a cycle, as references in frames of errors are: only a collection finds it."""

    def __init__(self) -> None:
        self.itself = self


def test_no_reference_is_collected_while_ray_shuts_down(monkeypatch: pytest.MonkeyPatch) -> None:
    collected: list[str] = []
    seen_in_shutdown: list[list[str]] = []

    def drop(name: str) -> None:
        weakref.finalize(Reference(), collected.append, name)

    def shutdown() -> None:
        drop("late")
        _ = [[each] for each in range(10 * gc.get_threshold()[0])]  # another thread's work
        seen_in_shutdown.append([*collected])

    monkeypatch.setattr(ray, "shutdown", shutdown)
    drop("early")
    leave_ray()
    assert seen_in_shutdown == [["early"]]
    assert gc.isenabled()
    gc.collect()
    assert collected == ["early", "late"]


def test_who_has_disabled_the_collector_finds_it_disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    gc.disable()
    try:
        leave_ray()
        assert not gc.isenabled()
    finally:
        gc.enable()
