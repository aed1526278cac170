"""Makes the measurement of latencies short: no test of pruning depends on them."""

from __future__ import annotations

import pytest

from trainable.shrinking import latency


@pytest.fixture
def few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latency, "SECONDS", 0.0)
    monkeypatch.setattr(latency, "LEAST_ROUNDS", 2)
