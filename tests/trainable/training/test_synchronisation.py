"""Tests that no training step waits for the device: it reads no number, size or index from a tensor.

On a CPU the operations that would make the host wait for a GPU are found by their names; on a GPU torch
itself is asked (`tests/gpu`).
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import trainable
from tests.trainable import lessons
from tests.trainable.small_runs import data_set, small_recipe
from trainable.run import make_run
from trainable.training.run import Run

# The host needs the result of these operations, or its size, before it goes on
WAITING = {
    "aten._local_scalar_dense.default",  # item(), float(), bool(), tolist() of one
    "aten.nonzero.default",
    "aten.masked_select.default",
    "aten.equal.default",
    "aten.is_nonzero.default",
    "aten._unique2.default",
    "aten.bincount.default",
}


class Watch(TorchDispatchMode):
    """The operations that a device would be waited for."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.waited: list[str] = []

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if str(func) in WAITING or _indexes_by_mask(str(func), args):
            self.waited.append(str(func))
        return func(*args, **(kwargs or {}))


def _indexes_by_mask(name: str, args: Sequence[Any]) -> bool:
    """Say whether the size of the result, or of what is written, depends on how much of a mask is true."""
    if not name.startswith(("aten.index.", "aten.index_put")):
        return False
    return any(each is not None and each.dtype == torch.bool for each in args[1])


def test_the_watch_sees_what_waits() -> None:
    with Watch() as watch:
        values = torch.ones(3)
        values.sum().item()
        values[values > 0]
    assert watch.waited == ["aten._local_scalar_dense.default", "aten.index.Tensor"]


CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "crop and erasing": {"augmentation.crop.kind": "pad", "augmentation.masking.kind": "erasing"},
    "resized crop and cutout": {"augmentation.crop.kind": "resized", "augmentation.masking.kind": "cutout"},
    "gridmask": {"augmentation.masking.kind": "gridmask", "augmentation.masking.ramp": 0.0},
    "hide and seek": {"augmentation.masking.kind": "hide_and_seek"},
    "gridmask, turned": {
        "augmentation.masking.kind": "gridmask",
        "augmentation.masking.ramp": 0.0,
        "augmentation.masking.rotation": 45.0,
    },
    "randaugment": {"augmentation.policy.kind": "randaugment"},
    "trivialaugment": {"augmentation.policy.kind": "trivialaugment"},
    "autoaugment": {"augmentation.policy.kind": "autoaugment"},
    "mixup, smoothing": {"augmentation.mixing.kind": "mixup", "regularisation.label_smoothing": 0.1},
    "cutmix": {"augmentation.mixing.kind": "cutmix"},
    "clipping, EMA": {
        "regularisation.clipping.kind": "norm",
        "regularisation.clipping.max_norm": 0.1,
        "regularisation.averaging.kind": "ema",
        "regularisation.averaging.decay": 0.9,
    },
    "adaptive clipping": {"regularisation.clipping.kind": "adaptive", "regularisation.clipping.factor": 0.01},
    "micro-batches": {"loop.micro_batch": 4},
    "multi-scale": {
        "augmentation.size.kind": "multi_scale",
        "augmentation.size.largest": 1.5,
        "augmentation.size.every": 1,
    },
    "bf16": {"precision.kind": "bf16"},
    "adamw": {"optimizer.kind": "adamw"},
    "adam": {"optimizer.kind": "adam"},
    "adam, then sgd": {"optimizer.kind": "adam_then_sgd"},
    "rmsprop": {"optimizer.kind": "rmsprop"},
    "adadelta": {"optimizer.kind": "adadelta"},
    "lars": {"optimizer.kind": "lars"},
    "lamb": {"optimizer.kind": "lamb"},
    "fp16, sgd": {"precision.kind": "fp16"},
    "fp16, adamw": {"precision.kind": "fp16", "optimizer.kind": "adamw"},
    "fp16, rmsprop": {"precision.kind": "fp16", "optimizer.kind": "rmsprop"},
    "fp16, adadelta": {"precision.kind": "fp16", "optimizer.kind": "adadelta"},
    "fp16, lars": {"precision.kind": "fp16", "optimizer.kind": "lars"},
    "frozen": {"model.freeze_norm": True, "model.dropout": 0.5, "model.stochastic_depth": 0.1},
    "checkpointed": {"loop.checkpoint_activations": True},
}


# Each step reads so many numbers that were never on a device: a host's seed, timm's count of steps
FROM_THE_HOST = {"mixup, smoothing": 1, "cutmix": 1, "lamb": 2}


@pytest.mark.parametrize("name", CASES)
def test_a_step_waits_for_nothing(name: str) -> None:
    assert waits_of(make_run(small_recipe(CASES[name]), data=data_set())) == reads(FROM_THE_HOST.get(name, 0))


@pytest.mark.parametrize("name", lessons.LESSONS)
def test_a_step_on_masks_or_with_a_teacher_waits_for_nothing(name: str, tmp_path: Path) -> None:
    recipe, data = lessons.asked(lessons.LESSONS[name], tmp_path)
    assert waits_of(make_run(recipe, data=data)) == reads(lessons.FROM_THE_HOST.get(name, 0))


STEPS = 3


def reads(in_a_step: int) -> list[str]:
    return ["aten._local_scalar_dense.default"] * (STEPS * in_a_step)


def waits_of(run: Run) -> list[str]:
    """Return what waits in the steps after the first."""
    with run.probing():
        run.train_on(next(run.windows()))  # optimizers make their state in the first step
        with Watch() as watch:
            for _, window in zip(range(STEPS), run.windows(1), strict=False):
                run.train_on(window)
    waited: list[str] = watch.waited
    return waited


def test_an_epoch_reads_the_device_a_few_times_however_many_steps_it_has() -> None:
    counts = []
    for images in (32, 320):
        run = make_run(small_recipe(), data=data_set(train=images))
        run.step()
        with Watch() as watch:
            run.step()
        counts.append(len(watch.waited))
    assert counts[1] <= counts[0] + 1  # one look at the loss every 32 steps


def test_extra_metrics_read_the_device_no_more_often() -> None:
    waits = []
    for metrics in ([], ["macro_f1", "auroc"]):
        run = make_run(small_recipe({"evaluation.metrics": metrics}), data=data_set())
        with Watch() as watch:
            run.step()
        waits.append(watch.waited)
    assert waits[1] == waits[0]


def copies_in_place(source: str) -> list[str]:
    """Return the calls that make a tensor of Python's numbers on a device, outside constructors.

    They copy from pageable memory and wait for the copy, which no watch on a CPU sees.
    """
    tree = ast.parse(source)
    constructors = [
        each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef) and each.name == "__init__"
    ]
    allowed = {id(each) for constructor in constructors for each in ast.walk(constructor)}
    return [
        ast.unparse(each)
        for each in ast.walk(tree)
        if isinstance(each, ast.Call) and id(each) not in allowed
        if ast.unparse(each.func) in ("torch.tensor", "torch.as_tensor", "torch.asarray")
        if any(keyword.arg == "device" for keyword in each.keywords)
    ]


@pytest.mark.slow("reads every file")
def test_no_tensor_is_made_of_numbers_on_a_device_outside_constructors() -> None:
    planted = "def halves(images):\n    return torch.tensor([1.0], device=images.device)"
    assert copies_in_place(planted) == ["torch.tensor([1.0], device=images.device)"]
    files = [*Path(trainable.__file__).parent.rglob("*.py")]
    found = {file.name: copies for file in files if (copies := copies_in_place(file.read_text()))}
    assert found == {}
