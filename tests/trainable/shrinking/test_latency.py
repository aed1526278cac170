"""Tests that networks are timed in turns, in the recipe's layout and number format."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tests.trainable.small_runs import small_recipe
from trainable.shrinking import latency
from trainable.shrinking.latency import latencies


class Named(nn.Module):
    """Writes its name down at each pass, with what it was given."""

    def __init__(self, name: str, passes: list[tuple[str, torch.Size, bool]]) -> None:
        super().__init__()
        self.name, self.passes, self.layer = name, passes, nn.Conv2d(3, 1, 1)

    def forward(self, images: Tensor) -> Tensor:
        last = images.is_contiguous(memory_format=torch.channels_last)
        self.passes.append((self.name, images.shape, last))
        answers: Tensor = self.layer(images)
        return answers


def test_networks_take_turns_at_each_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latency, "SECONDS", 0.0)
    passes: list[tuple[str, torch.Size, bool]] = []
    networks = {name: Named(name, passes) for name in ("whole", "narrow")}
    found = latencies(networks, (3, 8, 8), small_recipe(), torch.device("cpu"))
    assert {name: tuple(each) for name, each in found.items()} == {"whole": (1, 32), "narrow": (1, 32)}
    timed = [name for name, shape, _ in passes if shape == (1, 3, 8, 8)][2 * latency.WARM_UPS :]
    assert timed == ["whole", "narrow"] * latency.LEAST_ROUNDS
    assert all(channels_last for *_, channels_last in passes)
    for each in (each for by_batch in found.values() for each in by_batch.values()):
        assert 0.0 < each.p5_ms <= each.median_ms <= each.p95_ms
        assert each.tree()["rounds"] == latency.LEAST_ROUNDS
