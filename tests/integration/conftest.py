"""Gives integration tests one cluster, whole again before each, and ends the drivers that a test leaves."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from search.followers import following
from tests.integration import followers
from tests.integration.clusters import NODES, Cluster, running
from tests.integration.drivers import STARTED


@pytest.fixture(scope="module", autouse=True)
def followers_are_forked() -> Iterator[None]:
    """What follows a search of this process is forked, too, also where tests of a module share a search."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(following, "start_process", followers.started_by(followers.address))
        yield


@pytest.fixture(autouse=True)
def no_driver_is_left() -> Iterator[None]:
    """End the drivers that a failed test leaves, before they disturb the next one."""
    yield
    while STARTED:
        STARTED.pop().end()


@pytest.fixture(scope="session")
def started_cluster() -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory(prefix="tb-") as folder, running(Path(folder)) as started:
        yield started


@pytest.fixture
def one_node(started_cluster: Cluster) -> Cluster:
    """Return the cluster with its first node alone."""
    started_cluster.start_nodes(NODES[:1])
    if NODES[1] in started_cluster.processes:
        started_cluster.kill(NODES[1])
    return started_cluster


@pytest.fixture
def cluster(started_cluster: Cluster) -> Cluster:
    """Return the cluster with both of its nodes."""
    started_cluster.start_nodes()
    return started_cluster
