"""Searches kept in an object store: a machine may go, another one goes on, and never two at once."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path

import pytest

from search.commands.options import IMPORTS
from search.learning.search import Search
from search.record.journal import Event, SearchEvent, StartEvent
from search.record.storage import local_folder
from tests.integration.drivers import Driver, assert_all_agree, machine, tunebook
from tests.integration.small_searches import BASE, digits_study, epochs_by_trial, events_in
from tests.s3_server import S3Server
from tests.trainable.small_images import write_classes
from trainable.files.store import Store

# For a driver that has to wait until another one counts as dead
SOON = "from search.record import lease; lease.SILENCE_SECONDS = 5.0"

EPOCHS = 20
HALF_WAY = range(2, 13)  # after each of these epochs of 20 a trial surely trains on

pytestmark = pytest.mark.integration


@pytest.fixture
def storage(s3: S3Server, tmp_path: Path) -> Store:
    return Store(s3.uri).at(tmp_path.name, "searches")


def a_half_way_trial_is_there(store: Store) -> bool:
    """Whether a trial's newest checkpoint in the store is one after which it surely trains on."""
    found = re.findall(r"trials/(\d+)/epoch-(\d+)/", "\n".join(store.files()))
    newest = {trial: max(int(epoch) for other, epoch in found if other == trial) for trial, _ in found}
    return any(epoch in HALF_WAY for epoch in newest.values())


def is_stopped_half_way(driver: Driver, store: Store) -> bool:
    """Stop a driver; where none of its trials in the store is half-way by then, it goes on."""
    if not a_half_way_trial_is_there(store):
        return False
    driver.send_to_all(signal.SIGSTOP)
    if a_half_way_trial_is_there(store):
        return True
    driver.send_to_all(signal.SIGCONT)
    return False


def drivers(events: list[Event]) -> int:
    return sum(isinstance(event, SearchEvent) and event.state != "finished" for event in events)


def there(store: Store) -> list[str]:
    """The journal's lines in the store."""
    return (store.read("events.jsonl") or b"").decode().splitlines()


