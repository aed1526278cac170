"""How many files somebody opens to understand one: what it imports, and what that imports, here."""

from __future__ import annotations

import grimp
import pytest

from tests.near import PACKAGES

# They may only fall: docs/decisions/0062-spine-kits-and-guests.md
CEILINGS = {
    "trainable.run": 139,
    "trainable.training.run": 69,
    "trainable.training.step": 44,
    "search.deciding.ledger": 53,
    "search.running.driver": 267,
}
SLACK = 4  # so many fewer files need no new ceiling


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph(*PACKAGES)


@pytest.mark.parametrize("file", CEILINGS)
def test_whoever_reads_a_file_opens_no_more_others_than_before(graph: grimp.ImportGraph, file: str) -> None:
    opened = 1 + len(graph.find_upstream_modules(file))
    ceiling = CEILINGS[file]
    assert opened <= ceiling, f"{file} reaches {opened} files: look for the import that leads so far"
    assert opened >= ceiling - SLACK, f"{file} reaches {opened} files: lower its ceiling to that"
