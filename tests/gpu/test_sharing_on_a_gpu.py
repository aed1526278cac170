"""Tests searches whose trials share a GPU, which only a CUDA device can show."""

from __future__ import annotations

from pathlib import Path

import pytest

from search.commands.asked import resolved_study
from search.commands.guests import driver
from search.results import Search
from tests.integration.small_searches import digits_study

pytestmark = [pytest.mark.gpu, pytest.mark.integration]


def test_trials_that_share_a_gpu_end_as_those_that_have_it_alone(tmp_path: Path) -> None:
    """The sampler draws the same recipes, whatever ends first; kernels may add in another order."""
    alike = {"sampler__kind": "random", "scheduler__kind": "none", "resources__cpus": 1}
    found = {}
    for name, pack in (("alone", False), ("shared", True)):
        study = digits_study(tmp_path, name=name, resources__pack=pack, concurrent=4, **alike)
        assert driver().search(resolved_study(study)) == "finished"
        found[name] = Search(tmp_path / name)
    shared, alone = found["shared"], found["alone"]
    assert shared.facts.gpus < 1.0
    assert shared.facts.footprint is not None
    assert alone.facts.footprint is None
    for one, other in zip(shared.record.trials, alone.record.trials, strict=True):
        assert one.digest == other.digest
        ends = (each.history[-1].result.val_accuracy for each in (one, other))
        assert next(ends) == pytest.approx(next(ends), abs=0.02)
