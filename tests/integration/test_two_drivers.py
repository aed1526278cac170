"""Two processes that start together on one name: one searches, the other leaves no trace."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from search.commands.guests import driver
from search.record.folder import read_search
from search.record.home import EVENTS_FILE, LOCK_FILE
from tests.integration.drivers import Driver, assert_all_agree
from tests.integration.small_searches import digits_study
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("ray_session")]


def driver_with_seed(storage: Path, seed: int) -> Driver:
    """A driver of a search that takes some seconds to prepare, since it first looks for a learning rate."""
    folder = storage.parent / f"seed-{seed}"
    folder.mkdir()
    study = digits_study(storage, name="mine", seed=seed, space__probes=["lr-find"], budget__trials=2)
    study.write(folder)
    return Driver("search", folder / "study.yaml", log=folder / "log")


@pytest.mark.scenario
def test_the_second_is_refused_at_once_and_the_first_can_be_resumed(tmp_path: Path) -> None:
    folder = tmp_path / "storage" / "mine"
    drivers = {seed: driver_with_seed(folder.parent, seed) for seed in (1, 2)}
    wait_until(lambda: any(each.exit_code is not None for each in drivers.values()), every=0.05)
    refused, winner = sorted(drivers, key=lambda seed: drivers[seed].exit_code is None)
    assert drivers[refused].wait() == 2
    said = drivers[refused].log.read_text().splitlines()
    (line,) = (each for each in said if each.startswith("tunebook: "))
    holder = f"in process {drivers[winner].pid} on "
    assert line.startswith(f"tunebook: {folder}: this search is running already, {holder}")
    assert (folder / LOCK_FILE).exists()
    assert not (folder / EVENTS_FILE).exists(), "refused while the other one prepared"

    drivers[winner].wait_for(folder, lambda events: len(events) >= 3)
    drivers[winner].send(signal.SIGKILL)
    assert read_search(folder).seed == winner
    assert driver().resume(folder) == "finished"
    assert_all_agree(folder)
