"""Tests runs that learn from a teacher: their loss, what is remembered, and that a resume changes nothing."""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional

from tests.trainable.small_runs import CLASSES, curve, data_set, plain_net, small_recipe, unequal_set
from tests.trainable.teachers import LEARNING, taught_recipe, write_teacher
from trainable.bench import ON_CPU
from trainable.bundle.trained import in_fp32
from trainable.check import make_subject
from trainable.checkpoints import checkpoint
from trainable.data import DataSet
from trainable.files import host_memory
from trainable.probes.batch_find import step_bytes
from trainable.probes.endings import endings_of, measure_endings
from trainable.probes.network_cost import key_of_cost
from trainable.recipe import Recipe
from trainable.run import make_run
from trainable.tasks.distilled.losses import Learner
from trainable.tasks.distilled.task import Distilled
from trainable.training import trainer
from trainable.training.metrics import EpochResult
from trainable.training.run import Run
from trainable.training.task import Task

KINDS: dict[str, dict[str, Any]] = {
    "logits": {},
    "dkd": {"distillation__kind": "dkd"},
    "features": {"distillation__kind": "features"},
}
PAD = {"augmentation__crop__kind": "pad"}
MIXUP = {"augmentation__mixing__kind": "mixup"}


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_teacher(tmp_path_factory.mktemp("teacher"))


def finished(recipe: Recipe, data: DataSet | None = None, model: nn.Module | None = None) -> Run:
    run = make_run(recipe, data=data or data_set(), model=model)
    while not run.finished:
        run.step()
    return run


def assert_alike(ours: Run, theirs: Run, tolerance: float = 1e-5) -> None:
    for mine, other in zip(curve(ours.history), curve(theirs.history), strict=True):
        assert mine == pytest.approx(other, rel=tolerance, abs=tolerance)


def asked_of(run: Run) -> list[int]:
    """Return a list to which the numbers of images are added that the run's teacher answers to."""
    counts: list[int] = []
    assert isinstance(run.task, Distilled)
    run.task.teacher.network.register_forward_pre_hook(lambda _, inputs: counts.append(len(inputs[0])))
    return counts


def test_a_task_with_a_teacher_leaves_no_member_to_the_default(teacher: Path) -> None:
    taught = make_run(taught_recipe(teacher), data=data_set()).task
    members = {name for name in (*vars(Task), *Task.__annotations__) if not name.startswith("_")}
    assert members <= vars(Distilled).keys() | vars(taught).keys()


# --- the loss -----------------------------------------------------------------------------------------


def first_loss(recipe: Recipe) -> tuple[float, Run, Tensor, Tensor]:
    """Return the loss of a step that changes nothing, its run, and the images and labels of the step."""
    run = make_run(recipe, data=data_set())
    with run.probing():
        window = next(run.windows())
        loss = run.train_on(window, lr=0.0).item()
    ((images, labels),) = window
    return loss, run, images, labels


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_the_loss_is_shared_between_the_labels_and_the_teacher(teacher: Path, weight: float) -> None:
    recipe = taught_recipe(teacher, distillation__weight=weight, distillation__temperature=3.0)
    loss, run, images, labels = first_loss(recipe)
    assert isinstance(run.task, Distilled)
    with torch.no_grad():
        run.model.train()
        logits = run.model(images)
        answers = run.task.teacher.network(images)
    of_labels = functional.cross_entropy(logits, labels)
    softened = functional.kl_div(
        (logits / 3.0).log_softmax(1), (answers / 3.0).log_softmax(1), reduction="batchmean", log_target=True
    )
    expected = (1.0 - weight) * of_labels + weight * 9.0 * softened
    assert loss == pytest.approx(expected.item(), rel=1e-5)


def test_the_teacher_sees_the_mixed_pixels_and_the_labels_share_their_mixture(teacher: Path) -> None:
    run = make_run(taught_recipe(teacher, **MIXUP, augmentation__mixing__alpha=1.0), data=data_set())
    shown: dict[str, Tensor] = {}
    assert isinstance(run.task, Distilled)
    run.task.teacher.network.register_forward_pre_hook(
        lambda _, inputs: shown.update(teacher=inputs[0].clone())
    )
    run.model.register_forward_pre_hook(lambda _, inputs: shown.update(student=inputs[0].clone()))
    with run.probing():
        ((images, labels),) = next(run.windows())
        run.train_on([(images, labels)])
    assert torch.equal(shown["teacher"], shown["student"])
    assert not torch.equal(shown["student"], images)


@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_is_that_of_the_whole_batch_however_it_is_cut(teacher: Path, kind: str) -> None:
    """Also where the classes do not count alike: an image counts as much for its teacher."""
    values = {
        **KINDS[kind],
        "regularisation__class_weights__kind": "inverse",
        "loop__batch_size": 12,
        "model__width": 8,
    }
    whole = finished(taught_recipe(teacher, **values), unequal_set(), body())
    cut = finished(taught_recipe(teacher, **values, loop__micro_batch=5), unequal_set(), body())
    assert_alike(whole, cut)


