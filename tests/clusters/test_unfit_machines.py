"""Machines that do not share the storage, or lack the data, are found before they train."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from search.record.journal import LeftOutEvent
from tests.clusters.pair import TUNEBOOK, Pair
from tests.clusters.trials import machines_of, resting
from tests.integration.small_searches import events_in
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.ssh]


def test_machines_that_cannot_train_are_refused_left_out_or_found_as_they_join(pair: Pair) -> None:
    for host, cpus in ((1, 0), (2, 2), (3, 1)):
        pair.join(host, cpus)
    pair.hide(2, "searches")
    pair.hide(3, "pets")
    pair.study("both", budget__trials=1).write(pair.folder)
    checked = pair.tunebook("check", pair.folder / "study.yaml")
    assert checked.returncode == 1
    said = " ".join(checked.stdout.split())
    assert re.search(r"t2 \(.*it does not share the storage .*/searches with the head", said)
    assert re.search(r"t3 \(.* images of data.path .*/pets cannot be read", said)
    refused = pair.tunebook("search", pair.folder / "study.yaml")
    assert refused.returncode == 2
    assert "machine t2 (" in refused.stderr
    assert not (pair.folder / "searches" / "both").exists()

    pair.show(2, "searches")
    study = pair.study("others", budget__trials=3, budget__epochs=3000)
    study.with_values({"machines.unfit": "leave_out"}).write(pair.folder)
    log = pair.folder / "said.log"
    search = pair.starts("search", pair.folder / "study.yaml", log=log)
    folder = pair.folder / "searches" / "others"
    wait_until(lambda: any(each.event == "epoch" for each in events_in(folder)), fault=log.read_text)
    with resting(pair.hosts, events_in(folder)):
        pair.leave(3)
        pair.join(3)  # another machine for Ray, which is still without the data
        wait_until(lambda: left_out_count(folder) == 2, fault=log.read_text)
        pair.leave(3)
        pair.show(3, "pets")
        pair.join(3)
        wait_until(lambda: "t3" in machines_of(events_in(folder)), fault=log.read_text)
    search.terminate()
    search.wait()
    assert machines_of(events_in(folder)) == {"t2", "t3"}
    shown = pair.hosts.run(1, *TUNEBOOK, "show", folder, **pair.variables).stdout
    assert "t3 (" in shown
    assert "left out" not in shown, "it has come back with the data"
    assert log.read_text().count("left out, since") == 2
    assert not [each for each in events_in(folder) if each.event == "retry"], "they cost no trial anything"


def left_out_count(folder: Path) -> int:
    return sum(isinstance(each, LeftOutEvent) for each in events_in(folder))
