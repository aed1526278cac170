"""Tests scores against plain loops over images."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from trainable.ranks import Ranks
from trainable.recipe.training import Evaluation
from trainable.tasks.classification.task import LabelTally
from trainable.training.answers import Answers
from trainable.training.evaluate import (
    PLAIN,
    BatchLimit,
    Scores,
    View,
    evaluate,
    make_views,
)
from trainable.training.evaluate import (
    answers as answers_of,
)
from trainable.training.precision import Compute

CPU = torch.device("cpu")
FP32 = Compute(CPU, "fp32")


def score(logits: Tensor, labels: Tensor, classes: int, *, batch: int = 7, confusion: bool = True) -> Scores:
    batches = zip(logits.split(batch), labels.split(batch), strict=True)
    return evaluate(nn.Identity(), batches, LabelTally(classes, CPU, confusion), compute=FP32)


@pytest.fixture
def answers() -> tuple[Tensor, Tensor]:
    """Return logits and labels of 60 images and 12 classes, of which class 5 never occurs."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 11, (60,), generator=generator)
    labels[labels == 5] = 11
    return torch.randn(60, 12, generator=generator) + 2 * nn.functional.one_hot(labels, 12), labels


def test_scores_equal_a_loop_over_images(answers: tuple[Tensor, Tensor]) -> None:
    logits, labels = answers
    right, in_top5 = [], []
    recalls: dict[int, list[bool]] = {}
    confusion = [[0] * 12 for _ in range(12)]
    losses = []
    for row, label in zip(logits.tolist(), labels.tolist(), strict=True):
        ranked = sorted(range(12), key=lambda each: -row[each])
        right.append(ranked[0] == label)
        in_top5.append(label in ranked[:5])
        recalls.setdefault(label, []).append(ranked[0] == label)
        confusion[label][ranked[0]] += 1
        losses.append(math.log(sum(math.exp(each) for each in row)) - row[label])
    got = score(logits, labels, 12)
    assert got.loss == pytest.approx(sum(losses) / 60, rel=1e-6)
    assert got.accuracy == sum(right) / 60
    assert got.balanced_accuracy == pytest.approx(sum(sum(r) / len(r) for r in recalls.values()) / 11)
    assert got.top5_accuracy == sum(in_top5) / 60
    assert got.confusion == tuple(map(tuple, confusion))
    assert got.images == 60
    assert got.accuracy != got.balanced_accuracy != got.top5_accuracy


def test_the_size_of_batches_does_not_matter(answers: tuple[Tensor, Tensor]) -> None:
    whole, parts = score(*answers, 12, batch=60), score(*answers, 12, batch=1)
    assert parts.loss == pytest.approx(whole.loss, rel=1e-7)
    assert (parts.accuracy, parts.confusion) == (whole.accuracy, whole.confusion)


def test_ten_classes_have_no_top5_and_confusion_is_only_made_on_request() -> None:
    got = score(torch.eye(10), torch.arange(10), 10, confusion=False)
    assert got.top5_accuracy is None
    assert got.confusion is None
    assert got.metrics("val") == {"val_loss": got.loss, "val_accuracy": 1.0, "val_balanced_accuracy": 1.0}


