"""What all tests share: a quiet, single-threaded environment, the real images, and one Ray."""

from __future__ import annotations

import gc
import os
import signal
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("MPLCONFIGDIR", str(Path.home() / ".cache" / "matplotlib"))  # its fonts stay

# Read when torch, Ray, MLflow and matplotlib are first imported, here and in every process the tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")  # the last digits depend on it; another number may be tried
os.environ.setdefault("MKL_NUM_THREADS", os.environ["OMP_NUM_THREADS"])
os.environ.update(
    MPLBACKEND="Agg",
    AWS_EC2_METADATA_DISABLED="true",  # no machine's role is looked for: that takes six seconds
    MLFLOW_DISABLE_TELEMETRY="true",
    RAY_USAGE_STATS_ENABLED="0",
    RAY_AIR_NEW_OUTPUT="0",
    RAY_CHDIR_TO_TRIAL_DIR="0",
    RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS="0",
    RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0",
    RAY_worker_niceness="0",  # Ray gives its workers 15: beside any busy process a trial gets 3 % of a core
)

from collections.abc import Generator, Iterator
from typing import Any

import pytest
from hypothesis import settings

from search.running.private_ray import leave_ray
from tests import session
from tests.groups import Groups
from tests.s3_server import S3Server, s3_server
from tests.tiers import fault_of_marks, overtime
from trainable.collector import paused

session.start()
# `nohup make test-all &` has them ignored, and tests send them.
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda number, frame: None)  # this run goes on; what it starts does not
signal.signal(signal.SIGINT, signal.default_int_handler)

# What the product keeps between commands goes to a folder of this process, gone when the run of the tests is.
CACHE = tempfile.mkdtemp(prefix="cache-")
os.environ["XDG_CACHE_HOME"] = f"{CACHE}/cache"
os.environ["XDG_STATE_HOME"] = f"{CACHE}/state"
# torch 2.15 would run here what it compiled for other processor flags: it crashes, or loses the same run.
os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{CACHE}/compiled"
os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # else two more processes import torch to compile little

# On a busy machine a slow example is no fault; and every machine tries the same examples.
settings.register_profile("tunebook", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("tunebook")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Groups:
    return Groups(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Pause the garbage collector until all tests are imported; it never looks at what they imported."""
    with paused():
        collected = yield
        gc.freeze()
    return collected


def pytest_unconfigure() -> None:
    """At the end what is left is collected: otherwise libraries print what they hold to be leaks."""
    gc.unfreeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What waits for other processes comes first, then what takes minutes, then what is slow: so no process
    has one of them last. With TUNEBOOK_SCENARIOS=1/3 a third of the scenarios is run, with 0/3 and 2/3 the
    others."""
    if share := os.environ.get("TUNEBOOK_SCENARIOS"):
        part, of = map(int, share.split("/"))
        scenarios = sorted(item.nodeid for item in items if item.get_closest_marker("scenario"))
        others = set(scenarios) - set(scenarios[part::of])
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in others])
        items[:] = [item for item in items if item.nodeid not in others]
    items.sort(
        key=lambda item: [not item.get_closest_marker(name) for name in ("integration", "fuzz", "slow")]
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a test that is slow, with the processes that it waits for, and does not say so."""
    modules, began = len(sys.modules), sum(os.times()[:4])
    result = yield
    seconds, imported = sum(os.times()[:4]) - began, len(sys.modules) - modules
    if fault := overtime(seconds, imported, {mark.name for mark in item.iter_markers()}):
        pytest.fail(fault, pytrace=False)
    return result


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Test that ask for what this machine lacks are skipped, and say so."""
    if fault := fault_of_marks([(mark.name, mark.args) for mark in item.iter_markers()]):
        pytest.fail(fault, pytrace=False)
    if item.get_closest_marker("data") and not os.environ.get("TUNEBOOK_DATA"):
        pytest.skip("TUNEBOOK_DATA names no folder of real images")
    if item.get_closest_marker("gpu"):
        import torch

        if not torch.cuda.is_available():
            pytest.skip("no CUDA device")


@pytest.fixture(scope="session")
def real_images() -> Path:
    """The folder of real images that TUNEBOOK_DATA names; tests that use it are marked `data`."""
    folder = Path(os.environ["TUNEBOOK_DATA"])
    if not folder.is_dir():
        pytest.fail(f"TUNEBOOK_DATA is {folder}, which is no folder")
    return folder


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    """One S3 server for all tests that need one, with the keys to it in the environment.

    Of the processes of pytest-xdist one runs them all (tests/groups.py).
    """
    with s3_server() as server:
        yield server


@pytest.fixture(scope="session")
def ray_session() -> Iterator[None]:
    """One local Ray for all tests that need one; quiet, and without its dashboard.

    It believes in two GPUs, which only trials that ask for one get; none of them computes there.
    """
    import logging

    import ray

    from search.running.private_ray import what_a_search_needs_alone

    logging.getLogger("ray").setLevel(logging.ERROR)
    with what_a_search_needs_alone():
        ray.init(
            address="local",
            num_cpus=2,
            num_gpus=2,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    yield
    leave_ray()


@pytest.fixture(scope="session", autouse=True)
def networks_are_timed_briefly() -> Iterator[None]:
    """How fast a network trains is timed with the fewest steps: only tests of that depend on it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trainable.probes.speed.SECONDS", 0.0)
        yield


@pytest.fixture
def few_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time a bundle's files in as few passes as can be, of small batches: no test depends on their time."""
    monkeypatch.setattr("trainable.bundle.measured.SECONDS", 0.0)
    monkeypatch.setattr("trainable.bundle.measured.BATCHES", (1, 2))
