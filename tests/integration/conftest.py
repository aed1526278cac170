"""What tests of several machines share: one cluster, whole again before each test."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.clusters import Cluster, running


@pytest.fixture(scope="session")
def started_cluster() -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory(prefix="tb-") as folder, running(Path(folder)) as started:
        yield started


@pytest.fixture
def cluster(started_cluster: Cluster) -> Cluster:
    """The cluster with both of its nodes."""
    started_cluster.start_nodes()
    return started_cluster
