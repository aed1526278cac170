"""Saves checkpoints in a run's folder: whole or not at all, the last two, readable without running code.

    FOLDER/epoch-0005/state.pt       tensors and plain values, read with weights_only=True
    FOLDER/epoch-0005/history.json   the EpochResults up to there, read without torch
    FOLDER/epoch-0005-step-000250    the same in the midst of the sixth epoch

A checkpoint is written under a name that begins with a dot and renamed when everything is on the disk.
"""

from __future__ import annotations

import io
import json
import os
import re
import secrets
import shutil
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pydantic import TypeAdapter, ValidationError

from trainable.errors import StateError, visible
from trainable.files.regular import check_regular, read_regular, sync_folder, why
from trainable.training.metrics import EpochResult

STATE = "state.pt"
HISTORY = "history.json"
LARGEST_HISTORY = 2**27  # bytes: 100,000 epochs have fewer
_HISTORY: TypeAdapter[tuple[EpochResult, ...]] = TypeAdapter(tuple[EpochResult, ...])
NAME = re.compile(r"epoch-(\d{4,})(?:-step-(\d{6,}))?")
UNFINISHED = ".epoch-"
KEEP_LAST = 2  # if the last one cannot be read, the run continues from the one before


class Covering(Protocol):
    """What covers so many epochs, and so many steps of the next one."""

    @property
    def epoch(self) -> int: ...

    @property
    def step(self) -> int: ...


@dataclass(frozen=True)
class Checkpoint:
    """A finished checkpoint, and how many epochs and steps of the next one it covers."""

    folder: Path
    epoch: int
    step: int = 0

    def load(self) -> dict[str, Any]:
        """Return the state, with its tensors on the CPU."""
        import torch  # 2 s of imports that readers of histories do not need

        check_regular(self.folder / STATE)
        state: dict[str, Any] = torch.load(self.folder / STATE, map_location="cpu", weights_only=True)
        return state

    def opens(self) -> bool:
        """Return whether the state's structure can be read. It is quick: tensors stay on the disk."""
        import torch

        try:
            check_regular(self.folder / STATE)
            torch.load(self.folder / STATE, map_location="cpu", weights_only=True, mmap=True)
        except Exception:  # as `readable`, which names the fault
            return False
        return True

    def history(self) -> tuple[EpochResult, ...]:
        """Return the results of the epochs covered, first to last. Raises StateError as `history_in` does,
        and for a file that cannot be read."""
        file = self.folder / HISTORY
        try:
            text = read_regular(file, LARGEST_HISTORY)
        except OSError as error:
            raise StateError(f"{file}: cannot be read: {why(error)}") from None
        return history_in(text, str(file))


def history_in(text: str | bytes, where: str) -> tuple[EpochResult, ...]:
    """Read a checkpoint's history. Raises StateError for another version's, and for one that is damaged."""
    try:
        return _HISTORY.validate_json(text)
    except ValidationError as error:
        item = error.errors(include_url=False)[0]
        at = ".".join(map(str, item["loc"])) or "its text"
        raise StateError(
            f"{where} was written by another version, or is damaged: {at}: {item['msg']}"
        ) from None


def save(
    folder: str | Path, state: Mapping[str, Any], history: Sequence[EpochResult], step: int = 0
) -> Checkpoint:
    """Write the checkpoint of the history's last epoch, and of so many steps of the next one; remove all
    but the last two up to it.

    Later checkpoints are removed too: they could not be read, and the run continued from before them. A kill
    at any moment leaves the earlier checkpoints as they were. Raises ValueError for no epoch and no step,
    OSError if the disk refuses.
    """
    if not history and not step:
        raise ValueError("a checkpoint needs at least one epoch or step, got none")
    root = Path(folder)
    root.mkdir(parents=True, exist_ok=True)
    _remove_unfinished(root)
    epoch = history[-1].epoch if history else 0
    checkpoint = Checkpoint(
        root / (f"epoch-{epoch:04d}" + (f"-step-{step:06d}" if step else "")), epoch, step
    )
    unfinished = Path(tempfile.mkdtemp(dir=root, prefix=UNFINISHED))
    _write(unfinished, state, history)
    _move_into_place(unfinished, checkpoint.folder)
    finished_ones = finished(root)
    remaining = [each for each in finished_ones if age(each) <= age(checkpoint)][:KEEP_LAST]
    for other in finished_ones:
        if other not in remaining:
            _discard(other.folder)
    return checkpoint