@pytest.mark.scenario
def test_another_machine_goes_on_and_the_first_one_comes_too_late(
    storage: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that hangs is as good as dead; when it comes back, it finds the search taken over."""
    mine, study = storage.at("mine"), written_study(storage, "mine", tmp_path)
    machines = [tmp_path / name for name in ("first", "second", "third")]
    first = Driver("search", study, log=tmp_path / "log-1", **machine(machines[0]))
    first.wait_until(lambda: is_stopped_half_way(first, mine))
    before = there(mine)
    assert len(before) > 3

    second = Driver("resume", mine.uri, log=tmp_path / "log-2", first=SOON, **machine(machines[1]))
    folder = folder_in(second, machines[1], "mine")
    second.wait_for(folder, lambda events: drivers(events) == 2)
    code, said = tunebook("resume", mine.uri, **machine(machines[2]))
    assert (code, "this search is running already, in process" in said) == (2, True)
    assert "mine: running" in tunebook("show", mine.uri, **machine(machines[2]))[1]
    first.send_to_all(signal.SIGCONT)
    assert first.wait() == 130
    assert "another driver has taken this search over" in first.log.read_text()
    assert second.wait() == 0, second.log.read_text()

    assert there(mine)[: len(before)] == before
    events = events_in(folder)
    for epochs in epochs_by_trial(events).values():
        assert epochs == list(range(1, len(epochs) + 1))
    again = [event for event in events if isinstance(event, StartEvent) and event.attempt > 1]
    assert max(event.epoch for event in again) >= 1, "from the checkpoints in the store"
    for name, value in machine(machines[2]).items():
        monkeypatch.setenv(name, value)
    summary = Search(local_folder(mine.uri)).progress
    assert (summary.state, summary.best) == ("finished", Search(folder).progress.best)
    kept = {Path(name).parts[1] for name in mine.files() if name.startswith("trials/") and "epoch-" in name}
    assert kept == {f"{trial.id:04d}" for trial in summary.trials if trial.state == "finished"}
    assert ".ray" not in mine.names()
    assert not list(tmp_path.glob("second/cache/tunebook/trials/*/epoch-*")), (
        "what the store has is not kept twice"
    )
    assert "mine: finished" in tunebook("show", mine.uri, **machine(machines[2]))[1]
    assert_all_agree(mine.uri, **machine(machines[2]))


@pytest.mark.scenario
def test_a_store_that_is_silent_for_a_while_costs_no_trial(
    s3: S3Server, storage: Store, tmp_path: Path
) -> None:
    study = written_study(storage, "patient", tmp_path, epochs=12)
    driver = Driver("search", study, log=tmp_path / "log", **machine(tmp_path / "machine"))
    folder = folder_in(driver, tmp_path / "machine", "patient")
    driver.wait_for(folder, lambda events: bool(epochs_by_trial(events)))
    with s3.silent():
        time.sleep(12.0)
    assert driver.wait() == 0, driver.log.read_text()
    summary = Search(folder).progress
    assert [trial.state for trial in summary.trials].count("failed") == 0
    assert "lacks" not in driver.log.read_text()
    assert there(storage.at("patient")) == (folder / "events.jsonl").read_text().splitlines()
    assert_all_agree(storage.at("patient").uri, **machine(tmp_path / "another"))


@pytest.mark.smoke("an object store")
def test_images_in_a_store_are_searched_on_and_copied_once(storage: Store, tmp_path: Path) -> None:
    """They are read while training, from the copy that the driver made on the machine."""
    write_classes(tmp_path / "pets", {"cat": 16, "dog": 16})
    images = storage.at("pets")
    for file in (tmp_path / "pets").rglob("*.*"):
        images.put(file, file.relative_to(tmp_path / "pets").as_posix())
    study = digits_study(tmp_path / "searches", name="pets", budget__trials=2, budget__epochs=1)
    on_pets = {"data.path": images.uri, "data.in_memory": False, "base.loop.batch_size": 8}
    study.with_values(on_pets).write(tmp_path)
    code, said = tunebook("search", tmp_path / "study.yaml", **machine(tmp_path))
    assert code == 0, said
    summary = Search(tmp_path / "searches" / "pets").progress
    assert [trial.state for trial in summary.trials] == ["finished"] * 2
    assert len(list((tmp_path / "cache" / "tunebook" / "data").glob("*/pets"))) == 1
    code, said = tunebook("explain", images.uri, **machine(tmp_path))
    assert (code, "2 classes" in said) == (0, True)


def test_a_store_is_no_place_for_sqlite_and_must_be_there(storage: Store, tmp_path: Path) -> None:
    words = ("search", "--data", "digits", "--trials", "1", "--epochs", "1", "--name", "other")
    code, said = tunebook(*words, "--storage", storage.uri, **machine(tmp_path))
    assert (code, "SQLite cannot be used" in said) == (2, True)
    missing = storage.uri.replace("tunebook/", "nonsuch/")
    server = ("--tracking-uri", f"sqlite:///{tmp_path}/mlflow.db")
    code, said = tunebook(*words, "--storage", missing, *server, **machine(tmp_path))
    (line,) = (each for each in said.splitlines() if each.startswith("tunebook: "))
    assert (code, str(Store(missing)) in line) == (2, True)
    others = [each for each in said.splitlines() if each != line]
    assert all(each.startswith((IMPORTS, "more: docs/")) for each in others)  # what takes long, and the page
    code, said = tunebook("show", storage.at("nonsuch").uri, **machine(tmp_path))
    assert (code, "not a search folder" in said) == (2, True)


def written_study(storage: Store, name: str, folder: Path, epochs: int = EPOCHS) -> Path:
    """The file of a study whose trials take some seconds."""
    study = digits_study(
        folder,
        name=name,
        budget__trials=2,
        budget__epochs=epochs,
        scheduler={"kind": "none"},
        base={**BASE, "model.width": 16},  # epochs slow enough to be stopped in one
        tracking__uri=f"sqlite:///{folder}/mlflow.db",
    )
    study.model_copy(update={"storage": storage.uri}).write(folder)
    return folder / "study.yaml"


def folder_in(driver: Driver, its: Path, name: str) -> Path:
    """The folder in which a driver has begun its journal."""
    found: list[Path] = []

    def begun() -> bool:
        found.extend(each.parent for each in its.glob(f"state/tunebook/searches/*/{name}/events.jsonl"))
        return bool(found)

    driver.wait_until(begun)
    return found[0]
