"""Data for a worker that trains in the test's own process."""

from __future__ import annotations

from typing import cast

from trainable.data import DataSet
from trainable.tune.worker_setup import Shared


class InProcess(Shared[DataSet]):
    """Data that stay in this process, without Ray."""

    def get(self) -> DataSet:
        return cast(DataSet, self.reference)
