"""Tests that two ranks learn from a teacher as one does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed
from torch.multiprocessing.spawn import spawn

from tests.trainable.small_runs import curve, data_set, finished, plain_net
from tests.trainable.teachers import taught_recipe, write_teacher
from trainable.checkpoints import checkpoint
from trainable.ranks import ALONE, Ranks, of_process_group
from trainable.run import make_run
from trainable.training import trainer

WORLD = 2
CASES: dict[str, dict[str, Any]] = {
    "remembered": {"evaluation__batch_size": 8},
    "asked": {"augmentation__crop__kind": "pad"},
    "decoupled, cut": {"distillation__kind": "dkd", "loop__batch_size": 15, "loop__micro_batch": 3},
    "hints": {
        "distillation__kind": "features",
        "regularisation__clipping__kind": "norm",
        "regularisation__averaging__kind": "ema",
        "loop__micro_batch": 4,
    },
}


def histories(teacher: Path, ranks: Ranks) -> dict[str, list[dict[str, Any]]]:
    return {name: _history(teacher, values, ranks) for name, values in CASES.items()}


def _history(teacher: Path, values: dict[str, Any], ranks: Ranks) -> list[dict[str, Any]]:
    """Return the curve of a run that stops in the midst of its second epoch, and one that goes on from rank
    0's state there."""
    recipe = taught_recipe(teacher, **values)
    states: list[bytes] = []

    def save() -> None:
        content = checkpoint.to_bytes(run.state_dict()) if ranks.rank == 0 else b""
        states.append(ranks.bytes_from_first(content))

    run = make_run(recipe, data=data_set(), model=plain_net(seed=ranks.rank), ranks=ranks, on_pause=save)
    finished(run)
    part = make_run(recipe, data=data_set(), model=plain_net(), ranks=ranks)
    part.load_state_dict(checkpoint.from_bytes(states[1]))
    finished(part)
    assert curve(part.history) == curve(run.history), "resumed in the midst of an epoch, bit for bit"
    return curve(run.history)


def work(rank: int, folder: str) -> None:
    """What each of the two processes does."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=WORLD)
    trainer.SEGMENT_STEPS = 2
    found = histories(Path(folder) / "teacher", of_process_group())
    (Path(folder) / f"{rank}.json").write_text(json.dumps(found))
    distributed.barrier()  # where one leaves while the other works, gloo aborts at exit
    distributed.destroy_process_group()


@pytest.mark.integration
def test_two_ranks_are_taught_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer, "SEGMENT_STEPS", 2)
    teacher = write_teacher(tmp_path / "teacher")
    spawn(work, (str(tmp_path),), nprocs=WORLD)
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(WORLD))
    assert first == second
    for name, alone in histories(teacher, ALONE).items():
        assert len(first[name]) == len(alone)
        for theirs, ours in zip(first[name], alone, strict=True):
            assert theirs == pytest.approx(ours, rel=1e-5, abs=1e-6), name
