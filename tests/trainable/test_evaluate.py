"""Scores, against plain loops over images."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from trainable.evaluate import Scores, evaluate, worst_scores
from trainable.ranks import Ranks

CPU = torch.device("cpu")


def score(logits: Tensor, labels: Tensor, classes: int, *, batch: int = 7, confusion: bool = True) -> Scores:
    batches = zip(logits.split(batch), labels.split(batch), strict=True)
    plain = torch.autocast("cpu", enabled=False)
    return evaluate(nn.Identity(), batches, classes, device=CPU, autocast=plain, confusion=confusion)


@pytest.fixture
def answers() -> tuple[Tensor, Tensor]:
    """Logits and labels of 60 images and 12 classes, of which class 5 never occurs."""
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
    assert got.metrics("val") == {
        "val_loss": got.loss,
        "val_accuracy": 1.0,
        "val_balanced_accuracy": 1.0,
    }


def test_a_model_is_scored_in_evaluation_mode_without_gradients() -> None:
    class Spy(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            assert not self.training
            assert torch.is_inference_mode_enabled()
            return images

    batches: Iterator[tuple[Tensor, Tensor]] = iter([(torch.eye(3), torch.arange(3))])
    plain = torch.autocast("cpu", enabled=False)
    assert evaluate(Spy().train(), batches, 3, device=CPU, autocast=plain).accuracy == 1.0


def test_half_logits_are_scored_in_full_precision() -> None:
    logits = torch.tensor([[10.0, 0.0], [0.0, 10.0]], dtype=torch.bfloat16)
    got = score(logits, torch.tensor([0, 1]), 2)
    assert got.loss == pytest.approx(math.log1p(math.exp(-10.0)), rel=1e-3)  # bf16 would round it to 0


def test_the_sums_of_all_ranks_are_scored(answers: tuple[Tensor, Tensor]) -> None:
    logits, labels = answers
    plain = torch.autocast("cpu", enabled=False)
    sums: list[Tensor] = []

    def collect(tensor: Tensor) -> Tensor:
        sums.append(tensor.clone())
        return sum(sums, torch.zeros_like(tensor))

    for rank, part in enumerate((slice(0, 50), slice(50, 60))):
        got = evaluate(
            nn.Identity(),
            [(logits[part], labels[part])],
            12,
            device=CPU,
            autocast=plain,
            ranks=Ranks(rank, 2, reduce=collect),
        )
    whole = score(logits, labels, 12)
    assert got.metrics("val") == pytest.approx(whole.metrics("val"))


def test_a_part_without_images_cannot_be_scored() -> None:
    with pytest.raises(ValueError, match="no images"):
        evaluate(nn.Identity(), [], 3, device=CPU, autocast=torch.autocast("cpu", enabled=False))


def test_lost_scores_are_finite_and_behind_guessing() -> None:
    lost = worst_scores(20)
    assert lost.finite
    assert lost.loss > math.log(20)
    assert lost.top5_accuracy == 0.0
    assert worst_scores(10).top5_accuracy is None
    assert not score(torch.full((4, 3), torch.nan), torch.zeros(4, dtype=torch.int64), 3).finite
