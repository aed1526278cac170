"""Tests adaptive gradient clipping, against timm's and by what it promises."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from timm.utils.agc import adaptive_clip_grad
from torch import Tensor, nn

from trainable.training.gradients import clip_adaptively

SHAPES = ((8, 3, 3, 3), (5, 8), (6, 1, 2), (4,), (), (1, 7))


def parameters(seed: int, gradient_size: float, dtype: torch.dtype = torch.float64) -> list[nn.Parameter]:
    """Return parameters with very different gradients; one unit has zero weights, one a zero gradient."""
    generator = torch.Generator().manual_seed(seed)
    made = []
    for shape in SHAPES:
        parameter = nn.Parameter(torch.randn(shape, generator=generator, dtype=dtype))
        spread = torch.rand(shape[:1], generator=generator, dtype=dtype).mul(10).sub(5).exp()
        spread = spread.view([-1, *[1] * len(shape)][: len(shape)])
        parameter.grad = torch.randn(shape, generator=generator, dtype=dtype) * spread * gradient_size
        made.append(parameter)
    with torch.no_grad():
        made[0][0] = 0.0
        made[1].grad[0] = 0.0
    return made


def gradients(made: list[nn.Parameter]) -> list[Tensor]:
    return [parameter.grad.clone() for parameter in made if parameter.grad is not None]


def unit_lengths(values: Tensor) -> list[float]:
    units = values if values.ndim > 1 else values[None]
    return [math.sqrt(sum(number**2 for number in unit.flatten().tolist())) for unit in units]


@pytest.mark.parametrize("size", [1e-4, 1e-2, 1.0, 100.0])
def test_clips_as_timm_does(size: float) -> None:
    ours, theirs = parameters(0, size), parameters(0, size)
    clip_adaptively(ours, 0.01)
    adaptive_clip_grad(theirs, clip_factor=0.01, eps=1e-3)
    for mine, reference in zip(gradients(ours), gradients(theirs), strict=True):
        torch.testing.assert_close(mine, reference, rtol=1e-6, atol=1e-12)


@given(
    seed=st.integers(0, 2**20),
    size=st.sampled_from([1e-3, 0.1, 10.0]),
    factor=st.sampled_from([0.001, 0.01, 0.3]),
)
@settings(max_examples=30, deadline=None)
def test_no_unit_moves_more_than_its_share_and_short_gradients_stay(
    seed: int, size: float, factor: float
) -> None:
    made = parameters(seed, size)
    before = gradients(made)
    clip_adaptively(made, factor)
    for parameter, old, new in zip(made, before, gradients(made), strict=True):
        lengths = zip(unit_lengths(parameter), unit_lengths(old), unit_lengths(new), strict=True)
        for unit, (weights, was, is_) in enumerate(lengths):
            allowed = factor * max(weights, 1e-3)
            if was <= allowed * (1 - 1e-9):
                assert torch.equal(old[unit], new[unit]) if old.ndim > 1 else torch.equal(old, new)
            else:
                assert is_ == pytest.approx(allowed)
    turned = [torch.sign(old) == torch.sign(new) for old, new in zip(before, gradients(made), strict=True)]
    assert all(each.all() for each in turned)


def test_a_unit_is_an_output_and_a_vector_is_one_unit() -> None:
    matrix, vector = nn.Parameter(torch.ones(2, 4)), nn.Parameter(torch.ones(4))
    matrix.grad = torch.tensor([[100.0] * 4, [0.001] * 4])
    vector.grad = torch.tensor([100.0, 0.001, 0.0, 0.0])
    clip_adaptively([matrix, vector], 0.01)
    torch.testing.assert_close(matrix.grad, torch.tensor([[0.01] * 4, [0.001] * 4]))
    torch.testing.assert_close(vector.grad, torch.tensor([0.02, 2e-7, 0.0, 0.0]))


def test_parameters_without_gradients_are_passed_over() -> None:
    frozen, moving = nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(2, 2))
    moving.grad = torch.full((2, 2), 9.0)
    clip_adaptively([frozen, moving], 0.01)
    assert frozen.grad is None
    torch.testing.assert_close(moving.grad, torch.full((2, 2), 0.01))
    clip_adaptively([frozen], 0.01)
    clip_adaptively([], 0.01)


def test_gradients_of_mixed_formats_keep_theirs() -> None:
    made = [nn.Parameter(torch.ones(2, 2, dtype=dtype)) for dtype in (torch.float32, torch.bfloat16)]
    for parameter in made:
        parameter.grad = torch.full_like(parameter, 9.0)
    clip_adaptively(made, 0.25)
    assert [each.dtype for each in gradients(made)] == [torch.float32, torch.bfloat16]
    for each in gradients(made):
        torch.testing.assert_close(each, torch.full_like(each, 0.25))


def test_a_gradient_that_is_not_finite_stays_so() -> None:
    parameter = nn.Parameter(torch.ones(2, 2))
    parameter.grad = torch.tensor([[math.inf, 1.0], [math.nan, 1.0]])
    clip_adaptively([parameter], 0.01)
    assert not parameter.grad.isfinite().all(1).any()


def test_no_number_is_read_from_the_device() -> None:
    """Tensors on `meta` have no numbers: whatever asks for one raises."""
    parameter = nn.Parameter(torch.empty(3, 4, device="meta"))
    parameter.grad = torch.empty(3, 4, device="meta")
    clip_adaptively([parameter], 0.01)
