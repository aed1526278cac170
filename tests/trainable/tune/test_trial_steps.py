"""Tests what a trial's actor does between Ray's calls: it begins late, frees early, one process a folder."""

from __future__ import annotations

import faulthandler
import subprocess
import sys
import time
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainable.small_runs import data_set, numbers, small_recipe
from tests.trainable.tune.in_process import InProcess
from trainable.bench import Bench
from trainable.checkpoints import checkpoint
from trainable.checkpoints.checkpoint_store import CheckpointStore
from trainable.errors import DataError, RecipeError, RunError
from trainable.files.locks import FolderInUse, FolderLock
from trainable.files.store import Store, StoreError
from trainable.probes import network_cost
from trainable.run import make_run
from trainable.training import trainer
from trainable.training.metrics import EpochResult
from trainable.tune import watchdog, worker
from trainable.tune.trial import MemoryLeak, TrialTrainable
from trainable.tune.watchdog import NOTE, TRACE, pop_reason
from trainable.tune.worker import TrialAssignment
from trainable.tune.worker_setup import WorkerSetup

LOCK_FOLDER = "import sys, pathlib, trainable.files.locks as c; c.FolderLock(pathlib.Path(sys.argv[1]), 0.0)"


def config(folder: Path, **values: Any) -> dict[str, str]:
    return TrialAssignment(
        small_recipe({name.replace("__", "."): value for name, value in values.items()}), folder
    ).config()


def trial(assigned: dict[str, str], device: str = "cpu") -> TrialTrainable:
    """Set a trial up as Ray does, but without Ray's own attributes, which need its folders."""
    made = TrialTrainable.__new__(TrialTrainable)
    bench = Bench(device_name=device, threads=1)
    made.setup(assigned, WorkerSetup(InProcess(data_set()), bench, step_seconds=60.0))
    return made


def epochs(result: dict[str, Any]) -> list[int]:
    return [tree["epoch"] for tree in result["epochs"]]


def is_locked(folder: Path) -> bool:
    done = subprocess.run([sys.executable, "-c", LOCK_FOLDER, str(folder)], check=False, capture_output=True)
    assert done.returncode == 0 or b"FolderInUse" in done.stderr
    return done.returncode != 0


