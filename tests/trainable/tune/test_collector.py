"""Tests that the garbage collector leaves alone what a trial's process imports."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from tests.trainable.small_runs import data_set
from tests.trainable.tune.in_process import InProcess
from trainable.tune import collector
from trainable.tune.seat import Seat
from trainable.tune.worker import Worker


@pytest.fixture(autouse=True)
def enabled_afterwards() -> Iterator[None]:
    yield
    gc.enable()


def test_the_collector_pauses_for_a_block_and_goes_on_also_after_an_error() -> None:
    with collector.paused():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ImportError), collector.paused():
        raise ImportError
    assert gc.isenabled()


def test_a_collector_that_a_person_has_switched_off_stays_off() -> None:
    gc.disable()
    with collector.paused():
        pass
    assert not gc.isenabled()


def test_a_worker_s_collector_looks_at_nothing_that_was_there_before() -> None:
    before = ["something"]
    assert any(each is before for each in gc.get_objects())
    Worker(Seat(InProcess(data_set()), "cpu", threads=1, step_seconds=60.0))
    assert not any(each is before for each in gc.get_objects())