def body() -> nn.Module:
    return plain_net().float()


@pytest.mark.parametrize("kind", KINDS)
def test_a_small_student_learns_from_a_larger_teacher(teacher: Path, kind: str) -> None:
    values = {**LEARNING, "optimizer.lr": 0.1 if kind == "dkd" else 0.5, "loop.epochs": 10}
    if kind == "logits":
        values |= {"distillation.weight": 1.0}  # without any label
    run = finished(taught_recipe(teacher, **KINDS[kind]).with_values(values))
    assert run.history[-1].val_accuracy > 0.9 > run.history[0].val_accuracy


def test_a_run_without_a_teacher_says_nothing_of_one_and_one_with_it_says_its_time(teacher: Path) -> None:
    plain, taught = finished(small_recipe()), finished(taught_recipe(teacher, **PAD))
    assert not isinstance(plain.task, Distilled)
    assert "teacher_seconds" not in plain.history[0].metrics()
    for each in taught.history:
        assert each.teacher_seconds is not None
        assert 0.0 < each.teacher_seconds < each.epoch_seconds
    older = plain.history[0].tree()
    del older["teacher_seconds"]
    assert EpochResult.from_tree(older) == plain.history[0], "a journal of an earlier version is read"


def test_a_loss_that_only_a_sure_teacher_makes_large_is_not_lost(teacher: Path, tmp_path: Path) -> None:
    weights = load_file(teacher / "model.safetensors")
    weights["head.weight"] *= 20_000.0
    save_file(weights, tmp_path / "model.safetensors")
    (tmp_path / "recipe.yaml").write_text((teacher / "recipe.yaml").read_text())
    run = finished(taught_recipe(tmp_path, optimizer__lr=1e-6, distillation__temperature=60.0))
    assert run.history[-1].train_loss > trainer.LOST_FACTOR * math.log(CLASSES)
    assert not run.diverged


# --- the map of features ------------------------------------------------------------------------------


def test_the_map_of_features_is_trained_and_is_no_part_of_the_network(teacher: Path) -> None:
    run = make_run(taught_recipe(teacher, **KINDS["features"]), data=data_set())
    assert isinstance(run.task, Distilled)
    learner = run.task.learner(run.model)
    assert isinstance(learner, Learner)
    assert learner.regressor.weight.shape == (64, 32), "from the 32 features of width 8 to the 64 of width 16"
    before = learner.regressor.weight.detach().clone()
    run.step()
    assert not torch.equal(before, learner.regressor.weight)
    assert run.weights().keys() == make_run(small_recipe(), data=data_set()).weights().keys()


@pytest.mark.parametrize("kind", ["geometric", "decayed"])
def test_rates_by_layer_and_averages_know_the_students_own_layers(teacher: Path, kind: str) -> None:
    values = {"model__layer_rates__kind": kind, "regularisation__averaging__kind": "ema"}
    run = finished(taught_recipe(teacher, **KINDS["features"], **values, model__freeze_epochs=1))
    assert not run.diverged


# --- what is remembered -------------------------------------------------------------------------------

IMAGES = 48
CASES: dict[str, tuple[dict[str, Any], list[int]]] = {
    "nothing random": ({}, [IMAGES + 1, 0, 0]),
    "cropped": (PAD, [IMAGES] * 3),
    "mixed": (MIXUP, [IMAGES] * 3),
    "sizes": ({"augmentation__size__kind": "progressive"}, [IMAGES] * 3),
    "one epoch": ({"loop__epochs": 1}, [IMAGES]),
    "frozen views": ({**PAD, "model__freeze_epochs": 2, "model__frozen_views": 1}, [IMAGES + 1, 0, IMAGES]),
}


@pytest.mark.parametrize(("values", "seen"), CASES.values(), ids=CASES)
def test_the_teacher_is_asked_again_only_if_an_image_looks_different(
    teacher: Path, values: dict[str, Any], seen: list[int]
) -> None:
    run = make_run(taught_recipe(teacher, **values), data=data_set())
    counts, totals = asked_of(run), []
    while not run.finished:
        counts.clear()
        run.step()
        totals.append(sum(counts))
    assert totals == seen


REMEMBERED: dict[str, dict[str, Any]] = {
    "logits": KINDS["logits"],
    "dkd": KINDS["dkd"],
    "features": KINDS["features"],
    "frozen views": {**PAD, "model__freeze_epochs": 2, "model__frozen_views": 1},
    "sampled, in parts": {"loop__sampling": "balanced", "loop__micro_batch": 5},
}


