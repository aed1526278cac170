"""Tests that each planted fault is found by the check that is meant to find it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tests.trainable.alarms import alarms
from tests.trainable.small_images import truncate, write_noise_jpeg
from tests.trainable.small_runs import CLASSES, data_set, finished, plain_net, small_recipe
from trainable.bench import ON_CPU
from trainable.check import check, check_data, check_lessons, check_network, make_subject
from trainable.checks.finding import CheckName, Finding, guarded, passed, unchecked
from trainable.data import ArrayPart, DataSet
from trainable.data.assembly import load
from trainable.data.loading import Loader
from trainable.errors import DataError
from trainable.recipe import Recipe
from trainable.run import make_run
from trainable.training import optim

Array = NDArray[Any]

PATIENCE_SECONDS = 3600.0  # so long that the steps' limit ends a check, on a busy machine too


def sound_data() -> DataSet:
    return data_set(240, 120, 120)


def checked(recipe: Recipe, model: nn.Module | None = None, data: DataSet | None = None) -> list[Finding]:
    return check(recipe, data=data or sound_data(), model=model, seconds=PATIENCE_SECONDS)


def in_part(
    found_by: CheckName, recipe: Recipe, data: DataSet, model: nn.Module | None = None
) -> list[Finding]:
    """Return what one part of the gate finds, the part with this check: the whole takes seconds a fault."""
    subject = make_subject(recipe, data, model, ON_CPU)
    if found_by in ("learning", "horizontal flip"):
        return list(check_lessons(subject, PATIENCE_SECONDS))
    if found_by in OF_THE_NETWORK:
        return list(check_network(subject, PATIENCE_SECONDS))
    return list(check_data(subject))


OF_THE_NETWORK: tuple[CheckName, ...] = (
    *("outputs", "initial loss", "bias before norm", "unused parameters", "frozen parameters"),
    *("training step", "first steps", "one batch", "shuffled labels"),
)


def with_part(
    data: DataSet, name: str, images: Callable[[Array], Array] | None = None, labels: Array | None = None
) -> DataSet:
    """Return a data set with another part; what `info` says of the parts stays as it was."""
    part = getattr(data, name)
    assert isinstance(part, ArrayPart)
    changed = ArrayPart(part.images if images is None else images(part.images.copy()), part.labels)
    if labels is not None:
        changed = replace(changed, labels=labels.astype(np.int64))
    return replace(data, train=changed) if name == "train" else replace(data, validation=changed)


# --- the faults: each makes a data set or a network of a sound one ------------------------------------


def shifted_labels(data: DataSet) -> DataSet:
    """Give each image the label of another, as when one list was sorted and the other was not."""
    return with_part(data, "train", labels=np.sort(data.train.labels))


def shifted_validation_labels(data: DataSet) -> DataSet:
    return with_part(data, "validation", labels=np.sort(data.validation.labels))


def not_normalised(data: DataSet) -> DataSet:
    return replace(data, info=replace(data.info, mean=(0.0,), std=(1.0,)))


def statistics_of_other_images(data: DataSet) -> DataSet:
    return replace(data, info=replace(data.info, mean=(0.48,), std=(0.22,)))


def leaking_split(data: DataSet) -> DataSet:
    assert isinstance(data.train, ArrayPart)
    first = data.train.images[:12].copy()

    def leaked(images: Array) -> Array:
        images[:12] = first
        return images

    labels = data.validation.labels.copy()
    labels[:12] = data.train.labels[:12]
    return with_part(data, "validation", leaked, labels)


def two_labels(data: DataSet) -> DataSet:
    def doubled(images: Array) -> Array:
        images[1] = images[0]
        return images

    return with_part(data, "train", doubled)  # images 0 and 1 are of different classes


def class_missing_in_validation(data: DataSet) -> DataSet:
    return with_part(data, "validation", labels=data.validation.labels % 2)


def class_missing_in_training(data: DataSet) -> DataSet:
    return with_part(data, "train", labels=data.train.labels % 2)


def one_class_rare(data: DataSet) -> DataSet:
    assert isinstance(data.train, ArrayPart)
    chosen = np.flatnonzero((data.train.labels != 2) | (np.arange(len(data.train)) < 15))
    train = ArrayPart(data.train.images[chosen], data.train.labels[chosen])
    return replace(data, train=train, info=replace(data.info, train_images=len(train)))


def tiny_validation(data: DataSet) -> DataSet:
    assert isinstance(data.validation, ArrayPart)
    few = ArrayPart(data.validation.images[:30], data.validation.labels[:30])
    return replace(data, validation=few, info=replace(data.info, validation_images=30))


def all_black(data: DataSet) -> DataSet:
    return with_part(data, "train", np.zeros_like)


def some_black(data: DataSet) -> DataSet:
    def blackened(images: Array) -> Array:
        images[::20] = 0
        return images

    return with_part(data, "train", blackened)


def cast_to_whole_numbers(data: DataSet) -> DataSet:
    return with_part(data, "train", lambda images: (images / 255).round().astype(np.uint8))


def inverted_validation(data: DataSet) -> DataSet:
    return with_part(data, "validation", lambda images: 255 - images)


def darker_validation(data: DataSet) -> DataSet:
    return with_part(data, "validation", lambda images: images // 4)


def flips_of_what_has_sides(data: DataSet) -> DataSet:
    """Allows flips where the class is the position of a column: mirrored, it is another class's."""
    return replace(data, info=replace(data.info, flips=("horizontal",)))


