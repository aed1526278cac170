"""One trial trains in three processes on two hosts, of which one has twice the processors of the other."""

from __future__ import annotations

import pytest

from search.record.journal import EndEvent, PlaceEvent
from tests.clusters.pair import Pair
from tests.integration.small_searches import events_in

pytestmark = [pytest.mark.integration, pytest.mark.ssh]


def test_three_ranks_train_on_two_hosts_that_differ(pair: Pair) -> None:
    for host, cpus in ((1, 0), (2, 2), (3, 1)):
        pair.join(host, cpus)
    study = pair.study("ranks", budget__trials=1, budget__epochs=2)
    study.with_values({"resources.workers": 3, "resources.cpus": 1}).write(pair.folder)
    searched = pair.tunebook("search", pair.folder / "study.yaml")
    assert searched.returncode == 0, searched.stdout + searched.stderr
    events = events_in(pair.folder / "searches" / "ranks")
    (place,) = [each for each in events if isinstance(each, PlaceEvent)]
    assert sorted(rank.machine for rank in place.ranks) == ["t2", "t2", "t3"]
    assert [each.state for each in events if isinstance(each, EndEvent)] == ["finished"]