@pytest.mark.parametrize("values", REMEMBERED.values(), ids=REMEMBERED)
def test_a_run_without_memory_for_answers_is_the_same_and_says_so(
    teacher: Path, values: dict[str, Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Kernels may round answers to 48 images otherwise than answers to 16."""
    data = unequal_set() if "loop__sampling" in values else data_set()
    ours = finished(taught_recipe(teacher, **values), data)
    assert not caplog.records
    monkeypatch.setattr(host_memory, "available_bytes", lambda: 100)
    with caplog.at_level(logging.WARNING):
        theirs = finished(taught_recipe(teacher, **values), data)
    assert_alike(ours, theirs)
    said = [each.partition(":")[0] for each in caplog.messages]
    assert said.count("the teacher's answers are not remembered") == 1


def test_answers_of_the_same_batches_change_no_digit(teacher: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch is the whole part, so that it is computed as the block of all images is."""
    values = {"loop__batch_size": IMAGES, "loop__epochs": 4}
    remembered = finished(taught_recipe(teacher, **values))
    monkeypatch.setattr(host_memory, "available_bytes", lambda: 100)
    asked = finished(taught_recipe(teacher, **values))
    assert_alike(remembered, asked, tolerance=1e-6)


def test_a_probe_asks_the_teacher_and_leaves_the_run_as_it_was(teacher: Path) -> None:
    recipe = taught_recipe(teacher, **KINDS["features"])
    probed, plain = make_run(recipe, data=data_set()), make_run(recipe, data=data_set())
    with probed.probing():
        for window in probed.windows():
            probed.train_on(window, lr=1.0)
    for run in (probed, plain):
        while not run.finished:
            run.step()
    assert curve(probed.history) == curve(plain.history)


# --- resuming -----------------------------------------------------------------------------------------

RESUMED: list[dict[str, Any]] = [
    {},
    {**KINDS["dkd"], **PAD, **MIXUP, "model__dropout": 0.3},
    {**KINDS["features"], "regularisation__averaging__kind": "ema", "loop__micro_batch": 4},
]


@pytest.mark.slow("trains networks")
@pytest.mark.parametrize("values", RESUMED, ids=["remembered", "mixed", "hints"])
def test_a_resumed_run_is_the_one_that_never_stopped(
    teacher: Path, values: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit for bit, between epochs and in the midst of one."""
    monkeypatch.setattr(trainer, "SEGMENT_STEPS", 2)
    recipe = taught_recipe(teacher, **values, loop__batch_size=8)
    states: list[bytes] = []
    whole = make_run(
        recipe, data=data_set(), on_pause=lambda: states.append(checkpoint.to_bytes(whole.state_dict()))
    )
    while not whole.finished:
        whole.step()
        states.append(checkpoint.to_bytes(copy.deepcopy(whole.state_dict())))
    for state in (states[1], states[2], states[3]):
        part = make_run(recipe, data=data_set())
        part.load_state_dict(checkpoint.from_bytes(state))
        while not part.finished:
            part.step()
        assert curve(part.history) == curve(whole.history)
        assert all(map(torch.equal, part.weights().values(), whole.weights().values()))


OTHERS: dict[str, Callable[[], nn.Module]] = {"fp64": plain_net, "two heads": lambda: TwoHeads()}


class TwoHeads(nn.Module):
    """A network that answers with a second head in training."""

    def __init__(self) -> None:
        super().__init__()
        self.second, self.first = nn.Linear(64, CLASSES), plain_net().float()

    def forward(self, images: Tensor) -> Any:
        main = self.first(images)
        return (main, self.second(images.flatten(1))) if self.training else main


@pytest.mark.parametrize("net", OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize("kind", KINDS)
def test_students_of_other_kinds_are_taught(teacher: Path, net: Callable[[], nn.Module], kind: str) -> None:
    run = finished(taught_recipe(teacher, **KINDS[kind]), model=net())
    assert run.history[-1].train_loss < run.history[0].train_loss


# --- where nobody is to be asked ----------------------------------------------------------------------


@pytest.mark.slow("trains for its checks")
def test_the_checks_of_a_network_and_its_ways_of_use_ask_no_teacher(teacher: Path) -> None:
    recipe, data = taught_recipe(teacher, distillation__weight=1.0), data_set()
    subject = make_subject(recipe, data, None, ON_CPU)
    assert not isinstance(subject.plain_run(8).task, Distilled)
    assert in_fp32(recipe).distillation is None
    found = list(measure_endings(recipe, data=data))
    assert len(found) == len(endings_of(recipe))


def test_what_a_step_costs_follows_from_the_teacher_and_not_from_its_weight(teacher: Path) -> None:
    recipe = taught_recipe(teacher)
    other = recipe.with_values({"distillation.weight": 0.9, "distillation.temperature": 2.0})
    assert key_of_cost(recipe) == key_of_cost(other)
    assert key_of_cost(recipe) != key_of_cost(recipe.with_values({"distillation": None}))


def test_the_memory_of_a_step_counts_the_teacher(teacher: Path) -> None:
    large, plain = (make_run(each, data=data_set()) for each in (taught_recipe(teacher), small_recipe()))
    assert isinstance(large.task, Distilled)
    held = sum(each.nbytes for each in large.task.teacher.network.parameters())
    assert step_bytes(large) - step_bytes(plain) >= held
