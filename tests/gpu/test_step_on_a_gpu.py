"""Tests what only a CUDA device can show: torch reports every wait, fp16 scales, memory really runs out."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.trainable.lessons import LESSONS, asked
from tests.trainable.small_runs import data_set, small_recipe
from tests.trainable.training.test_synchronisation import CASES
from trainable.bench import Bench
from trainable.probes.network_cost import measure_cost
from trainable.run import make_run
from trainable.training.run import Run

pytestmark = pytest.mark.gpu

# Networks of two or more blocks of one kind
COMPILED: dict[str, dict[str, Any]] = {
    "plain": {"model.depth": 14},
    "thawed, computed twice": {
        "model.depth": 14,
        "model.freeze_epochs": 1,
        "loop.checkpoint_activations": True,
    },
}


@pytest.fixture
def strict_about_waiting() -> Iterator[None]:
    yield
    torch.cuda.set_sync_debug_mode("default")


@pytest.mark.usefixtures("strict_about_waiting")
@pytest.mark.parametrize("values", CASES.values(), ids=CASES)
def test_a_step_waits_for_nothing_on_a_gpu(values: dict[str, Any]) -> None:
    step_strictly(make_run(small_recipe(values), data=data_set(), bench=Bench(device_name="cuda")))


@pytest.mark.usefixtures("strict_about_waiting")
@pytest.mark.parametrize("name", LESSONS)
def test_a_step_on_masks_or_with_a_teacher_waits_for_nothing_on_a_gpu(name: str, tmp_path: Path) -> None:
    recipe, data = asked(LESSONS[name], tmp_path)
    step_strictly(make_run(recipe, data=data, bench=Bench(device_name="cuda")))


def test_the_first_epoch_on_a_gpu_says_what_its_first_step_took_beyond_the_others() -> None:
    """Kernels are loaded and chosen in it, which the host waits for."""
    run = make_run(small_recipe(), data=data_set(), bench=Bench(device_name="cuda"))
    first, second = run.step(), run.step()
    extra = first.first_step_extra_seconds
    assert extra is not None
    assert 0.0 < extra <= first.epoch_seconds - first.evaluation_seconds - first.data_seconds
    assert second.first_step_extra_seconds is None


def step_strictly(run: Run) -> None:
    """Take an epoch's steps, of which each that waits for the device is an error, but for the first."""
    with run.probing():
        run.train_on(next(run.windows()))
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        for window in run.windows(1):
            run.train_on(window)
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("name", LESSONS)
def test_masks_and_teachers_come_to_on_a_gpu_what_they_do_on_a_cpu(name: str, tmp_path: Path) -> None:
    """In single precision and by small steps, which rounding does not change much."""
    recipe, data = asked(LESSONS[name], tmp_path)
    recipe = recipe.with_values({"precision.kind": "fp32", "optimizer.lr": 1e-4})
    results = []
    for device in ("cpu", "cuda"):
        run = make_run(recipe, data=data, bench=Bench(device_name=device))
        run.step()
        results.append((run.history[-1].train_loss, run.history[-1].val_loss))
    assert results[1] == pytest.approx(results[0], rel=2e-3)


@pytest.mark.parametrize("mixing", ["none", "cutmix"])
def test_epochs_in_portions_have_the_losses_of_epochs_by_batches(mixing: str) -> None:
    """Of a network whose kernels add in one order, whatever was tried before."""
    values = {
        "augmentation.crop.kind": "pad",
        "augmentation.policy.kind": "randaugment",
        "augmentation.masking.kind": "erasing",
        "augmentation.mixing.kind": mixing,
        "regularisation.averaging.kind": "ema",
        "regularisation.clipping.kind": "norm",
    }
    results = []
    for portion in (2**20, 0):
        torch.manual_seed(0)
        network = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 3))
        run = make_run(small_recipe(values), data=data_set(), model=network, bench=Bench(device_name="cuda"))
        run.images.loader.portion_images = portion
        while not run.finished:
            run.step()
        results.append([(each.train_loss, each.val_loss) for each in run.history])
    assert results[0] == results[1]


@pytest.mark.parametrize("kind", ["fp32", "tf32", "bf16", "fp16"])
def test_every_format_learns(kind: str) -> None:
    values = {"precision.kind": kind, "loop.epochs": 6, "model.width": 8}
    run = make_run(small_recipe(values), data=data_set(), bench=Bench(device_name="cuda"))
    while not run.finished:
        run.step()
    assert run.history[-1].train_accuracy > 0.8


@pytest.mark.parametrize("values", COMPILED.values(), ids=COMPILED)
def test_a_run_compiled_by_blocks_comes_to_what_it_comes_to_as_it_is(values: dict[str, Any]) -> None:
    values = {"precision.kind": "fp32", "optimizer.lr": 1e-4, "loop.epochs": 2, **values}
    plain = make_run(small_recipe(values), data=data_set(), bench=Bench(device_name="cuda"))
    compiled = make_run(
        small_recipe({**values, "loop.compile": "blocks"}), data=data_set(), bench=Bench(device_name="cuda")
    )
    for run in (plain, compiled):
        while not run.finished:
            run.step()
    assert "blocks" in compiled.compiled
    compiled.close()
    for ours, theirs in zip(compiled.history, plain.history, strict=True):
        assert ours.train_loss == pytest.approx(theirs.train_loss, rel=2e-3)
        assert ours.val_loss == pytest.approx(theirs.val_loss, rel=2e-3)


class Hungry(nn.Module):
    """A network that keeps a GiB an image for its backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(64, 3)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(images.flatten(1))
        wide = logits[:, :1] * torch.ones(2**28, device=images.device)
        return logits + (wide * wide).mean(1, keepdim=True)


def test_memory_that_runs_out_halves_the_micro_batch() -> None:
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, 24 * 2**30 / total))
    try:
        recipe = small_recipe({"loop.epochs": 1})
        run = make_run(recipe, data=data_set(), model=Hungry(), bench=Bench(device_name="cuda"))
        result = run.step()
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert result.micro_batch < 16
    assert not result.diverged


SHARE = """
import torch
from tests.trainable.small_runs import data_set
from tests.trainable.tune.in_process import InProcess
from trainable.bench import Bench
from trainable.tune.worker_setup import WorkerSetup
from trainable.tune.worker import Worker
bench = Bench(device_name="cuda", gpu_share=0.25, threads=1)
Worker(WorkerSetup(InProcess(data_set()), bench, step_seconds=60.0))
whole = torch.cuda.get_device_properties(0).total_memory
torch.empty(whole // 8, dtype=torch.uint8, device="cuda")
try:
    torch.empty(whole // 2, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError:
    print("capped")
"""


def test_the_memory_of_a_step_on_a_gpu_is_measured() -> None:
    recipe = small_recipe({"loop.batch_size": 4})
    run = make_run(recipe, data=data_set(), model=Hungry(), bench=Bench(device_name="cuda"))
    cost = measure_cost(run)
    assert 4.0 < cost.memory_gib < 32.0
    assert cost.latency_ms > 0.0


def test_a_share_of_a_gpu_ends_at_its_part_of_the_memory() -> None:
    done = subprocess.run([sys.executable, "-c", SHARE], capture_output=True, text=True, check=False)
    assert done.stdout == "capped\n", done.stderr
