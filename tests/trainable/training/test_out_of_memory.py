"""Tests a step that runs out of memory: its window is cut further and repeated, and nothing else changes."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, distributed, nn
from torch.testing._internal.distributed.fake_pg import FakeStore

from tests.trainable.small_images import write_classes
from tests.trainable.small_runs import CLASSES, SIZE, curve, data_set, finished, plain_net, small_recipe
from tests.trainable.tune.planted_memory import Limited
from trainable.errors import RunError
from trainable.ranks import Ranks, RankSilent, of_process_group
from trainable.run import make_run
from trainable.train import train

VALUES: dict[str, Any] = {
    "loop.batch_size": 16,
    "loop.epochs": 4,
    "regularisation.clipping.kind": "norm",
    "regularisation.clipping.max_norm": 0.5,
    "regularisation.label_smoothing": 0.1,
    "regularisation.averaging.kind": "ema",
    "regularisation.averaging.decay": 0.9,
}


@pytest.mark.parametrize("late", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize("kind", ["sgd", "adamw", "adam_then_sgd"])
def test_the_curve_is_that_of_a_run_that_had_room(kind: str, late: bool) -> None:
    recipe = small_recipe({**VALUES, "optimizer.kind": kind})
    whole = finished(make_run(recipe, data=data_set(), model=plain_net()))
    model = Limited(plain_net(), room=5, late=late)
    split = finished(make_run(recipe, data=data_set(), model=model))
    assert model.refused == [16, 8]  # once each: the cut stays
    assert split.micro_batch == 4
    assert [each.micro_batch for each in split.history] == [4] * 4
    for ours, theirs in zip(curve(split.history), curve(whole.history), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-9, abs=1e-9)


# What torch 2.15 and its libraries raise for want of memory; the texts are in their binaries
ERRORS: dict[str, Exception] = {
    "torch": torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    "CUDA": torch.AcceleratorError("CUDA error: out of memory"),
    "cuBLAS": RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    "cuSOLVER": RuntimeError("cusolver error: CUSOLVER_STATUS_ALLOC_FAILED, when calling `cusolverDnCreate`"),
    "cuDNN 8": RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
    "cuDNN 9": RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"),
    "cuDNN's engines": RuntimeError("FIND was unable to find an engine to execute this computation"),
    "cuDNN's algorithms": RuntimeError("Unable to find a valid cuDNN algorithm to run convolution"),
    "torch on a CPU": RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate"),
    "oneDNN": RuntimeError("could not execute a primitive"),
    "C++": MemoryError("std::bad_alloc"),
    "numpy": MemoryError("Unable to allocate 954. MiB for an array with shape (1000000000,)"),
}


@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS)
def test_however_it_is_said_that_memory_ran_out_the_window_is_cut(error: Exception) -> None:
    recipe = small_recipe({"loop.epochs": 1})
    whole = finished(make_run(recipe, data=data_set(), model=plain_net()))
    model = Limited(plain_net(), room=8, error=error)
    split = finished(make_run(recipe, data=data_set(), model=model))
    assert model.refused == [16]
    assert curve(split.history)[0] == pytest.approx(curve(whole.history)[0], rel=1e-9, abs=1e-9)


NCCL = "NCCL error, unhandled cuda error. Last error:\nCuda failure 2 'out of memory'"


@pytest.mark.parametrize(
    "error", [RankSilent(NCCL), distributed.DistBackendError(NCCL)], ids=lambda error: type(error).__name__
)
def test_an_exchange_that_lacks_memory_ends_the_run_as_smaller_parts_do_not_help(error: Exception) -> None:
    model = Limited(plain_net(), room=8, error=error)
    with pytest.raises(RunError, match="out of memory"):
        make_run(small_recipe(), data=data_set(), model=model).step()
    assert model.refused == [16]


def test_ten_steps_in_fp32_agree_to_a_millionth() -> None:
    recipe = small_recipe({"loop.epochs": 1, "optimizer.lr": 0.05, "loop.batch_size": 16})
    whole = make_run(recipe, data=data_set(train=160), model=plain_net().float())
    split = make_run(recipe, data=data_set(train=160), model=Limited(plain_net().float(), room=3))
    ours, theirs = split.step(), whole.step()
    assert ours.train_loss == pytest.approx(theirs.train_loss, abs=1e-6)
    assert ours.micro_batch == 2


def test_memory_that_runs_out_in_mid_run_costs_one_step_alone() -> None:
    """The third window of the second epoch no longer fits; it is taken again, and counted once."""
    recipe = small_recipe({**VALUES, "schedule.kind": "constant"})
    model = Limited(plain_net(), room=16)
    run = make_run(recipe, data=data_set(), model=model)
    whole = finished(make_run(recipe, data=data_set(), model=plain_net()))
    run.step()
    steps = 0

    def tighten(*_: object) -> None:
        nonlocal steps
        steps += model.training
        model.room = 16 if steps < 3 else 8

    model.register_forward_pre_hook(tighten)
    run.step()
    finished(run)
    assert model.refused == [16]
    assert [each.micro_batch for each in run.history] == [16, 8, 8, 8]
    for ours, theirs in zip(curve(run.history), curve(whole.history), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-9, abs=1e-9)


def test_the_mixing_of_a_repeated_window_draws_from_where_the_window_began() -> None:
    """Memory runs out in the first window's second part: it then equals a run that was cut so at once."""
    values = {"augmentation.mixing.kind": "mixup", "augmentation.mixing.alpha": 1.0, "loop.epochs": 2}
    cut = finished(
        make_run(small_recipe({**values, "loop.micro_batch": 4}), data=data_set(), model=plain_net())
    )
    model = Limited(plain_net(), room=99)
    run = make_run(small_recipe({**values, "loop.micro_batch": 8}), data=data_set(), model=model)
    seen: list[int] = []

    def count(_: nn.Module, inputs: tuple[Tensor]) -> None:
        if model.training:
            seen.append(len(inputs[0]))
            model.room = 0 if len(seen) == 2 else 99

    model.register_forward_pre_hook(count)
    finished(run)
    assert seen[:6] == [8, 8, 4, 4, 4, 4]
    for ours, theirs in zip(curve(run.history), curve(cut.history), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-12)