def test_a_model_is_scored_in_evaluation_mode_without_gradients() -> None:
    class Spy(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            assert not self.training
            assert torch.is_inference_mode_enabled()
            return images

    batches: Iterator[tuple[Tensor, Tensor]] = iter([(torch.eye(3), torch.arange(3))])
    assert evaluate(Spy().train(), batches, LabelTally(3, CPU), compute=FP32).accuracy == 1.0


def test_half_logits_are_scored_in_full_precision() -> None:
    logits = torch.tensor([[10.0, 0.0], [0.0, 10.0]], dtype=torch.bfloat16)
    got = score(logits, torch.tensor([0, 1]), 2)
    assert got.loss == pytest.approx(math.log1p(math.exp(-10.0)), rel=1e-3)  # bf16 would round it to 0


def test_the_sums_of_all_ranks_are_scored(answers: tuple[Tensor, Tensor]) -> None:
    logits, labels = answers
    sums: list[Tensor] = []

    def collect(tensor: Tensor) -> Tensor:
        sums.append(tensor.clone())
        return sum(sums, torch.zeros_like(tensor))

    for rank, part in enumerate((slice(0, 50), slice(50, 60))):
        got = evaluate(
            nn.Identity(),
            [(logits[part], labels[part])],
            LabelTally(12, CPU),
            compute=Compute(CPU, "fp32", Ranks(rank, 2, reduce=collect)),
        )
    whole = score(logits, labels, 12)
    assert got.metrics("val") == pytest.approx(whole.metrics("val"))


def test_a_part_without_images_cannot_be_scored() -> None:
    with pytest.raises(ValueError, match="no images"):
        evaluate(nn.Identity(), [], LabelTally(3, CPU), compute=FP32)


# --- several views ------------------------------------------------------------------------------------


class Pooled(nn.Module):
    """A network whose logits depend on an image's size and on which side is bright; it counts what it saw."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[int, int]] = []

    def forward(self, images: Tensor) -> Tensor:
        self.seen.append((images.shape[-1], len(images)))
        left, right = images[..., : images.shape[-1] // 2], images[..., images.shape[-1] // 2 :]
        return torch.stack([left.mean((1, 2, 3)), 2 * right.mean((1, 2, 3)), images.amax((1, 2, 3))], dim=1)


def pictures(count: int = 5, side: int = 16) -> Tensor:
    return torch.rand(count, 1, side, side, generator=torch.Generator().manual_seed(1))


def test_the_scores_of_several_views_are_those_of_their_mean_probability() -> None:
    images, labels, model = pictures(), torch.tensor([0, 1, 2, 1, 0]), Pooled()
    views = make_views(Evaluation(flip=True, scales=(1.0, 1.5)), 16)
    got = evaluate(
        model, [(images, labels)], LabelTally(3, CPU), compute=FP32, answer=partial(answers_of, views=views)
    )
    larger = nn.functional.interpolate(images, size=(24, 24), mode="bilinear", align_corners=False)
    shown = [images, images.flip(-1), larger, larger.flip(-1)]
    mean = torch.stack([model(each).softmax(1) for each in shown]).mean(0)
    expected = -mean[torch.arange(5), labels].log().mean()
    assert got.loss == pytest.approx(expected.item(), rel=1e-5)
    assert got.accuracy == (mean.argmax(1) == labels).double().mean().item()


def test_one_plain_view_is_the_image_itself() -> None:
    assert make_views(Evaluation(), 28) == (PLAIN,)
    assert make_views(Evaluation(flip=True), 28) == (View(None, False), View(None, True))
    assert make_views(Evaluation(scales=(1.0, 1.05, 0.95)), 224) == (PLAIN,)


@pytest.mark.parametrize(
    ("side", "scale", "size"), [(28, 1.25, 36), (28, 0.5, 16), (224, 1.1, 256), (64, 0.5, 32)]
)
def test_sizes_of_views_are_multiples_that_networks_take(side: int, scale: float, size: int) -> None:
    assert make_views(Evaluation(scales=(scale,)), side) == (View(size),)


class Small(Pooled):
    """A network without memory for more than two images."""

    def __init__(self) -> None:
        super().__init__()
        self.refused: list[int] = []

    def forward(self, images: Tensor) -> Tensor:
        if len(images) > 2:
            self.refused.append(len(images))
            raise torch.OutOfMemoryError("planted")
        return super().forward(images)


def test_a_batch_that_does_not_fit_is_scored_in_halves() -> None:
    images, labels, model = pictures(7), torch.tensor([0, 1, 2, 1, 0, 2, 2]), Small()
    got = evaluate(model, [(images, labels)], LabelTally(3, CPU, True), compute=FP32)
    assert got == evaluate(Pooled(), [(images, labels)], LabelTally(3, CPU, True), compute=FP32)
    assert [count for _, count in model.seen] == [2, 2, 2, 1]


def test_memory_runs_out_once_however_many_batches_are_scored() -> None:
    model, limit = Small(), BatchLimit()
    batches = [(pictures(8), torch.zeros(8, dtype=torch.int64))] * 3
    for _ in range(2):
        evaluate(model, batches, LabelTally(3, CPU), compute=FP32, limit=limit)
    assert model.refused == [8, 4]
    assert [count for _, count in model.seen] == [2] * 24


def test_a_room_that_pads_computes_as_many_images_as_before_and_scores_only_its_own() -> None:
    batches = [(pictures(4), torch.tensor([0, 1, 2, 1])), (pictures(2), torch.tensor([2, 0]))]
    model, limit = Pooled(), BatchLimit(pads=True)
    got = evaluate(model, batches, LabelTally(3, CPU, True), compute=FP32, limit=limit)
    assert got == evaluate(Pooled(), batches, LabelTally(3, CPU, True), compute=FP32)
    assert [count for _, count in model.seen] == [4, 4]
    assert got.images == 6


def test_a_room_that_pads_computes_no_more_images_than_fit() -> None:
    labels, model, limit = torch.zeros(7, dtype=torch.int64), Small(), BatchLimit(pads=True)
    evaluate(model, [(pictures(7), labels)] * 2, LabelTally(3, CPU), compute=FP32, limit=limit)
    assert model.refused == [7, 4]
    assert [count for _, count in model.seen] == [2] * 8


def test_one_image_that_does_not_fit_is_an_error() -> None:
    class Full(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            raise torch.OutOfMemoryError("planted")

    with pytest.raises(torch.OutOfMemoryError):
        evaluate(Full(), [(pictures(), torch.zeros(5, dtype=torch.int64))], LabelTally(3, CPU), compute=FP32)


def test_the_most_frequent_confusions_are_the_same_with_and_without_a_matrix(
    answers: tuple[Tensor, Tensor],
) -> None:
    logits, labels = answers
    matrix = score(logits, labels, 12)
    rows = Scores(0.0, 0.0, 0.0, None, 60, answers=Answers.of_logits(logits.double(), labels))

    found = matrix.most_confused(1_000)

    assert found == rows.most_confused(1_000)
    assert found[:3] == matrix.most_confused(3)
    assert sum(each.times for each in found) == (logits.argmax(1) != labels).sum()
    assert [each.times for each in found] == sorted((each.times for each in found), reverse=True)
