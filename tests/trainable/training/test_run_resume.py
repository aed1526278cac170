"""Tests that stopping at an epoch and resuming equals never stopping, bit for bit."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import nn

from tests.trainable.small_runs import data_set, finished, images, numbers, plain_net, small_recipe
from trainable.bench import ON_CPU
from trainable.checkpoints import checkpoint
from trainable.data import DataSet
from trainable.errors import StateError
from trainable.recipe import Recipe
from trainable.run import make_run
from trainable.tasks.kits import load_for
from trainable.training import trainer
from trainable.training.run import Run

CPU = torch.device("cpu")
AUGMENTED = {
    "augmentation.crop.kind": "pad",
    "augmentation.masking.kind": "erasing",
    "augmentation.masking.probability": 0.5,
}
CASES: dict[str, dict[str, Any]] = {
    "sgd": {},
    "adamw, bf16": {"optimizer.kind": "adamw", "precision.kind": "bf16"},
    "average, cutmix": {
        "regularisation.averaging.kind": "ema",
        "regularisation.averaging.decay": 0.9,
        "augmentation.mixing.kind": "cutmix",
    },
    "mixup, accumulation, augmentation": {
        **AUGMENTED,
        "augmentation.mixing.kind": "mixup",
        "loop.micro_batch": 5,
        "schedule.warmup_epochs": 1.5,
    },
    "fp16": {
        "precision.kind": "fp16",
        "regularisation.clipping.kind": "norm",
        "regularisation.clipping.max_norm": 0.5,
    },
    "one cycle, dropping": {
        "schedule.kind": "onecycle",
        "model.dropout": 0.3,
        "model.stochastic_depth": 0.3,
        "regularisation.clipping.kind": "adaptive",
        "regularisation.clipping.factor": 0.01,
    },
    "restarts, sizes": {
        "schedule.kind": "sgdr",
        "schedule.cycle_epochs": 1.5,
        "augmentation.size.kind": "multi_scale",
        "augmentation.size.every": 2,
        "augmentation.size.largest": 1.5,
        "evaluation.norm_batches": 2,
        "evaluation.scales": [1.0, 1.5],
    },
    "growing sizes, adam then sgd": {
        "optimizer.kind": "adam_then_sgd",
        "optimizer.switch_at": 0.4,
        "augmentation.size.kind": "progressive",
        "augmentation.masking.kind": "gridmask",
    },
    "extra metrics": {"evaluation.metrics": ["macro_f1", "auroc", "average_precision", "calibration_error"]},
    "thawing": {
        "model.freeze_epochs": 2,
        "model.layer_rates.kind": "decayed",
        "optimizer.kind": "lamb",
        "augmentation.policy.kind": "trivialaugment",
    },
    "frozen, two views": {
        **AUGMENTED,
        "model.freeze_epochs": 3,
        "model.frozen_views": 2,
        "model.dropout": 0.3,
        "loop.micro_batch": 5,
        "regularisation.averaging.kind": "ema",
    },
    "frozen statistics, twice computed": {
        "model.freeze_norm": True,
        "loop.checkpoint_activations": True,
        "optimizer.kind": "rmsprop",
        "augmentation.masking.kind": "hide_and_seek",
    },
}


def check(recipe: Recipe, data: DataSet, folder: Path, model: nn.Module | None = None) -> None:
    """Train four epochs at once, and again with a stop after each epoch, through a file."""

    def make() -> Run:
        torch.manual_seed(torch.seed() % 2**31)  # whatever the process drew before must not matter
        return make_run(
            recipe, data=data, model=plain_net(dropout=0.5).float() if model is not None else None
        )

    whole = make()
    finished(whole)
    whole.close()
    for _ in range(recipe.loop.epochs):
        part = make()
        latest = checkpoint.latest(folder)
        if latest is not None:
            part.load_state_dict(latest.load())
            assert part.history == latest.history()
        part.step()
        checkpoint.save(folder, part.state_dict(), part.history)
        part.close()
    assert numbers(part.history) == numbers(whole.history)
    assert part.finished
    for name, tensor in whole.weights().items():
        assert torch.equal(part.weights()[name], tensor), name


@pytest.mark.slow("trains networks")
@pytest.mark.parametrize("case", CASES)
def test_in_memory(case: str, tmp_path: Path) -> None:
    check(small_recipe({"loop.epochs": 4, **CASES[case]}), data_set(), tmp_path)


@pytest.mark.slow("trains networks")
@pytest.mark.parametrize("case", CASES)
def test_in_the_midst_of_an_epoch(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of six steps an epoch can be resumed after two and four of them."""
    monkeypatch.setattr(trainer, "SEGMENT_STEPS", 2)
    recipe = small_recipe({"loop.epochs": 3, "loop.batch_size": 8, **CASES[case]})
    states: list[tuple[int, int, bytes]] = []

    def save() -> None:
        states.append((whole.epoch, whole.steps_into_epoch, checkpoint.to_bytes(whole.state_dict())))

    whole = make_run(recipe, data=data_set(), on_pause=save)
    finished(whole)
    assert [(epoch, step) for epoch, step, _ in states] == [(e, s) for e in range(3) for s in (2, 4)]
    for epoch, _, state in (states[0], states[3]):
        part = make_run(recipe, data=data_set())
        part.load_state_dict(checkpoint.from_bytes(state))
        assert part.epoch == epoch
        finished(part)
        assert numbers(part.history) == numbers(whole.history)
        for name, tensor in whole.weights().items():
            assert torch.equal(part.weights()[name], tensor), name


