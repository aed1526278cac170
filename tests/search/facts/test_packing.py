"""Tests how many trials share a GPU: as many as its memory holds, and the processors can serve."""

from __future__ import annotations

import pytest

from search.facts import packing
from search.facts.hardware import Hardware, Node, PerTrial
from search.facts.packing import Footprint, gpu_share
from search.study import StudyError
from tests.trainable.small_runs import data_set, small_recipe

GIB = 2**30
ONE = PerTrial(cpus=2, gpus=1.0)


@pytest.mark.parametrize(
    ("trial", "gpu", "count"), [(8, 80, 8), (20, 80, 3), (50, 80, 1), (79, 80, 1), (90, 80, 1)]
)
def test_headroom_is_left_for_trials_that_take_more_than_the_first(trial: int, gpu: int, count: int) -> None:
    assert Footprint(trial * GIB, gpu * GIB).trials() == count


def test_a_share_is_what_memory_and_processors_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "_measured", lambda recipe, data, model: Footprint(8 * GIB, 80 * GIB))
    recipe, data, said = small_recipe(), data_set(), list[str]()
    roomy, tight = Hardware((Node(64, 2),)), Hardware((Node(0, 0), Node(12, 2)))
    assert gpu_share(recipe, data, ONE, roomy, said.append) == 1 / 8
    assert "8.0 of 80.0 GiB; 8 " in said[-1]
    share = gpu_share(recipe, data, ONE, tight, said.append)
    assert (share, tight.fits(PerTrial(cpus=2, gpus=share))) == (0.3333, 6)


@pytest.mark.parametrize("count", range(1, 33))
def test_so_many_shares_fit_on_a_gpu_as_ray_counts(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(packing, "_measured", lambda recipe, data, model: Footprint(GIB, 80 * GIB))
    node = Hardware((Node(2 * count, 1),))
    share = gpu_share(small_recipe(), data_set(), ONE, node, lambda said: None)
    assert round(share * 10_000) * count <= 10_000
    assert node.fits(PerTrial(cpus=2, gpus=share)) == count


def test_without_a_gpu_there_is_nothing_to_share() -> None:
    with pytest.raises(StudyError, match=r"resources\.pack: there is no GPU to share: 4 CPUs and 0 GPUs"):
        gpu_share(small_recipe(), data_set(), PerTrial(cpus=1, gpus=0.0), Hardware((Node(4, 0),)), print)


@pytest.mark.gpu
def test_a_trial_s_footprint_is_measured_on_a_gpu() -> None:
    found = packing.footprint(small_recipe(), data_set())
    assert 0 < found.trial_bytes < found.free_bytes
    assert found.trials() > 1