DATA_FAULTS: list[tuple[Callable[[DataSet], DataSet], CheckName]] = [
    (shifted_labels, "learning"),
    (shifted_validation_labels, "learning"),
    (not_normalised, "normalisation"),
    (statistics_of_other_images, "normalisation"),
    (leaking_split, "duplicates"),
    (two_labels, "contradictions"),
    (class_missing_in_validation, "class balance"),
    (class_missing_in_training, "class balance"),
    (one_class_rare, "class balance"),
    (tiny_validation, "validation size"),
    (all_black, "pixel values"),
    (some_black, "pixel values"),
    (cast_to_whole_numbers, "pixel values"),
    (inverted_validation, "parts alike"),
    (darker_validation, "parts alike"),
    (flips_of_what_has_sides, "horizontal flip"),
]


class Changed(nn.Module):
    """A sound net that changes its logits, or does something beside them."""

    def __init__(self, change: Callable[[Tensor], Tensor] = lambda logits: logits) -> None:
        super().__init__()
        self.net = plain_net().float()
        self.change = change

    def forward(self, images: Tensor) -> Tensor:
        return self.change(self.net(images))


def with_unused_layer() -> nn.Module:
    net = Changed()
    net.left_out = nn.Linear(4, 4)
    return net


def with_bias_before_norm() -> nn.Module:
    layers = [nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, CLASSES)]
    return nn.Sequential(*layers)


def frozen_body() -> nn.Module:
    net = plain_net().float()
    assert isinstance(net, nn.Sequential)
    net[0].requires_grad_(False)
    return net


def with_large_weights() -> nn.Module:
    net = plain_net().float()
    with torch.no_grad():
        for each in net.parameters():
            each.mul_(10.0)
    return net


def dead() -> nn.Module:
    """Return a net whose ReLU never opens."""
    net = plain_net().float()
    assert isinstance(net, nn.Sequential)
    assert isinstance(net[0], nn.Conv2d)
    assert net[0].bias is not None
    nn.init.constant_(net[0].bias, -1000.0)
    return nn.Sequential(
        net, nn.Linear(CLASSES, CLASSES), nn.Threshold(1e9, 0.0), nn.Linear(CLASSES, CLASSES)
    )


