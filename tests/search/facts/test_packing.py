"""Tests how many trials share a GPU: as many as fill it, fit into its memory, and processors can serve."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search.facts.hardware import Hardware, Node, PerTrial
from search.facts.packing import (
    FILLED,
    MOST,
    filling,
    fitting,
    footprint,
    gpu_share,
    share_of,
    shares_gpus,
    trials_on_a_gpu,
    why_shared,
)
from search.study import Study, StudyError
from tests.trainable.small_runs import data_set, small_recipe
from trainable.recipe.network_cost import Footprint

GIB = 2**30
IDLE = 0.01


def taking(trial: float, gpu: float, busy: float | None = IDLE) -> Footprint:
    return Footprint(trial_bytes=int(trial * GIB), free_bytes=int(gpu * GIB), busy=busy)


def study(**resources: object) -> Study:
    return Study.from_tree({"data": {"path": "digits"}, "resources": resources, "budget": {"trials": 64}})


@pytest.mark.parametrize(
    ("trial", "gpu", "count"), [(8, 80, 8), (20, 80, 3), (50, 80, 1), (79, 80, 1), (90, 80, 1)]
)
def test_headroom_is_left_for_trials_that_take_more_than_the_first(trial: int, gpu: int, count: int) -> None:
    assert trials_on_a_gpu(taking(trial, gpu), processors=99, asked=99) == count


@pytest.mark.parametrize(
    ("busy", "count"),
    [(1.0, 1), (0.8, 1), (0.79, 2), (0.5, 2), (0.3, 3), (0.2, 4), (0.074, 8), (0.001, 8), (None, 1)],
)
def test_a_gpu_gets_as_many_trials_as_keep_it_at_work(busy: float | None, count: int) -> None:
    assert trials_on_a_gpu(taking(1, 80, busy), processors=99, asked=99) == count


@given(
    trial=st.integers(1, 200 * GIB),
    free=st.integers(1, 200 * GIB),
    busy=st.floats(1e-4, 1.0),
    processors=st.integers(0, 64),
    asked=st.integers(1, 64),
)
def test_no_limit_is_passed_and_one_is_reached(
    trial: int, free: int, busy: float, processors: int, asked: int
) -> None:
    found = Footprint(trial_bytes=trial, free_bytes=free, busy=busy)
    count = trials_on_a_gpu(found, processors, asked)
    limits = (fitting(found), filling(found), processors, asked, MOST)
    assert count >= 1
    assert count == 1 or (all(count <= each for each in limits) and count in limits)
    assert (filling(found) - 1) * busy < FILLED <= filling(found) * busy + 1e-6


@given(busy=st.floats(1e-4, 1.0), idler=st.floats(1e-4, 1.0), more=st.integers(0, 64))
def test_a_gpu_that_idles_longer_or_has_more_processors_never_gets_fewer(
    busy: float, idler: float, more: int
) -> None:
    low, high = sorted((busy, idler))
    assert trials_on_a_gpu(taking(1, 80, low), 4 + more) >= trials_on_a_gpu(taking(1, 80, high), 4)


def test_a_share_is_what_memory_and_processors_allow() -> None:
    roomy, tight = Hardware((Node(64, 2),)), Hardware((Node(0, 0), Node(12, 2)))
    assert gpu_share(taking(8, 80), study(cpus=2), roomy) == 1 / 8
    share = gpu_share(taking(8, 80), study(cpus=2), tight)
    assert (share, tight.fits(PerTrial(cpus=2, gpus=share))) == (0.3333, 6)


def test_there_are_no_more_places_than_trials_at_once() -> None:
    hardware = Hardware((Node(64, 2),))
    few = Study.from_tree({"data": {"path": "digits"}, "budget": {"trials": 5}})
    assert gpu_share(taking(1, 80), few, hardware) == 0.3333
    assert gpu_share(taking(1, 80), few.with_values({"concurrent": 2}), hardware) == 1.0


@pytest.mark.parametrize("count", range(1, 33))
def test_so_many_shares_fit_on_a_gpu_as_ray_counts(count: int) -> None:
    share, node = share_of(count), Hardware((Node(2 * count, 1),))
    assert round(share * 10_000) * count <= 10_000
    assert node.fits(PerTrial(cpus=2, gpus=share)) == count


def test_without_a_gpu_there_is_nothing_to_share() -> None:
    with pytest.raises(StudyError, match=r"resources\.pack: there is no GPU to share: 4 CPUs and 0 GPUs"):
        shares_gpus(study(pack=True), PerTrial(cpus=1, gpus=0.0), Hardware((Node(4, 0),)))


@pytest.mark.parametrize(
    ("resources", "shares"),
    [({"pack": True}, True), ({"pack": False}, False), ({"gpus": 0.25}, False), ({}, False)],
)
def test_a_study_says_whether_trials_share_a_gpu(resources: dict[str, object], shares: bool) -> None:
    assert shares_gpus(study(**resources), PerTrial(cpus=1, gpus=1.0), Hardware((Node(4, 1),))) is shares


@pytest.mark.parametrize(
    ("found", "share", "words"),
    [
        (
            taking(2, 80, 0.25),
            0.25,
            "4 trials share a GPU: one takes 2.0 of 80.0 GiB, and the GPU works 25 %",
        ),
        (taking(2, 80, 0.25), 0.25, "25 % of a step's time, so 32 fit and 4 fill it"),
        (taking(2, 80, 0.05), 0.125, "and 16 fill it; more were never tried"),
        (taking(2, 80, 0.05), 0.3333, "and 16 fill it; processors or trials for no more"),
        (taking(90, 80, 0.05), 1.0, "a trial has a GPU to itself: one takes 90.0 of 80.0 GiB"),
        (taking(2, 80, None), 1.0, "works an unknown share of a step's time, so 32 fit and 1 fill it"),
    ],
)
def test_it_is_said_why_so_many_trials_share_a_gpu(found: Footprint, share: float, words: str) -> None:
    assert words in why_shared(found, share)


@pytest.mark.gpu
def test_what_a_trial_takes_is_measured_on_a_gpu() -> None:
    found = footprint(small_recipe(), data_set())
    assert 0 < found.trial_bytes < found.free_bytes
    assert found.busy is not None
    assert 0.0 < found.busy < 1.0
    assert trials_on_a_gpu(found, processors=8) > 1
