"""Tests number formats: what `auto` resolves to, and what a format makes of a forward pass."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from trainable.errors import RecipeError
from trainable.recipe.network_cost import Format
from trainable.recipe.training import Precision
from trainable.training import precision

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("units", "expected"),
    [
        ({"avx512_f": True, "amx_bf16": False, "avx512_bf16": False}, ("fp32",)),
        ({"avx512_bf16": True}, ("fp32", "bf16")),
        ({"amx_bf16": True}, ("fp32", "bf16")),
        ({}, ("fp32",)),
    ],
)
def test_bf16_is_one_of_a_cpus_formats_only_where_it_has_units_for_it(
    monkeypatch: pytest.MonkeyPatch, units: dict[str, bool], expected: tuple[Format, ...]
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: units)
    assert precision.formats_of(CPU) == expected
    assert precision.resolve(Precision(), CPU) == "fp32"


@pytest.mark.parametrize(("supported", "expected"), [(True, "bf16"), (False, "fp16")])
def test_auto_on_cuda_is_bf16_where_it_is_supported(
    monkeypatch: pytest.MonkeyPatch, supported: bool, expected: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: supported)
    assert precision.resolve(Precision(), torch.device("cuda", 0)) == expected


@pytest.mark.parametrize("kind", ["fp32", "bf16", "fp16"])
def test_a_named_format_is_used_as_it_is(kind: str) -> None:
    assert precision.resolve(Precision.model_validate({"kind": kind}), CPU) == kind


def test_tf32_off_cuda_is_an_error() -> None:
    with pytest.raises(RecipeError, match=r"precision\.kind: tf32.*CUDA"):
        precision.resolve(Precision(kind="tf32"), CPU)


def switches() -> tuple[object, ...]:
    """Return torch's switches by their older and newer names; the older ones raise if the two disagree."""
    backends: Any = torch.backends
    cudnn = backends.cudnn
    older = (backends.cuda.matmul.allow_tf32, cudnn.allow_tf32, torch.get_float32_matmul_precision())
    newer = (backends.cuda.matmul.fp32_precision, cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision)
    return *older, *newer


@pytest.mark.parametrize(("number_format", "allowed"), [("tf32", True), ("fp32", False), ("bf16", False)])
def test_the_switches_of_cuda_are_set_and_put_back(number_format: Format, allowed: bool) -> None:
    before = switches()
    with precision.switches(number_format, torch.device("cuda", 0)):
        matmul, cudnn, _, *newer = switches()
        assert (matmul, cudnn) == (allowed, allowed)
        assert [each == "tf32" for each in newer] == [allowed] * 3
    assert switches() == before
    with precision.switches(number_format, CPU):
        assert switches() == before


@pytest.mark.parametrize(
    ("number_format", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16)]
)
def test_a_forward_pass_computes_in_the_format_again_and_again(
    number_format: Format, dtype: torch.dtype
) -> None:
    context = precision.autocast(number_format, CPU)
    for _ in range(2):
        with context:
            assert torch.nn.Linear(2, 2)(torch.ones(1, 2)).dtype == dtype
        assert torch.nn.Linear(2, 2)(torch.ones(1, 2)).dtype == torch.float32


def test_a_format_is_checked_against_a_kind_of_device_that_need_not_be_there() -> None:
    precision.check(Precision(kind="tf32"), "cuda")
    precision.check(Precision(kind="bf16"), "cpu")
    with pytest.raises(RecipeError, match=r"precision\.kind: tf32.*CUDA"):
        precision.check(Precision(kind="tf32"), "cpu")
