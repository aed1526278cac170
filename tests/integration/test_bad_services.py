"""One search, a store that fails, an MLflow server that is killed, and a machine that is taken back."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from search.record.journal import RetryEvent, SearchEvent
from tests.integration.drivers import Driver, assert_all_agree, machine, tunebook
from tests.integration.flaky_proxy import Moods, proxy_before
from tests.integration.mlflow_server import Server
from tests.integration.small_searches import BASE, digits_study, epochs_by_trial, events_in, has_epochs
from tests.s3_server import S3Server
from tests.waiting import wait_until
from trainable.files.store import Store

pytestmark = pytest.mark.integration

EPOCHS = 20
TRIALS = 2


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    server.start()
    yield server
    server.kill()


@pytest.fixture
def flaky(s3: S3Server, tmp_path: Path) -> Iterator[tuple[Store, Moods]]:
    """A folder in the store, reached through a proxy."""
    (port,) = re.findall(r"endpoint_override=127\.0\.0\.1:(\d+)", s3.uri)
    with proxy_before(int(port)) as (new, moods):
        yield Store(s3.uri.replace(f":{port}", f":{new}")).at(tmp_path.name, "searches"), moods


@pytest.mark.scenario
def test_a_search_outlives_its_store_its_tracker_and_its_machine(
    flaky: tuple[Store, Moods], server: Server, tmp_path: Path
) -> None:
    """No trial is charged a retry, and in the end every epoch is everywhere, once."""
    storage, moods = flaky
    study = written_study(storage, server, tmp_path)
    first = Driver("search", study, log=tmp_path / "log-1", **machine(tmp_path / "first"))
    folder = folder_in(first, tmp_path / "first")
    first.wait_for(folder, has_epochs(2))

    moods.refused_share = 0.5
    first.wait_until(lambda: moods.counts["refused"] >= 10)
    moods.is_away, known = True, len(events_in(folder))
    first.wait_until(lambda: moods.counts["closed"] >= 5 and len(events_in(folder)) > known)
    moods.is_away, moods.refused_share = False, 0.0
    server.kill()
    known = len(events_in(folder))
    first.wait_for(folder, lambda events: len(events) > known + 2)

    first.send(signal.SIGTERM)
    assert first.wait() == 143, first.log.read_text()
    assert "MLflow lacks" in first.log.read_text()
    mine = storage.at("mine").uri
    assert f"resume '{mine}'" in first.log.read_text()
    assert "Traceback" not in first.log.read_text()
    code, said = tunebook("audit", mine, **machine(tmp_path / "second"))
    assert (code, "MLflow could not be asked" in said) == (1, True), said

    server.start()
    code, said = tunebook("resume", mine, **machine(tmp_path / "second"))
    assert code == 0, said
    (there,) = (tmp_path / "second").glob("state/tunebook/searches/*/mine")
    events = events_in(there)
    assert epochs_by_trial(events) == {trial: list(range(1, EPOCHS + 1)) for trial in range(TRIALS)}
    assert not [each for each in events if isinstance(each, RetryEvent)]
    states = [each.state for each in events if isinstance(each, SearchEvent)]
    assert states == ["started", "interrupted", "resumed", "finished"]
    assert_all_agree(mine, **machine(tmp_path / "second"))


def written_study(storage: Store, server: Server, folder: Path) -> Path:
    study = digits_study(
        folder,
        name="mine",
        budget__trials=TRIALS,
        budget__epochs=EPOCHS,
        scheduler={"kind": "none"},
        base={**BASE, "model.width": 16},
        limits__retries=0,
        tracking__uri=server.uri,
    )
    study.model_copy(update={"storage": storage.uri}).write(folder)
    return folder / "study.yaml"


def folder_in(driver: Driver, its: Path) -> Path:
    """The folder in which a driver has begun its journal."""
    wait_until(
        lambda: bool(list(its.glob("state/tunebook/searches/*/mine/events.jsonl"))) or driver.exit_code == 0
    )
    (found,) = its.glob("state/tunebook/searches/*/mine")
    return found
