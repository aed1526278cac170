"""Machines that do not share the storage, or lack the data, are found before they train."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from search.learning.search import Search
from search.record.journal import LeftOutEvent
from tests.clusters.by_hand import TUNEBOOK, ByHand
from tests.clusters.trials import machines_of, places_of, resting
from tests.integration.small_searches import events_in
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.ssh]


@pytest.mark.scenario
def test_machines_that_cannot_train_are_refused_left_out_or_found_as_they_join(by_hand: ByHand) -> None:
    for host, cpus in ((1, 0), (2, 2), (3, 1)):
        by_hand.join(host, cpus)
    by_hand.hide(2, "searches")
    by_hand.hide(3, "pets")
    by_hand.study("both", budget__trials=1).write(by_hand.folder)
    checked = by_hand.tunebook("check", by_hand.folder / "study.yaml")
    assert checked.returncode == 1
    said = " ".join(checked.stdout.split())
    assert re.search(r"t2 \(.*it does not share the storage .*/searches with the head", said)
    assert re.search(r"t3 \(.* images of data.path .*/pets cannot be read", said)
    refused = by_hand.tunebook("search", by_hand.folder / "study.yaml")
    assert refused.returncode == 2
    assert "machine t2 (" in refused.stderr
    assert not (by_hand.folder / "searches" / "both").exists()

    by_hand.show(2, "searches")
    study = by_hand.study("others", budget__trials=3, budget__epochs=3000)
    study.with_values({"machines.unfit": "leave_out"}).write(by_hand.folder)
    log = by_hand.folder / "said.log"
    search = by_hand.starts("search", by_hand.folder / "study.yaml", log=log)
    folder = by_hand.folder / "searches" / "others"
    wait_until(lambda: any(each.event == "epoch" for each in events_in(folder)), fault=log.read_text)
    wait_until(lambda: [each.machine for each in places_of(events_in(folder))] == ["t2", "t2"])
    with resting(by_hand.hosts, events_in(folder)):
        by_hand.leave(3)
        by_hand.join(3)  # another machine for Ray, which is still without the data
        wait_until(lambda: left_out_count(folder) == 2, fault=log.read_text)
        by_hand.leave(3)
        by_hand.show(3, "pets")
        by_hand.join(3)
        wait_until(lambda: "t3" in machines_of(events_in(folder)), fault=log.read_text)
    by_hand.hosts.end(search)
    assert Search(folder).state == "interrupted", log.read_text()
    assert machines_of(events_in(folder)) == {"t2", "t3"}
    shown = by_hand.hosts.run(1, *TUNEBOOK, "show", folder, **by_hand.variables).stdout
    assert "t3 (" in shown
    assert "left out" not in shown, "it has come back with the data"
    assert log.read_text().count("left out, since") == 2
    assert not [each for each in events_in(folder) if each.event == "retry"], "they cost no trial anything"


def left_out_count(folder: Path) -> int:
    return sum(isinstance(each, LeftOutEvent) for each in events_in(folder))
