"""Tests number formats: what `auto` resolves to, and what a format makes of a forward pass."""

from __future__ import annotations

import pytest
import torch

from trainable.errors import RecipeError
from trainable.recipe.training import Precision
from trainable.training import precision

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("units", "expected"),
    [
        ({"avx512_f": True, "amx_bf16": False, "avx512_bf16": False}, "fp32"),
        ({"avx512_bf16": True}, "bf16"),
        ({"amx_bf16": True}, "bf16"),
        ({}, "fp32"),
    ],
)
def test_auto_on_a_cpu_is_bf16_only_where_it_has_units_for_it(
    monkeypatch: pytest.MonkeyPatch, units: dict[str, bool], expected: str
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: units)
    assert precision.resolve(Precision(), CPU) == expected


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


@pytest.mark.parametrize(
    ("number_format", "expected"), [("tf32", "tf32"), ("fp32", "ieee"), ("bf16", "ieee")]
)
def test_the_switches_of_cuda_are_set_and_put_back(number_format: precision.Format, expected: str) -> None:
    def state() -> tuple[str, str, bool]:
        backends = torch.backends
        convolution = backends.cudnn.conv.fp32_precision  # type: ignore[attr-defined]
        return backends.cuda.matmul.fp32_precision, convolution, backends.cudnn.benchmark

    before = state()
    with precision.switches(number_format, torch.device("cuda", 0)):
        assert state() == (expected, expected, True)
    assert state() == before
    with precision.switches(number_format, CPU):
        assert state() == before


@pytest.mark.parametrize(
    ("number_format", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16)]
)
def test_a_forward_pass_computes_in_the_format_again_and_again(
    number_format: precision.Format, dtype: torch.dtype
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
