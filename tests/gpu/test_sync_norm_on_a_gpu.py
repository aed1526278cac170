"""Tests BatchNorm over ranks by torch's kernels: two threads are ranks on one device."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from tests.trainable.models.test_model_sync_norm import layer, on_ranks, steps
from trainable.models.sync_norm import with_sync_norm
from trainable.ranks import Ranks

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("kind", ["2d", "1d", "cumulative", "plain", "timm"])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last], ids=str)
def test_shares_of_a_batch_give_what_the_whole_gives_on_a_gpu(
    kind: str, memory_format: torch.memory_format
) -> None:
    shape = (8, 3) if kind == "1d" else (8, 3, 4, 5)
    batches, towards = ([torch.randn(shape, device="cuda") + 3.0 for _ in range(2)] for _ in range(2))
    if kind != "1d":
        batches = [each.contiguous(memory_format=memory_format) for each in batches]
    new = layer(kind).cuda()
    norms = [copy.deepcopy(new) for _ in range(2)]
    whole = steps(new, batches, towards)

    def work(ranks: Ranks) -> dict[str, Any]:
        mine = [[each.chunk(2)[ranks.rank] for each in tensors] for tensors in (batches, towards)]
        return steps(with_sync_norm(norms[ranks.rank], ranks), *mine)

    parts = on_ranks(2, work)
    close: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-5}
    outputs = torch.cat([part["outputs"][1] for part in parts])
    torch.testing.assert_close(outputs, whole["outputs"][1], **close)
    torch.testing.assert_close(torch.cat([part["input"] for part in parts]), whole["input"], **close)
    for name in whole.keys() - {"outputs", "input", "weight", "bias"}:
        torch.testing.assert_close(parts[0][name], whole[name], **close)
    for name in whole.keys() & {"weight", "bias"}:
        torch.testing.assert_close(parts[0][name] + parts[1][name], whole[name], **close)
