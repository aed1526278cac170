"""Tests what the driver does with a store that does not answer: the search goes on."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from search.deciding.ledger import Ledger
from search.facts.hardware import Hardware, Node
from search.record.home import Home
from search.record.journal import Journal
from search.record.lease import Lease
from search.running.driver import make_ledger
from search.running.prepare import Prepared, decide, load
from search.running.switch import StopSwitch
from search.running.trial_checkpoints import (
    checkpoints_of,
    drop_all_checkpoints,
    drop_checkpoints,
    stored_history,
)
from search.study import Study
from tests.s3_server import KEYS
from trainable.files.store import Store

NOBODY = "s3://b/c?scheme=http&endpoint_override=127.0.0.1:1&region=x"


@pytest.fixture
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Prepared:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    study = Study.from_tree({"name": "mine", "data": {"path": "digits"}, "storage": NOBODY})
    return decide(load(study, Home(tmp_path, Store(NOBODY).at("mine")), Hardware((Node(cpus=2, gpus=0),))))


@pytest.fixture
def ledger(prepared: Prepared, tmp_path: Path) -> Iterator[Ledger]:
    """Return a ledger with one trial, which was stopped."""
    with Journal(tmp_path) as journal:
        made = make_ledger(prepared, journal)
        made.begin("mine")
        made.propose()
        made.cut_short()
        yield made


def test_how_far_a_trial_is_is_not_known_then(prepared: Prepared, caplog: pytest.LogCaptureFixture) -> None:
    assert stored_history(prepared, 0) is None
    assert "trial 0: s3://b/c/mine/trials/0000" in caplog.text


def test_a_history_that_a_disk_has_broken_does_not_end_the_search(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    local = replace(prepared, home=Home(tmp_path / "mine"))
    broken = tmp_path / "mine" / "trials" / "0000" / "epoch-0003"
    broken.mkdir(parents=True)
    for name in ("state.pt", "history.json"):
        (broken / name).touch()
    assert stored_history(local, 0) is None
    assert checkpoints_of(local, 0).epochs() == 0, "its state is empty: training goes on from nothing"
    assert local.home.trials_with_checkpoints() == {0}


def test_checkpoints_that_cannot_be_removed_are_reported(
    prepared: Prepared, ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert not drop_checkpoints(ledger, prepared, 0)
        drop_all_checkpoints(ledger, prepared, StopSwitch())
    assert caplog.text.count("s3://b/c/mine/trials") >= 2


def test_a_lease_that_is_not_sure_deletes_nothing_and_a_lost_one_ends_the_search(
    prepared: Prepared, ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store((tmp_path / "store").as_uri())
    local = replace(prepared, home=Home(tmp_path, store.at("mine")))
    store.write("mine/trials/0000/epoch-0001/state.pt", b"")
    store.write("mine/trials/0000/epoch-0001/history.json", b"")
    with Lease(store, print) as lease:
        switch = StopSwitch(lease=lease)
        assert (switch.sure, switch.lost) == (True, False)
        with monkeypatch.context() as hung:
            hung.setattr("search.record.lease.SILENCE_SECONDS", 0.0)
            drop_all_checkpoints(ledger, local, switch)
        assert checkpoints_of(local, 0).epochs() == 1
        drop_all_checkpoints(ledger, local, switch)
        assert checkpoints_of(local, 0).epochs() == 0
        lease.give_up()
        assert (switch.sure, switch.lost, switch.interrupted) == (False, True, False)
    assert (StopSwitch().sure, StopSwitch().lost) == (True, False)
