"""Tests what is found of networks that answer for each pixel, and of what they learn of masks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.trainable.alarms import alarms
from tests.trainable.tasks.segmentation.checks.mask_sets import (
    Array,
    data_of,
    sound_recipe,
    swapped,
    with_masks,
)
from trainable.bench import ON_CPU
from trainable.check import check, check_lessons, check_network, make_subject
from trainable.checks import one_batch
from trainable.checks.finding import CheckName, Finding
from trainable.data import DataSet
from trainable.models.small_networks import SmallUNet
from trainable.recipe import Recipe
from trainable.recipe.tasks import IGNORED
from trainable.tasks.segmentation.checks import learning as mask_teaching
from trainable.tasks.segmentation.checks.association import associate_masks
from trainable.tasks.segmentation.checks.learning import with_others_masks
from trainable.tasks.segmentation.checks.mask_checks import ceiling, initial_mask_loss

CPU = torch.device("cpu")
PATIENCE_SECONDS = 3600.0  # so long that the steps' limit ends a check, on a busy machine too


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    return sound_recipe(tmp_path_factory.mktemp("masks"))


@pytest.fixture(scope="module")
def data(recipe: Recipe) -> DataSet:
    return data_of(recipe)


@pytest.mark.slow("trains for its checks")
def test_a_sound_segmentation_raises_no_alarm(recipe: Recipe, data: DataSet) -> None:
    found = check(recipe, data=data, seconds=PATIENCE_SECONDS, bench=ON_CPU)
    assert alarms(found) == {}
    assert {"learning", "one batch", "shuffled masks", "resolution"} <= {each.check for each in found}
    assert not [each for each in found if each.what.startswith("not checked") and each.check != "parts alike"]


@pytest.mark.slow("trains for its checks")
def test_nothing_is_learnt_from_the_masks_of_other_images(
    recipe: Recipe, data: DataSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mask_teaching, "STEPS", 100)
    subject = make_subject(recipe, with_masks(data, swapped), None, ON_CPU)
    found = next(check_lessons(subject, PATIENCE_SECONDS))
    assert found.check == "learning"
    assert found.level != "passed"


def test_too_few_validation_masks_say_nothing(recipe: Recipe, data: DataSet) -> None:
    def one_left(masks: list[Array]) -> list[Array]:
        return [masks[0], *(torch.full(each.shape, IGNORED).byte().numpy() for each in masks[1:])]

    subject = make_subject(recipe, with_masks(data, one_left, "validation"), None, ON_CPU)
    (found,) = check_lessons(subject, PATIENCE_SECONDS)
    assert found.what == "not checked: too few validation images have masks that count: 1"


# --- networks of a person's own -------------------------------------------------------------------------


class OfUNet(nn.Module):
    """A network that computes something else of a U-Net's logits."""

    def __init__(self, change: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.body = SmallUNet(levels=2, width=8, classes=3, channels=3)
        self.change = change

    def forward(self, images: Tensor) -> Tensor:
        return self.change(self.body(images))


@pytest.mark.slow("trains for its checks")
@pytest.mark.parametrize(
    ("change", "found_by", "level", "what"),
    [
        (lambda logits: logits.softmax(1), "outputs", "warning", "outputs are probabilities"),
        (
            lambda logits: logits.mean((2, 3)),
            "outputs",
            "error",
            "expected (32, 3, h, w), h and w at most 48",
        ),
        (lambda logits: logits - logits.mean(0), "outputs", "warning", "depends on the other images"),
        (
            lambda logits: logits.detach() + logits.mean((2, 3), True),
            "one batch",
            "error",
            "cannot be learnt",
        ),
        (lambda logits: 400.0 * logits, "initial loss", "error", "before training is"),
        (lambda logits: functional.avg_pool2d(logits, 16), "resolution", "warning", "outputs of 3 x 3"),
    ],
)
def test_faults_of_networks_are_found(
    recipe: Recipe,
    data: DataSet,
    change: Callable[[Tensor], Tensor],
    found_by: CheckName,
    level: str,
    what: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(one_batch, "STEPS", 50)
    subject = make_subject(recipe, data, OfUNet(change), ON_CPU)
    found: dict[CheckName, Finding] = {}
    for each in check_network(subject, PATIENCE_SECONDS if found_by == "one batch" else 1.0):
        if each.level in ("error", "warning"):
            found.setdefault(each.check, each)
        if each.check == found_by:
            break
    assert found[found_by].level == level
    assert what in found[found_by].what


@pytest.mark.slow("trains for its checks")
def test_a_network_that_knows_the_masks_already_is_found_by_shuffled_ones(
    recipe: Recipe, data: DataSet
) -> None:
    class Knowing(nn.Module):
        """A network that answers by the grey level of a pixel, which tells these classes, and learns
        nothing."""

        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(3))

        def forward(self, images: Tensor) -> Tensor:
            level = functional.avg_pool2d(images.mean(1), 5, 1, 2)
            logits = 8.0 * torch.stack([0.6 - level.abs(), level - 0.6, -level - 0.6], 1)
            return logits + 1e-6 * self.scale[:, None, None]

    subject = make_subject(recipe, data, Knowing(), ON_CPU)
    found = {each.check: each for each in check_network(subject, 5.0)}
    assert found["shuffled masks"].level == "error"


@pytest.mark.slow("trains for its checks")
def test_a_network_with_two_heads_is_checked(recipe: Recipe, data: DataSet) -> None:
    class TwoHeads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = SmallUNet(levels=2, width=8, classes=3, channels=3)
            self.other = nn.Conv2d(3, 3, 1)

        def forward(self, images: Tensor) -> Any:
            logits = self.body(images)
            return (logits, self.other(logits)) if self.training else logits

    subject = make_subject(recipe, data, TwoHeads(), ON_CPU)
    found = set[CheckName]()
    for each in check_network(subject, PATIENCE_SECONDS):
        if each.level == "passed":
            found.add(each.check)
        if each.check == "first steps":  # the last that does not train
            break
    assert {"outputs", "resolution", "initial loss", "training step", "first steps"} <= found


# --- what is compared -----------------------------------------------------------------------------------


def masks_and_logits(sharpness: float) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    masks = torch.randint(3, (12, 4, 4), generator=generator).repeat_interleave(4, 1).repeat_interleave(4, 2)
    return sharpness * functional.one_hot(masks, 3).movedim(-1, 1).float(), masks


def test_answers_are_compared_with_the_masks_of_all_other_images() -> None:
    logits, masks = masks_and_logits(9.0)
    known = associate_masks(logits, masks)
    assert known.mean_iou == 1.0
    assert known.is_knowledge
    assert known.gain > 0.99
    overlap = [
        float(((masks[i] == c) & (masks[j] == c)).sum())
        for i in range(12)
        for j in range(12)
        if i != j
        for c in range(3)
    ]
    either = [
        float(((masks[i] == c) | (masks[j] == c)).sum())
        for i in range(12)
        for j in range(12)
        if i != j
        for c in range(3)
    ]
    by_class = [sum(overlap[c::3]) / sum(either[c::3]) for c in range(3)]
    assert known.chance == pytest.approx(sum(by_class) / 3)


def test_answers_for_other_images_know_nothing() -> None:
    logits, masks = masks_and_logits(2.0)
    assert not associate_masks(logits.roll(1, 0), masks).is_sure


def test_an_ignored_pixel_changes_no_comparison() -> None:
    logits, masks = masks_and_logits(2.0)
    masks[:, :8] = IGNORED
    wrong = logits.clone()
    wrong[:, :, :8] = 50.0 * torch.rand(12, 3, 8, 16)
    assert associate_masks(logits, masks) == associate_masks(wrong, masks)


def test_the_ceiling_of_outputs_is_that_of_masks_at_their_size() -> None:
    masks = torch.zeros(2, 16, 16, dtype=torch.int64)
    masks[:, :8] = 1
    assert ceiling(masks, (16, 16), 2) == 1.0
    assert ceiling(masks, (4, 4), 2) == 1.0  # the border lies between two outputs
    masks[:, 4, 4] = 2
    assert ceiling(masks, (4, 4), 3) < 0.7  # a single pixel is lost


def test_every_window_gets_the_mask_of_another() -> None:
    windows = torch.arange(7).byte().view(7, 1, 1, 1).expand(7, 2, 4, 4).numpy().copy()
    mixed = with_others_masks(windows, seed=0)
    assert (mixed[:, 0] == windows[:, 0]).all()
    assert not (mixed[:, 1] == windows[:, 1]).any()
    assert sorted(mixed[:, 1, 0, 0].tolist()) == list(range(7))


@pytest.mark.parametrize(
    ("loss", "entropy", "level"),
    [
        (0.43, 0.28, "passed"),  # by luck it answers the larger class everywhere
        (0.2, 0.28, "warning"),
        (1.3, 0.69, "passed"),
        (2.0, 0.69, "note"),
        (8.0, 0.69, "error"),
        (float("nan"), 0.69, "error"),
    ],
)
def test_a_first_loss_of_masks_is_compared_with_guessing_and_with_the_shares_of_classes(
    loss: float, entropy: float, level: str
) -> None:
    assert initial_mask_loss(loss, 2, entropy).level == level
