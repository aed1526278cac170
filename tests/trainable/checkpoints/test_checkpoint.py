"""Tests that checkpoints are whole or absent, that the newest two stay, and that histories need no torch."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.epoch_results import epoch_result
from trainable.checkpoints import checkpoint
from trainable.errors import StateError
from trainable.training.metrics import EpochResult


def history(epochs: int) -> tuple[EpochResult, ...]:
    return tuple(epoch_result(epoch, accuracy=epoch / 10) for epoch in range(1, epochs + 1))


def save(folder: Path, epochs: int) -> checkpoint.Checkpoint:
    return checkpoint.save(folder, {"weights": torch.full((3,), float(epochs))}, history(epochs))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    save(tmp_path, 3)
    latest = checkpoint.latest(tmp_path)
    assert latest is not None
    assert latest.epoch == 3
    assert torch.equal(latest.load()["weights"], torch.full((3,), 3.0))
    assert latest.history() == history(3)


def test_a_checkpoint_in_the_midst_of_an_epoch_is_newer_than_the_epoch_before(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, {"at": 500}, (), step=500)
    assert names(tmp_path) == ["epoch-0000-step-000500"]
    save(tmp_path, 1)
    checkpoint.save(tmp_path, {"at": 250}, history(1), step=250)
    checkpoint.save(tmp_path, {"at": 1250}, history(1), step=1250)
    assert names(tmp_path) == ["epoch-0001-step-000250", "epoch-0001-step-001250"]
    latest = checkpoint.latest(tmp_path)
    assert latest is not None
    assert (latest.epoch, latest.step, latest.load()) == (1, 1250, {"at": 1250})
    assert latest.history() == history(1)
    save(tmp_path, 2)
    assert names(tmp_path) == ["epoch-0001-step-001250", "epoch-0002"]
    with pytest.raises(ValueError, match="at least one epoch or step"):
        checkpoint.save(tmp_path, {}, ())


@pytest.mark.parametrize(
    "content",
    [b"", b"7", b"{}", b"[7]", b"[[]]", b'["x"]', b"\xff", b"[" * 9000, b'[{"epoch": "x"}]', b"[null]"],
)
def test_a_damaged_history_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    saved = save(tmp_path, 2)
    (saved.folder / "history.json").write_bytes(content)
    with pytest.raises(StateError, match=r"history\.json .*is damaged"):
        saved.history()


def test_a_folder_in_a_historys_place_is_refused_by_name(tmp_path: Path) -> None:
    saved = save(tmp_path, 2)
    (saved.folder / "history.json").unlink()
    (saved.folder / "history.json").mkdir()
    with pytest.raises(StateError, match=r"history\.json: cannot be read: Is a directory"):
        saved.history()


def test_a_history_of_another_version_is_refused_as_such(tmp_path: Path) -> None:
    saved = save(tmp_path, 1)
    file = saved.folder / "history.json"
    file.write_text(file.read_text().replace("micro_batch", "a_field_of_old"))
    with pytest.raises(StateError, match=r"history\.json was written by another version"):
        saved.history()


def test_the_newest_two_are_kept(tmp_path: Path) -> None:
    for epochs in (1, 2, 3, 4):
        save(tmp_path, epochs)
    assert names(tmp_path) == ["epoch-0003", "epoch-0004"]


def test_epochs_beyond_four_digits_still_sort_by_number(tmp_path: Path) -> None:
    for epochs in (9999, 10000):
        checkpoint.save(tmp_path, {}, [epoch_result(epochs)])
    latest = checkpoint.latest(tmp_path)
    assert latest is not None
    assert latest.epoch == 10000


def test_a_torn_folder_is_ignored_and_swept_up_by_the_next_save(tmp_path: Path) -> None:
    save(tmp_path, 1)
    torn = tmp_path / ".epoch-torn"
    torn.mkdir()
    (torn / "state.pt").write_bytes(b"half")
    latest = checkpoint.latest(tmp_path)
    assert latest is not None
    assert latest.epoch == 1
    save(tmp_path, 2)
    assert names(tmp_path) == ["epoch-0001", "epoch-0002"]


def test_a_checkpoint_with_a_file_missing_is_not_one(tmp_path: Path) -> None:
    save(tmp_path, 1)
    save(tmp_path, 2)
    (tmp_path / "epoch-0002" / "history.json").unlink()
    latest = checkpoint.latest(tmp_path)
    assert latest is not None
    assert latest.epoch == 1


class Unwritable:
    def __reduce__(self) -> str:
        raise OSError("disk full")


def test_a_save_that_fails_halfway_leaves_the_earlier_checkpoint(tmp_path: Path) -> None:
    save(tmp_path, 1)
    with pytest.raises(OSError, match="disk full"):
        checkpoint.save(tmp_path, {"weights": torch.zeros(2), "bad": Unwritable()}, history(2))
    latest = checkpoint.latest(tmp_path)
    assert latest is not None
    assert latest.epoch == 1


def test_an_epoch_that_is_saved_again_replaces_the_first(tmp_path: Path) -> None:
    save(tmp_path, 1)
    checkpoint.save(tmp_path, {"weights": torch.zeros(1)}, history(1))
    latest = checkpoint.latest(tmp_path)
    assert latest is not None
    assert torch.equal(latest.load()["weights"], torch.zeros(1))
    assert names(tmp_path) == ["epoch-0001"]


def test_code_in_a_state_is_refused(tmp_path: Path) -> None:
    save(tmp_path, 1)
    torch.save({"weights": Path("/")}, tmp_path / "epoch-0001" / "state.pt")
    latest = checkpoint.latest(tmp_path)
    assert latest is not None
    with pytest.raises(pickle.UnpicklingError, match=r"[Ww]eights.only"):
        latest.load()


def test_remove_takes_checkpoints_and_nothing_else(tmp_path: Path) -> None:
    save(tmp_path, 1)
    (tmp_path / ".epoch-torn").mkdir()
    (tmp_path / "recipe.yaml").write_text("version: 1\n")
    checkpoint.remove(tmp_path)
    assert names(tmp_path) == ["recipe.yaml"]
    assert checkpoint.latest(tmp_path) is None


def test_a_folder_that_does_not_exist_has_no_checkpoint(tmp_path: Path) -> None:
    assert checkpoint.latest(tmp_path / "none") is None
    checkpoint.remove(tmp_path / "none")


def test_nothing_to_save_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least one epoch"):
        save(tmp_path, 0)


def test_histories_are_read_without_importing_torch(tmp_path: Path) -> None:
    save(tmp_path, 2)
    code = (
        "import sys; from trainable.checkpoints import checkpoint; "
        f"history = checkpoint.latest({str(tmp_path)!r}).history(); "
        "print(history[-1].epoch, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["2", "False"]


def torn(folder: Path, epoch: int) -> None:
    state = folder / f"epoch-{epoch:04d}" / checkpoint.STATE
    state.write_bytes(state.read_bytes()[:100])


def test_a_state_that_cannot_be_read_falls_back_to_the_one_before(tmp_path: Path) -> None:
    save(tmp_path, 1)
    save(tmp_path, 2)
    torn(tmp_path, 2)
    with pytest.warns(UserWarning, match=r"epoch-0002: left out, since it cannot be read: \w+Error: "):
        state = checkpoint.newest_state(tmp_path)
    assert state is not None
    assert torch.equal(state["weights"], torch.full((3,), 1.0))
    assert names(tmp_path) == ["epoch-0001", "epoch-0002"], "the fault may pass"


def test_no_state_is_left_when_none_can_be_read(tmp_path: Path) -> None:
    assert checkpoint.newest_state(tmp_path) is None
    save(tmp_path, 1)
    torn(tmp_path, 1)
    with pytest.warns(UserWarning, match="epoch-0001"):
        assert checkpoint.newest_state(tmp_path) is None


def test_a_save_drops_the_later_checkpoints_that_were_not_gone_on_from(tmp_path: Path) -> None:
    for epochs in (4, 5):
        save(tmp_path, epochs)
    save(tmp_path, 1)
    assert names(tmp_path) == ["epoch-0001"]
    assert [each.epoch for each in checkpoint.finished(tmp_path)] == [1]
