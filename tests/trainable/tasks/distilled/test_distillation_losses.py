"""Tests what a student loses by its distance to a teacher, against the papers' formulas written out."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as some
from torch import Tensor

from trainable.recipe.distillation import DecoupledTaught, FeaturesTaught, LogitsTaught
from trainable.tasks.distilled.losses import decoupled_divergence, hint_distance, softened_divergence
from trainable.training.task import Compared

TEMPERATURES = (1.0, 4.0)


def logits(*shape: int, seed: int = 0) -> Tensor:
    return 3.0 * torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def softmax(numbers: list[float], temperature: float) -> list[float]:
    powers = [math.exp(each / temperature) for each in numbers]
    return [each / sum(powers) for each in powers]


def divergence(theirs: list[float], ours: list[float]) -> float:
    return sum(p * math.log(p / q) for p, q in zip(theirs, ours, strict=True))


def decoupled(theirs: list[float], ours: list[float], true: int) -> tuple[float, float]:
    """Return TCKD and NCKD of probabilities: of the true class against all others, and among the others."""
    of_target = divergence([theirs[true], 1 - theirs[true]], [ours[true], 1 - ours[true]])
    others = [number for number in range(len(ours)) if number != true]
    mine = [ours[number] / (1 - ours[true]) for number in others]
    its = [theirs[number] / (1 - theirs[true]) for number in others]
    return of_target, divergence(its, mine)


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_softened_divergence_equals_a_loop_over_images_and_classes(temperature: float) -> None:
    student, teacher = logits(5, 4), logits(5, 4, seed=1)
    expected = [
        temperature**2 * divergence(softmax(theirs, temperature), softmax(ours, temperature))
        for ours, theirs in zip(student.tolist(), teacher.tolist(), strict=True)
    ]
    torch.testing.assert_close(
        softened_divergence(student, teacher, temperature), torch.tensor(expected).double()
    )


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_decoupled_divergence_equals_a_loop_over_images_and_classes(temperature: float) -> None:
    student, teacher, truth = logits(6, 4), logits(6, 4, seed=1), torch.tensor([0, 1, 2, 3, 0, 2])
    expected = []
    for ours, theirs, true in zip(student.tolist(), teacher.tolist(), truth.tolist(), strict=True):
        target, others = decoupled(softmax(theirs, temperature), softmax(ours, temperature), true)
        expected.append(temperature**2 * (0.5 * target + 8.0 * others))
    found = decoupled_divergence(Compared(student, teacher, truth), temperature, alpha=0.5, beta=8.0)
    torch.testing.assert_close(found, torch.tensor(expected).double())


def test_the_divergence_is_that_of_the_target_and_the_teachers_doubt_times_that_of_the_others() -> None:
    """This is equation 7 of arXiv 2203.08679."""
    student, teacher, truth = logits(50, 7), logits(50, 7, seed=1), torch.arange(50) % 7
    target = decoupled_divergence(Compared(student, teacher, truth), 3.0, alpha=1.0, beta=0.0)
    others = decoupled_divergence(Compared(student, teacher, truth), 3.0, alpha=0.0, beta=1.0)
    doubt = 1.0 - (teacher / 3.0).softmax(1).gather(1, truth[:, None])[:, 0]
    torch.testing.assert_close(target + doubt * others, softened_divergence(student, teacher, 3.0))


def test_maps_have_the_sum_over_the_pixels_that_count_divided_by_all() -> None:
    student, teacher = logits(2, 3, 2, 4), logits(2, 3, 2, 4, seed=1)
    counted = torch.tensor([[[True, False, True, True], [False, True, True, False]], [[False] * 4] * 2])
    truth = torch.where(counted, logits(2, 2, 4, seed=2).abs().long() % 3, 255)
    soft = softened_divergence(student, teacher, 2.0, counted)
    parted = decoupled_divergence(Compared(student, teacher, truth, counted), 2.0, 1.0, 8.0)
    ours, theirs = (each.movedim(1, -1)[counted] for each in (student, teacher))
    torch.testing.assert_close(soft[0], softened_divergence(ours, theirs, 2.0).sum() / 8)
    expected = decoupled_divergence(Compared(ours, theirs, truth[counted]), 2.0, 1.0, 8.0).sum() / 8
    torch.testing.assert_close(parted[0], expected)
    assert soft[1] == parted[1] == 0.0, "an image of which no pixel counts teaches nothing"
    whole = softened_divergence(student, teacher, 2.0)
    torch.testing.assert_close(whole, softened_divergence(student, teacher, 2.0, torch.ones(2, 2, 4).bool()))


@given(some.integers(0, 1000), some.integers(2, 6), some.sampled_from([0.5, 1.0, 4.0, 20.0]))
def test_a_student_like_its_teacher_loses_nothing_and_any_other_something(
    seed: int, classes: int, temperature: float
) -> None:
    teacher, other = logits(3, classes, seed=seed), logits(3, classes, seed=seed + 1)
    truth = torch.arange(3) % classes
    nothing = torch.zeros(3, dtype=torch.float64)
    same = teacher + 5.0  # the softmax is the same
    torch.testing.assert_close(softened_divergence(same, teacher, temperature), nothing)
    torch.testing.assert_close(
        decoupled_divergence(Compared(same, teacher, truth), temperature, 1.0, 8.0), nothing
    )
    torch.testing.assert_close(hint_distance(teacher, teacher), nothing)
    assert (softened_divergence(other, teacher, temperature) > 0.0).all()
    assert (decoupled_divergence(Compared(other, teacher, truth), temperature, 1.0, 8.0) > 0.0).all()


def test_the_gradient_is_t_times_the_difference_of_probabilities() -> None:
    """dC/dz = (q - p) / T for the divergence itself (arXiv 1503.02531, equation 2), times T^2."""
    teacher = logits(4, 5)
    student = logits(4, 5, seed=1).requires_grad_()
    softened_divergence(student, teacher, 3.0).sum().backward()
    expected = 3.0 * ((student / 3.0).softmax(1) - (teacher / 3.0).softmax(1))
    torch.testing.assert_close(student.grad, expected.detach())


def test_at_high_temperatures_the_gradient_does_not_shrink_for_the_square_keeps_its_size() -> None:
    """It tends to the difference of logits over the number of classes (arXiv 1503.02531, equation 4)."""
    teacher = logits(4, 5)
    student = logits(4, 5, seed=1).requires_grad_()
    softened_divergence(student, teacher, 1e4).sum().backward()
    gaps = (student - student.mean(1, keepdim=True)) - (teacher - teacher.mean(1, keepdim=True))
    torch.testing.assert_close(student.grad, (gaps / 5).detach(), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("scale", [1.0, 1e3])
def test_gradients_are_right_and_finite_also_where_the_teacher_is_sure(scale: float) -> None:
    teacher, truth = scale * logits(3, 4), torch.tensor([0, 1, 2])
    student = logits(3, 4, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda each: decoupled_divergence(Compared(each, teacher, truth), 4.0, 1.0, 8.0), student
    )
    assert torch.autograd.gradcheck(lambda each: softened_divergence(each, teacher, 4.0), student)
    single = (scale * student).float().detach().requires_grad_()
    decoupled_divergence(Compared(single, teacher.float(), truth), 1.0, 1.0, 8.0).sum().backward()
    assert single.grad is not None
    assert single.grad.isfinite().all()


def test_a_hints_distance_is_in_units_of_its_length() -> None:
    student, teacher = logits(3, 4, 2, 2), logits(3, 4, 2, 2, seed=1)
    expected = [
        sum((a - b) ** 2 for a, b in zip(ours, theirs, strict=True)) / sum(b**2 for b in theirs)
        for ours, theirs in zip(student.flatten(1).tolist(), teacher.flatten(1).tolist(), strict=True)
    ]
    torch.testing.assert_close(hint_distance(student, teacher), torch.tensor(expected).double())
    torch.testing.assert_close(hint_distance(0 * student, 7 * teacher), torch.ones(3, dtype=torch.float64))
    assert hint_distance(student, 0 * teacher).isfinite().all(), "a silent teacher divides nothing by zero"


@pytest.mark.parametrize("classes", [2, 10])
@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_who_guesses_loses_at_most_what_a_kind_says(classes: int, temperature: float) -> None:
    guess, sure = torch.zeros(50, classes, dtype=torch.float64), 10_000.0 * logits(50, classes)
    truth = sure.argmax(1)
    of_label = math.log(classes)
    most = LogitsTaught(teacher="large", temperature=temperature).guessing(of_label)
    assert softened_divergence(guess, sure, temperature).max().item() == pytest.approx(most)
    assert softened_divergence(guess, logits(50, classes, seed=1), temperature).max().item() < most
    decoupled_most = DecoupledTaught(teacher="large", temperature=temperature, beta=2.0).guessing(of_label)
    found = decoupled_divergence(Compared(guess, sure, truth), temperature, 1.0, 2.0)
    assert 0.3 * decoupled_most < found.max().item() <= decoupled_most


def test_features_of_zeros_lose_what_the_kind_says() -> None:
    said = FeaturesTaught(teacher="large").guessing(math.log(10))
    assert hint_distance(torch.zeros(5, 8).double(), logits(5, 8)).tolist() == pytest.approx([said] * 5)