def test_what_the_failed_try_held_is_free_before_the_next() -> None:
    class Watching(Limited):
        def forward(self, images: Tensor) -> Tensor:
            if self._holds():
                gc.collect()
            assert not self._holds(), "the last try's tensors are still held"
            return super().forward(images)

        def _holds(self) -> bool:
            return any(each() is not None for each in self.held)

    run = make_run(small_recipe(VALUES), data=data_set(), model=Watching(plain_net(), room=4))
    run.step()
    assert run.micro_batch == 4


def test_a_resumed_run_keeps_the_cut() -> None:
    recipe = small_recipe(VALUES)
    first = make_run(recipe, data=data_set(), model=Limited(plain_net(), room=4))
    first.step()
    model = Limited(plain_net(), room=4)
    second = make_run(recipe, data=data_set(), model=model)
    second.load_state_dict(first.state_dict())
    assert second.micro_batch == 4
    second.step()
    assert model.refused == []


def test_images_from_files_are_read_again(tmp_path: Path) -> None:
    folder = write_classes(tmp_path / "data", {"a": 20, "b": 20})
    values = {"data.path": str(folder), "data.in_memory": False, "data.channels": 1, "data.image_size": 8}
    for workers in (0, 2):
        recipe = small_recipe({**values, "loop.workers": workers, "loop.batch_size": 8, "loop.epochs": 2})
        whole = finished(make_run(recipe, model=plain_net()))
        model = Limited(plain_net(), room=4)
        split = finished(make_run(recipe, model=model))
        whole.close()
        split.close()
        assert model.refused == [8]
        for ours, theirs in zip(curve(split.history), curve(whole.history), strict=True):
            assert ours == pytest.approx(theirs, rel=1e-9, abs=1e-9)


def test_one_image_that_does_not_fit_ends_the_run() -> None:
    model = Limited(plain_net(), room=0)
    with pytest.raises(RunError, match="OutOfMemoryError"):
        make_run(small_recipe(VALUES), data=data_set(), model=model).step()
    assert model.refused == [16, 8, 4, 2, 1]


def test_other_errors_are_not_taken_for_it() -> None:
    class Broken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(SIZE * SIZE, CLASSES)
            self.calls = 0

        def forward(self, images: Tensor) -> Tensor:
            self.calls += 1
            raise RuntimeError("planted: not about memory")

    model = Broken()
    with pytest.raises(RunError, match="planted"):
        make_run(small_recipe(), data=data_set(), model=model).step()
    assert model.calls == 1


@pytest.fixture
def one_of_two() -> Iterator[Ranks]:
    """Rank 0 of two, the other of which is torch's: it answers every collective, and computes nothing."""
    distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    yield of_process_group()
    distributed.destroy_process_group()


def test_with_synchronised_norms_a_rank_does_not_cut(one_of_two: Ranks) -> None:
    """The others are waiting in a layer, where nobody can reach them."""
    model = Limited(plain_net(), room=2)
    values = {**VALUES, "loop.sync_norm": True}
    run = make_run(small_recipe(values), data=data_set(), model=model, ranks=one_of_two)
    with pytest.raises(RunError, match="OutOfMemoryError"):
        run.step()
    assert model.refused == [8]


def test_the_micro_batch_that_fitted_stands_in_the_provenance(tmp_path: Path) -> None:
    recipe = small_recipe({"loop.epochs": 1, "loop.micro_batch": 4})
    outcome = train(recipe, data=data_set(), out=tmp_path)
    assert outcome.recipe.provenance is not None
    assert outcome.recipe.provenance.micro_batch == 4
    assert "micro_batch: 4" in (tmp_path / "recipe.yaml").read_text()
