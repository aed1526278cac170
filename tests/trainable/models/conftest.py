"""Caches of published weights that are a test's own."""

from __future__ import annotations

from pathlib import Path

import huggingface_hub.constants
import pytest


@pytest.fixture
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of torch's cache, `torch`, and of the Hub's, `hub`: neither is there yet."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path
