"""What the driver does with a store that does not answer: the search goes on."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from search.ledger import Ledger
from search.prepare import Prepared
from search.raytune import StopSwitch, drop_checkpoints, kept_history
from tests.s3_server import KEYS
from trainable.kept import Kept
from trainable.store import Store


@pytest.fixture
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Prepared:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    nobody = "s3://b/c?scheme=http&endpoint_override=127.0.0.1:1&region=x"
    kept = Kept(tmp_path / "trial", Store(nobody, attempts=1))
    return cast(Prepared, SimpleNamespace(kept=lambda trial: kept))


def test_how_far_a_trial_is_is_not_known_then(prepared: Prepared, caplog: pytest.LogCaptureFixture) -> None:
    assert kept_history(prepared, 3) is None
    assert "trial 3: s3://b/c" in caplog.text


def test_checkpoints_that_cannot_be_removed_are_told_of(
    prepared: Prepared, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        drop_checkpoints(cast(Ledger, SimpleNamespace(ended=lambda trial: "stopped")), prepared, 3)
    assert "trial 3: s3://b/c" in caplog.text


def test_a_lost_lease_ends_the_search_and_is_no_signal() -> None:
    for lost in (True, False):
        switch = StopSwitch(lease=cast("object", SimpleNamespace(lost=lost)))  # type: ignore[arg-type]
        assert (switch.lost, switch.interrupted, switch.out_of_time) == (lost, False, False)
    assert not StopSwitch().lost