def latest(folder: str | Path) -> Checkpoint | None:
    """Return the finished checkpoint that covers most, or None."""
    return next(iter(finished(folder)), None)


def finished(folder: str | Path) -> list[Checkpoint]:
    """Return every finished checkpoint, newest first."""
    root = Path(folder)
    if not root.is_dir():
        return []
    named = ((path, covered_by(path.name)) for path in root.iterdir())
    found = [Checkpoint(path, *covered) for path, covered in named if covered is not None]
    whole = [each for each in found if all((each.folder / name).is_file() for name in (STATE, HISTORY))]
    return sorted(whole, key=age, reverse=True)


def covered_by(name: str) -> tuple[int, int] | None:
    """Return the epochs, and steps of the next one, that a checkpoint of this name covers, or None."""
    match = NAME.fullmatch(name)
    return None if match is None else (int(match[1]), int(match[2] or 0))


def age(found: Covering) -> tuple[int, int]:
    """Return how much a checkpoint covers: its epochs, then steps."""
    return found.epoch, found.step


def newest_state(folder: str | Path) -> dict[str, Any] | None:
    """Return the state of the newest checkpoint that can be read, or None if there is none.

    It warns of each that cannot be read, as after a disk's fault, and does not remove it: the fault may pass.
    """
    for each in finished(folder):
        if (state := readable(each)) is not None:
            return state
    return None


def readable(found: Checkpoint, name: str = "") -> dict[str, Any] | None:
    """Return the state of a checkpoint; if it cannot be read, None, with a warning that has its `name`."""
    try:
        return found.load()
    except Exception as error:  # torch raises nearly anything for bytes that are not its own
        problem = f"{type(error).__name__}: {error}"
        where = name or str(found.folder)
        warnings.warn(visible(f"{where}: left out, since it cannot be read: {problem}"), stacklevel=3)
        return None


def to_bytes(state: Mapping[str, Any]) -> bytes:
    """Return a state as the bytes of a file."""
    import torch

    buffer = io.BytesIO()
    torch.save(dict(state), buffer)
    return buffer.getvalue()


def from_bytes(content: bytes) -> dict[str, Any]:
    """Read what `to_bytes` wrote, with its tensors on the CPU."""
    import torch

    state: dict[str, Any] = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    return state


def remove(folder: str | Path) -> None:
    """Remove every checkpoint of a folder, finished or not, and nothing else."""
    root = Path(folder)
    for checkpoint in finished(root):
        _discard(checkpoint.folder)
    _remove_unfinished(root)


def _remove_unfinished(root: Path) -> None:
    for path in root.glob(f"{UNFINISHED}*"):
        shutil.rmtree(path, ignore_errors=True)


def _write(folder: Path, state: Mapping[str, Any], history: Sequence[EpochResult]) -> None:
    import torch

    with (folder / STATE).open("wb") as file:
        torch.save(dict(state), file)
        file.flush()
        os.fsync(file.fileno())
    with (folder / HISTORY).open("w", encoding="utf-8") as file:
        json.dump([result.tree() for result in history], file, allow_nan=False)
        file.flush()
        os.fsync(file.fileno())
    sync_folder(folder)


def _move_into_place(unfinished: Path, final: Path) -> None:
    """Rename the unfinished folder; a checkpoint of the same epoch, which a retry writes again, is removed
    first."""
    if final.exists():
        _discard(final)
    unfinished.chmod(0o755)  # mkdtemp makes it private; the folders beside it are not
    unfinished.rename(final)
    sync_folder(final.parent)


def _discard(folder: Path) -> None:
    """Remove a checkpoint's name before its files, so that no half of one is ever found.

    It makes no new file: a full disk must allow it.
    """
    grave = folder.with_name(f"{UNFINISHED}{secrets.token_hex(4)}")
    folder.rename(grave)
    shutil.rmtree(grave)