class Remembering(nn.Module):
    """A network that adds up what it saw, batch after batch, and answers by it."""

    def __init__(self) -> None:
        super().__init__()
        self.net = plain_net().float()
        self.seen: Tensor | float = 0.0

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.net(images)
        if self.training:
            self.seen = self.seen + 3.0 * logits.detach().mean(0)
        return logits + self.seen


def knowing() -> nn.Module:
    """Return a net that was trained on these images, and is now to be trained on them again."""
    net = plain_net().float()
    run = make_run(small_recipe({"optimizer.lr": 0.02, "loop.epochs": 3}), data=sound_data(), model=net)
    finished(run)
    return net


class ForgetsShape(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(5, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(images.flatten(1))
        return logits


MODEL_FAULTS: list[tuple[str, Callable[[], nn.Module], CheckName]] = [
    ("a layer without use", with_unused_layer, "unused parameters"),
    ("a bias before a norm", with_bias_before_norm, "bias before norm"),
    ("a frozen body", frozen_body, "frozen parameters"),
    ("a softmax at the end", lambda: Changed(lambda logits: logits.softmax(1)), "outputs"),
    ("a softmax over the batch", lambda: Changed(lambda logits: 9 * logits.softmax(0)), "outputs"),
    ("nan", lambda: Changed(lambda logits: logits / 0.0 * 0.0), "outputs"),
    ("a forward that fails", ForgetsShape, "outputs"),
    ("large weights", with_large_weights, "initial loss"),
    ("a dead net", dead, "one batch"),
    ("a constant answer", lambda: Changed(lambda logits: logits * 1e-9), "one batch"),
    ("a memory between batches", Remembering, "training step"),
    ("labels that are known", knowing, "initial loss"),
]

RECIPE_FAULTS: list[tuple[dict[str, Any], CheckName]] = [
    ({"optimizer.lr": 300.0}, "first steps"),
    ({"optimizer.lr": 300.0}, "one batch"),
    ({"optimizer.lr": 1e-7}, "one batch"),
]


@pytest.mark.slow("trains for its checks")
@pytest.mark.parametrize(("fault", "found_by"), DATA_FAULTS)
def test_a_fault_of_the_data_is_found_by_the_check_that_is_meant_to(
    fault: Callable[[DataSet], DataSet], found_by: CheckName
) -> None:
    found = alarms(in_part(found_by, small_recipe(), fault(sound_data())))
    assert found_by in found, sorted(found)
    assert found[found_by].means
    assert found[found_by].do or found[found_by].advice


@pytest.mark.slow("trains for its checks")
@pytest.mark.parametrize(
    ("model", "found_by"), [fault[1:] for fault in MODEL_FAULTS], ids=[fault[0] for fault in MODEL_FAULTS]
)
def test_a_fault_of_the_network_is_found_by_the_check_that_is_meant_to(
    model: Callable[[], nn.Module], found_by: CheckName
) -> None:
    recipe = small_recipe({"optimizer.lr": 0.02})
    found = alarms(in_part(found_by, recipe, sound_data(), model()))
    assert found_by in found, sorted(found)


@pytest.mark.slow("trains for its checks")
@pytest.mark.parametrize(("values", "found_by"), RECIPE_FAULTS)
def test_a_rate_out_of_bounds_is_found_and_is_no_error_of_the_network(
    values: dict[str, Any], found_by: CheckName
) -> None:
    found = alarms(in_part(found_by, small_recipe(values), sound_data()))
    assert found[found_by].level == "warning"
    assert "lr-find" in found[found_by].do


@pytest.mark.slow("trains for its checks")
def test_a_head_that_learns_alone_from_a_random_body_is_found() -> None:
    found = alarms(in_part("frozen parameters", small_recipe({"model.freeze_epochs": 1}), sound_data()))
    assert found["frozen parameters"].what.startswith("in 1 of ")
    assert found["frozen parameters"].level == "warning"


@pytest.mark.slow("trains for its checks")
def test_gradients_that_nobody_sets_to_zero_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.optim.Optimizer, "zero_grad", lambda self, set_to_none=True: None)
    found = alarms(in_part("training step", small_recipe(), sound_data()))
    assert found["training step"].level == "error"
    assert "never zeroed" in found["training step"].means


@pytest.mark.slow("trains for its checks")
def test_an_optimizer_that_does_not_step_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optim.SGD, "step", lambda self, closure=None: None)
    found = alarms(in_part("training step", small_recipe(), sound_data()))
    assert found["training step"].level == "error"
    assert "do not move" in found["training step"].what