def test_each_batch_is_a_sign_for_the_watchdog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An epoch of three batches, and one of validation, may take longer than `step_seconds`."""
    clocks: list[float] = []
    monkeypatch.setattr(watchdog, "BEATS_APART", 0.0)
    monkeypatch.setattr(faulthandler, "dump_traceback_later", lambda seconds, **_: clocks.append(seconds))
    begun = trial(config(tmp_path, evaluation__norm_batches=0))
    begun.step()
    clocks.clear()
    begun.step()
    assert clocks == [60.0] * (1 + 3 + 1)  # the first begins the epoch


@pytest.mark.parametrize("done", [0, 1])
def test_a_long_epoch_leaves_checkpoints_and_goes_on_from_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, done: int
) -> None:
    monkeypatch.setattr(trainer, "SEGMENT_STEPS", 1)
    monkeypatch.setattr(worker, "SAVE_SECONDS", 0.0)
    monkeypatch.setattr(worker, "SAVE_SHARE", 1e9)
    whole = trial(config(tmp_path / "whole"))
    expected = [numbers(results_of(whole.step())) for _ in range(3)]
    crashed = trial(config(tmp_path / "crashed"))
    for _ in range(done):
        crashed.step()
    crash_after(monkeypatch, f"epoch-{done:04d}-step-000002")
    with pytest.raises(RunError, match="the machine has no power"):
        crashed.step()
    crashed.cleanup()
    monkeypatch.undo()
    newest = checkpoint.latest(tmp_path / "crashed")
    assert newest is not None
    assert (newest.epoch, newest.step) == (done, 2)
    monkeypatch.setattr(trainer, "SEGMENT_STEPS", 1)
    again = trial(config(tmp_path / "crashed"))
    results = [numbers(results_of(again.step())) for _ in range(3)]
    assert results == expected
    assert checkpoint.finished(tmp_path / "crashed")[0].epoch == 3


def crash_after(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    save = CheckpointStore.save

    def failing(self: CheckpointStore, *arguments: Any) -> None:
        save(self, *arguments)
        if (self.folder / name).exists():
            raise RuntimeError("the machine has no power")

    monkeypatch.setattr(CheckpointStore, "save", failing)


def results_of(reported: dict[str, Any]) -> tuple[EpochResult, ...]:
    return tuple(EpochResult.from_tree(tree) for tree in reported["epochs"])


def test_a_trial_reports_an_epoch_a_step_and_leaves_checkpoints(tmp_path: Path) -> None:
    actor = trial(config(tmp_path))
    assert [epochs(actor.step()) for _ in range(3)] == [[1], [2], [3]]
    actor.cleanup()
    assert [each.epoch for each in checkpoint.finished(tmp_path)] == [3, 2]


def test_results_say_what_starting_and_checkpoints_took_and_add_up(tmp_path: Path) -> None:
    began = time.monotonic()
    actor = trial(config(tmp_path / "one"))
    results = [*results_of(actor.step()), *results_of(actor.step())]
    actor.reset_config(config(tmp_path / "two"))
    results += results_of(actor.step())
    wall = time.monotonic() - began
    actor.cleanup()
    assert [each.starting_seconds is not None for each in results] == [True, False, True]
    taken = [
        (each.starting_seconds or 0.0) + each.epoch_seconds + (each.checkpoint_seconds or 0.0)
        for each in results
    ]
    assert 0.0 < sum(taken) <= wall
    assert all(each.checkpoint_seconds for each in results)


def test_what_starting_again_took_is_said_with_the_first_epoch_that_is_trained_then(tmp_path: Path) -> None:
    before = trial(config(tmp_path))
    before.step()
    before.cleanup()
    again = trial(config(tmp_path))
    (kept,), (trained,) = results_of(again.step()), results_of(again.step())
    again.cleanup()
    assert (kept.starting_seconds, kept.checkpoint_seconds) == (None, None)
    assert trained.starting_seconds
    assert trained.checkpoint_seconds


@pytest.mark.slow("starts processes")
def test_a_network_is_measured_before_its_first_epoch_and_equal_ones_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network_cost, "SECONDS", 0.0)

    def measuring(folder: str, **values: Any) -> dict[str, str]:
        return {**config(tmp_path / folder, **values), "measures": "yes"}

    actor = trial(measuring("first"))
    first, then = actor.step(), actor.step()
    assert (epochs(first), epochs(then), "costs" in then) == ([], [1], False)
    again = []
    for assigned in (measuring("equal", optimizer__lr=0.01), measuring("wider", model__width=16)):
        actor.reset_config(assigned)
        again.append(actor.step()["costs"])
    assert again[0] == first["costs"]  # to the last digit: it was not measured again
    assert again[1][0]["parameters"] > first["costs"][0]["parameters"]
    actor.cleanup()


@pytest.mark.parametrize(
    ("values", "kind"), [({"loop__batch_size": 49}, DataError), ({"precision__kind": "tf32"}, RecipeError)]
)
def test_what_fails_in_making_a_run_fails_in_a_step(
    tmp_path: Path, values: dict[str, Any], kind: type[Exception]
) -> None:
    bad = config(tmp_path / "bad", **values)
    actor = trial(bad)
    with pytest.raises(kind):
        actor.step()
    actor = trial(config(tmp_path / "good"))
    actor.step()
    assert actor.reset_config(bad) is True
    with pytest.raises(kind):
        actor.step()
    actor.cleanup()


def test_even_an_assignment_that_is_none_fails_only_in_a_step(tmp_path: Path) -> None:
    actor = trial({"recipe": '{"loop": {"epochs": 0}}', "checkpoints": str(tmp_path), "search": ""})
    with pytest.raises(RecipeError, match=r"loop\.epochs"):
        actor.step()


def test_a_trial_without_a_run_is_cleaned_up_and_reset(tmp_path: Path) -> None:
    actor = trial(config(tmp_path))
    assert actor.reset_config(config(tmp_path)) is True
    actor.cleanup()
    assert list(tmp_path.iterdir()) == []


def test_a_device_that_is_named_is_used_whatever_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    actor = trial(config(tmp_path), device="cpu")
    actor.step()
    assert actor._crew._run.device == torch.device("cpu")
    actor.cleanup()


def test_a_reset_frees_the_run_and_begins_the_next_trial_from_nothing(tmp_path: Path) -> None:
    actor = trial(config(tmp_path / "one"))
    first = actor.step()
    model = weakref.ref(actor._crew._run.model)
    actor.reset_config(config(tmp_path / "two"))
    assert model() is None
    second = actor.step()
    results = [tuple(EpochResult.from_tree(tree) for tree in each["epochs"]) for each in (first, second)]
    assert numbers(results[0]) == numbers(results[1])
    actor.cleanup()


def test_a_trial_with_a_checkpoint_reports_it_first_also_in_a_process_that_served_another(
    tmp_path: Path,
) -> None:
    before = trial(config(tmp_path / "one"))
    before.step()
    before.step()
    before.cleanup()
    actor = trial(config(tmp_path / "two"))
    actor.step()
    actor.reset_config(config(tmp_path / "one"))
    actor._restored = False  # as Ray's own Trainable.reset does after reset_config
    assert [epochs(actor.step()) for _ in range(2)] == [[1, 2], [3]]
    actor.cleanup()


def test_a_torn_newest_checkpoint_falls_back_to_the_one_before(tmp_path: Path) -> None:
    whole = make_run(small_recipe(), data=data_set())
    actor = trial(config(tmp_path))
    for _ in range(2):
        whole.step()
        actor.step()
    actor.cleanup()
    state = tmp_path / "epoch-0002" / checkpoint.STATE
    state.write_bytes(state.read_bytes()[:1000])
    actor = trial(config(tmp_path))
    with pytest.warns(UserWarning, match=r"epoch-0002: left out, since it cannot be read"):
        assert epochs(actor.step()) == [1]
    again = EpochResult.from_tree(actor.step()["epochs"][0])
    assert numbers((again,)) == numbers(whole.history[1:])
    actor.cleanup()


def test_a_model_that_something_still_holds_is_reported_by_the_next_trial_s_first_step(
    tmp_path: Path,
) -> None:
    actor = trial(config(tmp_path / "one"))
    actor.step()
    held = actor._crew._run.model
    assert actor.reset_config(config(tmp_path / "two")) is True
    with pytest.raises(MemoryLeak, match="the last trial's model was not freed"):
        actor.step()
    assert held is not None
    actor.cleanup()


def test_a_run_that_cannot_be_freed_is_reported_by_a_step_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise RuntimeError("CUDA error: device-side assert triggered")

    actor = trial(config(tmp_path / "one"))
    actor.step()
    monkeypatch.setattr(actor._crew._run.images.loader, "close", broken)
    assert actor.reset_config(config(tmp_path / "two")) is True
    with pytest.raises(MemoryLeak, match="could not be freed: RuntimeError: CUDA error"):
        actor.step()


HANG_IN_FREEING = """
import sys, time
from dataclasses import replace
from pathlib import Path
from tests.trainable.tune.test_trial_steps import config, trial