def test_with_dropout_in_a_net_of_ones_own(tmp_path: Path) -> None:
    check(small_recipe({"loop.epochs": 4}), data_set(), tmp_path, model=plain_net())


@pytest.fixture(scope="module")
def folder_of_images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("images")
    for number, (pixels, label) in enumerate(zip(*images(36, 0), strict=True)):
        class_folder = root / f"class{label}"
        class_folder.mkdir(exist_ok=True)
        Image.fromarray(pixels).save(class_folder / f"{number}.png")
    return root


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.integration)])
def test_from_files_with_any_number_of_workers(folder_of_images: Path, workers: int, tmp_path: Path) -> None:
    recipe = small_recipe(
        {
            **AUGMENTED,
            "augmentation.policy.kind": "randaugment",
            "data.path": str(folder_of_images),
            "data.in_memory": False,
            "loop.workers": workers,
            "loop.batch_size": 8,
            "loop.epochs": 2,
        }
    )
    check(recipe, load_for(recipe, ON_CPU), tmp_path)


def test_a_diverged_run_is_still_diverged_after_a_resume() -> None:
    recipe = small_recipe({"optimizer.lr": 1e6})
    run, resumed = make_run(recipe, data=data_set()), make_run(recipe, data=data_set())
    run.step()
    resumed.load_state_dict(run.state_dict())
    assert resumed.diverged
    assert resumed.finished


def test_a_state_holds_only_what_can_be_read_without_running_code() -> None:
    run = make_run(small_recipe(CASES["average, cutmix"]), data=data_set())
    run.step()
    file = io.BytesIO()
    torch.save(run.state_dict(), file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    assert state["epoch"] == 1
    assert not any(name.startswith("module.") for name in state["model"])


def test_two_runs_do_not_share_tensors_after_a_state_was_passed_on() -> None:
    recipe = small_recipe({"optimizer.kind": "adamw"})
    first, second = make_run(recipe, data=data_set()), make_run(recipe, data=data_set())
    first.step()
    second.load_state_dict(first.state_dict())
    first.step()
    second.step()
    assert numbers(first.history) == numbers(second.history)


def test_the_state_of_another_recipe_or_of_other_data_is_refused() -> None:
    run = make_run(small_recipe(), data=data_set())
    other_recipe = make_run(small_recipe({"optimizer.lr": 0.05}), data=data_set())
    with pytest.raises(StateError, match=f"of recipe {other_recipe.recipe.digest()!r}"):
        run.load_state_dict(other_recipe.state_dict())
    other_data = make_run(small_recipe(), data=data_set(train=45))
    with pytest.raises(StateError, match="of data"):
        run.load_state_dict(other_data.state_dict())
