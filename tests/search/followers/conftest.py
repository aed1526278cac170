"""What the tests of a real MLflow database share."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.search.followers.small_tracking import client_of, storage_with_database

if TYPE_CHECKING:
    from mlflow import MlflowClient


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return storage_with_database(tmp_path_factory)


@pytest.fixture(scope="module")
def client(storage: Path) -> MlflowClient:
    return client_of(storage)


@pytest.fixture
def folder(storage: Path) -> Path:
    """Make the folder of a new search."""
    path = storage / f"search-{uuid.uuid4().hex[:8]}"
    path.mkdir()
    return path