one, two = (Path(sys.argv[1], name) for name in ("one", "two"))
actor = trial(config(one))
actor.step()
actor._crew._run.images.loader.close = lambda: time.sleep(600)
actor._worker_setup = replace(actor._worker_setup, step_seconds=0.2)
actor.reset_config(config(two))
"""


@pytest.mark.integration
def test_a_run_that_hangs_as_it_is_freed_ends_the_process_and_the_next_trial_has_the_reason(
    tmp_path: Path,
) -> None:
    """Ray waits for a process without a limit."""
    code = [sys.executable, "-c", HANG_IN_FREEING, str(tmp_path)]
    assert subprocess.run(code, check=False, timeout=60).returncode == 1
    assert pop_reason(tmp_path / "two") is not None


@pytest.mark.integration
def test_the_folder_is_locked_from_the_first_step_to_the_reset(tmp_path: Path) -> None:
    actor = trial(config(tmp_path))
    assert not is_locked(tmp_path)
    actor.step()
    assert is_locked(tmp_path)
    actor.reset_config(config(tmp_path / "two"))
    assert not is_locked(tmp_path)
    actor.step()
    assert is_locked(tmp_path / "two")
    actor.cleanup()
    assert not is_locked(tmp_path / "two")


def test_a_trial_that_pauses_goes_on_in_another_process_before_this_one_trains_another(
    tmp_path: Path,
) -> None:
    first, second = trial(config(tmp_path)), trial(config(tmp_path))
    assert epochs(first.step()) == [1]
    assert is_locked(tmp_path)
    first.let_go()
    assert not is_locked(tmp_path)
    assert [epochs(second.step()) for _ in range(2)] == [[1], [2]]
    first.reset_config(config(tmp_path / "two"))
    assert epochs(first.step()) == [1]
    for actor in (first, second):
        actor.cleanup()


def test_notes_of_an_earlier_attempt_are_gone_when_a_trial_begins(tmp_path: Path) -> None:
    (tmp_path / NOTE).write_text('{"reason": "an earlier one"}')
    (tmp_path / TRACE).write_text("stacks")
    actor = trial(config(tmp_path, loop__batch_size=49))
    with pytest.raises(DataError):
        actor.step()
    assert not (tmp_path / NOTE).exists()
    assert not (tmp_path / TRACE).exists()
    actor.cleanup()
    FolderLock(tmp_path, 0.0).release()


def test_with_a_store_nothing_stays_on_the_machine_and_another_one_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "one"))
    assigned = TrialAssignment(small_recipe(), (tmp_path / "store").as_uri()).config()
    actor = trial(assigned)
    assert [epochs(actor.step()) for _ in range(2)] == [[1], [2]]
    folder = TrialAssignment.from_config(assigned).checkpoint_store.folder
    assert checkpoint.finished(folder) == []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "two"))
    another = trial(assigned)
    assert [epochs(another.step()) for _ in range(2)] == [[1, 2], [3]]
    another.cleanup()
    assert sorted(each.name for each in (tmp_path / "store").iterdir()) == ["epoch-0002", "epoch-0003"]


def test_what_a_store_did_not_take_stays_on_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stays through an attempt that cannot ask the store, and one that finds the folder locked."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assigned = TrialAssignment(small_recipe(), (tmp_path / "store").as_uri()).config()
    actor = trial(assigned)
    actor.step()
    with monkeypatch.context() as down:
        down.setattr(Store, "put", raises)
        with pytest.warns(UserWarning, match="the checkpoint is on this machine alone"):
            actor.step()
        actor.cleanup()
        down.setattr(Store, "files", raises)
        down.setattr("trainable.checkpoints.checkpoint_store.PATIENCE_SECONDS", 0.0)
        broken = trial(assigned)
        with pytest.raises(StoreError):
            broken.step()
        broken.cleanup()
    with monkeypatch.context() as patched:
        patched.setattr("trainable.tune.worker.FolderLock", is_in_use)
        late = trial(assigned)
        with pytest.raises(FolderInUse):
            late.step()
        late.cleanup()
    again = trial(assigned)
    assert [epochs(again.step()) for _ in range(2)] == [[1, 2], [3]]
    again.cleanup()


def raises(*arguments: Any) -> Any:
    raise StoreError("down")


def is_in_use(folder: Path) -> FolderLock:
    raise FolderInUse(str(folder))
