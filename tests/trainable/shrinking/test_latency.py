"""Tests that networks are timed in turns, in the recipe's layout and number format."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.trainable.small_runs import small_recipe
from trainable.shrinking import latency
from trainable.shrinking.latency import Latency, latencies, ratio_of


class Named(nn.Module):
    """A network that writes its name down at each pass, with what it was given."""

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
    taken: list[tuple[str, torch.Size, bool]] = []
    networks = {name: Named(name, taken) for name in ("whole", "narrow")}
    found = latencies(networks, (3, 8, 8), small_recipe(), torch.device("cpu"))
    assert {name: tuple(each) for name, each in found.items()} == {"whole": (1, 32), "narrow": (1, 32)}
    timed = [name for name, shape, _ in taken if shape == (1, 3, 8, 8)][2 * latency.WARM_UPS :]
    assert timed == ["whole", "narrow"] * latency.LEAST_ROUNDS
    assert all(channels_last for *_, channels_last in taken)
    for each in (each for by_batch in found.values() for each in by_batch.values()):
        low, high = each.bounds_ms
        assert 0.0 < low <= each.median_ms <= high
        assert each.tree() == {
            "median_ms": each.median_ms,
            "p5_ms": low,
            "p95_ms": high,
            "rounds": latency.LEAST_ROUNDS,
        }


def passes(seed: int, turns: int, *, slow: float = 1.0) -> np.ndarray[Any, np.dtype[Any]]:
    """Return the milliseconds of passes with a hundredth of noise, times what slows all of them."""
    noise: np.ndarray[Any, np.dtype[Any]] = np.random.default_rng(seed).normal(1.0, 0.01, turns)
    return slow * noise


def test_what_slows_both_networks_of_a_turn_is_not_in_the_interval_of_their_ratio() -> None:
    """The machine is up to three times slower in some turns; the ratio of the networks is 0.5."""
    load = 1.0 + 2.0 * np.random.default_rng(5).random(100)
    ours, theirs = (
        Latency(tuple((load * each).tolist())) for each in (passes(1, 100, slow=0.5), passes(2, 100))
    )
    found = ratio_of(ours, theirs)
    assert found.value == ours.median_ms / theirs.median_ms
    assert found.low <= found.value <= found.high
    assert 0.48 < found.low < 0.5 < found.high < 0.52
    assert str(found) == f"{found.value:.2f} ({found.low:.2f} to {found.high:.2f})"
    assert found.tree() == {"ratio": found.value, "low": found.low, "high": found.high}
    assert ratio_of(ours, theirs) == found, "the same passes, the same interval"


def test_networks_of_the_same_speed_have_a_ratio_whose_interval_holds_one() -> None:
    held = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        ours, theirs = (Latency(tuple(rng.lognormal(0.0, 0.2, 60).tolist())) for _ in range(2))
        found = ratio_of(ours, theirs)
        held += found.low <= 1.0 <= found.high
    assert held >= 35


def test_passes_that_never_differ_leave_no_doubt() -> None:
    found = ratio_of(Latency((1.0,) * 15), Latency((2.0,) * 15))
    assert (found.value, found.low, found.high) == (0.5, 0.5, 0.5)
