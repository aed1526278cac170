"""Tests checkpoints in a folder with a store: what a lost machine had uploaded goes on elsewhere."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from tests.trainable.checkpoints.test_checkpoint import history
from trainable.checkpoints import checkpoint
from trainable.checkpoints.checkpoint_store import CheckpointStore
from trainable.files.store import Store, StoreError


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store((tmp_path / "store").as_uri())


def state(epoch: int) -> dict[str, object]:
    return {"epoch": epoch, "weights": torch.full((3,), float(epoch))}


def saved(checkpoints: CheckpointStore, epochs: int) -> CheckpointStore:
    for epoch in range(1, epochs + 1):
        checkpoints.save(state(epoch), history(epoch))
    return checkpoints


def test_without_a_store_all_is_in_the_folder(tmp_path: Path) -> None:
    checkpoints = saved(CheckpointStore(tmp_path / "trial"), 3)
    found = checkpoints.newest_state()
    assert found is not None
    assert found["epoch"] == 3
    assert checkpoints.history() == history(3)
    checkpoints.remove()
    assert (checkpoints.newest_state(), checkpoints.history()) == (None, ())


def test_another_machine_goes_on_from_what_the_store_holds(tmp_path: Path, store: Store) -> None:
    first = saved(CheckpointStore(tmp_path / "first", store), 4)
    assert store.names() == ["epoch-0003", "epoch-0004"], "as many as in the folder"
    shutil.rmtree(first.folder)
    other = CheckpointStore(tmp_path / "other", store)
    assert other.history() == history(4)
    found = other.newest_state()
    assert found is not None
    torch.testing.assert_close(found["weights"], torch.full((3,), 4.0))
    other.save(state(5), history(5))
    assert store.names() == ["epoch-0004", "epoch-0005"]


def test_what_is_newer_here_is_not_replaced_by_the_store(tmp_path: Path, store: Store) -> None:
    checkpoints = saved(CheckpointStore(tmp_path / "trial", store), 2)
    checkpoint.save(checkpoints.folder, state(3), history(3))
    found = checkpoints.newest_state()
    assert found is not None
    assert (found["epoch"], len(checkpoints.history())) == (3, 3)


def test_half_of_a_checkpoint_in_the_store_is_none(tmp_path: Path, store: Store) -> None:
    saved(CheckpointStore(tmp_path / "trial", store), 2)
    store.remove(f"epoch-0002/{checkpoint.HISTORY}")
    assert len(CheckpointStore(tmp_path / "other", store).history()) == 1


def test_of_a_store_the_newest_that_can_be_read_counts(tmp_path: Path, store: Store) -> None:
    saved(CheckpointStore(tmp_path / "trial", store), 4)
    store.write(f"epoch-0004/{checkpoint.STATE}", b"not a checkpoint")
    other = saved(CheckpointStore(tmp_path / "other"), 1)
    with pytest.warns(UserWarning, match="epoch-0004: left out, since it cannot be read"):
        found = CheckpointStore(other.folder, store).newest_state()
    assert found is not None
    assert found["epoch"] == 3


def test_where_the_newest_here_cannot_be_read_an_older_one_in_the_store_is(
    tmp_path: Path, store: Store
) -> None:
    saved(CheckpointStore(tmp_path / "trial", store), 3)
    here = saved(CheckpointStore(tmp_path / "other"), 4)
    for epoch in (3, 4):
        (here.folder / f"epoch-000{epoch}" / checkpoint.STATE).write_bytes(b"not a checkpoint")
    with pytest.warns(UserWarning, match="left out, since it cannot be read"):
        found = CheckpointStore(here.folder, store).newest_state()
    assert found is not None
    assert found["epoch"] == 3


def test_a_store_that_is_away_for_a_while_is_waited_for(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainable.checkpoints.checkpoint_store.PAUSE_SECONDS", 0.05)
    checkpoints, away, files = saved(CheckpointStore(tmp_path / "trial", store), 2), [True] * 3, Store.files

    def at_first_not(self: Store) -> Mapping[str, tuple[int, float]]:
        if away and away.pop():
            raise StoreError("connection refused")
        return files(self)

    monkeypatch.setattr(Store, "files", at_first_not)
    found = checkpoints.newest_state()
    assert found is not None
    assert (found["epoch"], away) == (2, [])
    monkeypatch.setattr("trainable.checkpoints.checkpoint_store.PATIENCE_SECONDS", 0.0)
    away.append(True)
    with pytest.raises(StoreError):
        checkpoints.newest_state()


def test_one_that_is_behind_removes_nothing_of_one_that_is_further(tmp_path: Path, store: Store) -> None:
    saved(CheckpointStore(tmp_path / "further", store), 6)
    saved(CheckpointStore(tmp_path / "behind", store), 2)
    assert store.names() == [f"epoch-000{epoch}" for epoch in (1, 2, 5, 6)]


def test_a_uri_has_a_folder_in_the_cache_of_each_machine(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = set()
    for machine in ("one", "two"):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / machine))
        folders |= {CheckpointStore.at(store.uri).folder, CheckpointStore.at(store.at("other").uri).folder}
    assert len(folders) == 4
    assert (
        CheckpointStore.at(store.uri, "one recipe").folder != CheckpointStore.at(store.uri, "another").folder
    )
    assert CheckpointStore.at(str(tmp_path)) == CheckpointStore(tmp_path)


def test_what_is_in_the_store_does_not_stay_on_the_machine(tmp_path: Path, store: Store) -> None:
    checkpoints, alone = (
        saved(CheckpointStore(tmp_path / "trial", store), 2),
        saved(CheckpointStore(tmp_path / "alone"), 2),
    )
    assert (checkpoint.finished(checkpoints.folder), len(checkpoints.history())) == ([], 2)
    assert checkpoints.newest_state() is not None
    assert checkpoint.finished(checkpoints.folder) == [], "nor what was read from there"
    assert len(alone.history()) == 2, "a folder is all there is without a store"


def test_removed_is_removed_on_both_sides(tmp_path: Path, store: Store) -> None:
    checkpoints = saved(CheckpointStore(tmp_path / "trial", store), 2)
    checkpoints.remove()
    assert (checkpoint.finished(checkpoints.folder), store.names()) == ([], [])


def test_a_store_that_is_down_costs_a_warning_and_gets_the_next_one(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file where a folder should be")
    checkpoints = CheckpointStore(tmp_path / "trial", Store((tmp_path / "store" / "deep").as_uri()))
    with pytest.warns(UserWarning, match="the checkpoint is on this machine alone"):
        checkpoints.save(state(1), history(1))
    assert len(checkpoint.finished(checkpoints.folder)) == 1
    (tmp_path / "store").unlink()
    checkpoints.save(state(2), history(2))
    assert checkpoints.store is not None
    assert checkpoints.store.names() == ["epoch-0002"]


@pytest.mark.filterwarnings("ignore:.*left out, since it cannot be read")
@pytest.mark.parametrize("damage", ["empty", "cut in half", "its end is zeros", "text"])
def test_the_epochs_are_those_of_the_checkpoint_that_training_goes_on_from(
    tmp_path: Path, damage: str
) -> None:
    checkpoints = saved(CheckpointStore(tmp_path / "trial"), 3)
    assert checkpoints.epochs() == 3
    file = checkpoints.folder / "epoch-0003" / checkpoint.STATE
    whole = file.read_bytes()
    half = len(whole) // 2
    damaged = {"empty": b"", "cut in half": whole[:half], "its end is zeros": whole[:half] + bytes(half)}
    file.write_bytes(damaged.get(damage, b"not a checkpoint"))

    found = checkpoints.newest_state()

    assert found is not None
    assert checkpoints.epochs() == found["epoch"] == 2