@pytest.mark.slow("trains for its checks")
def test_true_labels_that_reach_training_past_the_shuffled_ones_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each image's label is read off the image, as if the loader had it from elsewhere."""
    normal = Loader.images_and_targets

    def from_elsewhere(self: Loader, pixels: Tensor, name: Any, batch: Array) -> tuple[Tensor, Tensor]:
        part = self.parts[name]
        if not isinstance(part, ArrayPart):
            return normal(self, pixels, name, batch)
        columns = part.images[batch][:, 0, :, :].astype(float).mean(1)
        return pixels, torch.from_numpy(columns[:, 0 : 2 * CLASSES : 2].argmax(1))

    monkeypatch.setattr(Loader, "images_and_targets", from_elsewhere)
    found = alarms(in_part("shuffled labels", small_recipe({"model.width": 16}), sound_data()))
    assert found["shuffled labels"].level == "error"


@pytest.mark.slow("trains for its checks")
@pytest.mark.parametrize("net", [None, plain_net], ids=["resnet_small", "a net of one's own in fp64"])
def test_sound_data_with_a_sound_net_raise_no_alarm(net: Callable[[], nn.Module] | None) -> None:
    findings = checked(small_recipe({"optimizer.lr": 0.02}), net() if net else None)
    assert alarms(findings) == {}
    assert {finding.check for finding in findings} >= {"one batch", "learning", "shuffled labels", "loader"}


@pytest.mark.slow("trains for its checks")
def test_what_is_checked_stays_as_it_was_and_twice_gives_the_same() -> None:
    data, net = sound_data(), plain_net()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    state = torch.get_rng_state()
    findings = [checked(small_recipe(), net, data) for _ in range(2)]
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    first, second = ([each for each in run if each.check != "loader"] for run in findings)
    assert first == second


@pytest.mark.slow("trains for its checks")
def test_the_recipe_of_the_gate_is_not_what_is_returned() -> None:
    recipe = small_recipe()
    checked(recipe)
    assert recipe == small_recipe()
    assert isinstance(recipe, Recipe)


def test_images_that_cannot_be_decoded_are_one_error_and_the_other_checks_are_made(tmp_path: Path) -> None:
    for number in range(24):
        write_noise_jpeg(tmp_path / "ab"[number % 2] / f"{number:02}.jpg", seed=number, size=8)
    recipe = small_recipe({"data.path": str(tmp_path), "data.in_memory": False, "data.image_size": 8})
    data = load(recipe.data)
    train = data.selections["train"]
    truncate(tmp_path / train.source.name(int(train.indices[0])))
    found = check(recipe, data=data, seconds=1.0)
    (error,) = (each for each in found if each.level == "error" and each.check == "decoding")
    assert "cannot be decoded" in error.what
    assert "`tunebook check DATA --full` names all" in error.do
    levels = {each.check: each.level for each in found}
    assert levels["class balance"] != "error"
    missing = unchecked("duplicates", "an image cannot be decoded", "see decoding")
    assert missing in found
    assert {"groups", "accuracy"} <= levels.keys()


def test_what_a_person_is_to_mend_is_a_finding_of_the_check_that_met_it() -> None:
    def fail() -> Iterator[Finding]:
        yield passed("groups", "no groups")
        raise DataError("data.group: nothing captured")

    first, second = guarded("groups", fail)
    assert first.level == "passed"
    assert (second.check, second.level) == ("groups", "error")
    assert "the check cannot be made: data.group: nothing captured" in second.what
