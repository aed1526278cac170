"""Tests that the garbage collector leaves alone what a trial's process imports."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.trainable.small_runs import ONE_THREAD, data_set
from tests.trainable.tune.in_process import InProcess
from trainable.collector import paused
from trainable.tune.worker import Worker
from trainable.tune.worker_setup import WorkerSetup


@pytest.fixture(autouse=True)
def enabled_afterwards() -> Iterator[None]:
    yield
    gc.enable()


def test_the_collector_pauses_for_a_block_and_goes_on_also_after_an_error() -> None:
    with paused():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ImportError), paused():
        raise ImportError
    assert gc.isenabled()


def test_a_collector_that_a_person_has_switched_off_stays_off() -> None:
    gc.disable()
    with paused():
        pass
    assert not gc.isenabled()


def test_a_worker_s_collector_looks_at_nothing_that_was_there_before() -> None:
    gc.unfreeze()
    before = ["something"]
    assert any(each is before for each in gc.get_objects())
    Worker(WorkerSetup(InProcess(data_set()), ONE_THREAD, step_seconds=60.0))
    assert not any(each is before for each in gc.get_objects())


@pytest.mark.integration
@pytest.mark.parametrize("module", ["trial", "team"])
def test_to_import_what_ray_begins_with_never_looks_through_all_objects(module: str) -> None:
    """Without a pause that happens seven times."""
    code = f"import gc, trainable.tune.{module}; print(gc.get_stats()[2]['collections'])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).split() == ["0"]
