"""Machines join a cluster while a search runs there, and are taken back; neither costs a trial anything."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from search.record.journal import EndEvent, Event, RetryEvent, StartEvent
from search.record.lock import is_locked
from tests.clusters.trials import places_of
from tests.integration.clusters import NODES, Cluster
from tests.integration.drivers import assert_all_agree, tunebook
from tests.integration.small_searches import digits_study, epochs_by_trial, events_in
from tests.waiting import wait_until
from trainable.tune.causes import cause_of

pytestmark = pytest.mark.integration

EPOCHS = 2000  # no trial comes to its end: the test stops the search when it has seen what it looks for


@pytest.mark.scenario
def test_machines_that_join_add_trials_and_one_that_is_taken_back_costs_no_retry(
    one_node: Cluster, tmp_path: Path
) -> None:
    """A trial takes all of a node."""
    cluster, folder, at = one_node, tmp_path / "storage" / "mine", ("--address", one_node.dashboard)
    study = digits_study(
        tmp_path / "storage", name="mine", concurrent=2, budget__trials=2, budget__epochs=EPOCHS
    )
    alone = {"resources.cpus": 2, "limits.retries": 0, "scheduler.kind": "none", "base.model.width": 16}
    study.with_values(alone).write(tmp_path)
    submitted = cluster.tunebook("submit", tmp_path / "study.yaml", *at, "--detach")
    job = submitted.stdout.split("job ", 1)[1].split(":", 1)[0]

    def wait_for_epochs(trial: int, count: int) -> list[Event]:
        wait_until(
            lambda: len(epochs_by_trial(events_in(folder)).get(trial, [])) >= count,
            fault=lambda: cluster.tunebook("logs", job, *at).stdout,
        )
        return events_in(folder)

    begun = wait_for_epochs(0, 3)
    assert starts(begun) == [(0, 1)], "one node holds one trial"
    with resting(begun):
        cluster.start_nodes()
        wait_for_epochs(1, 1)
    both = epochs_by_trial(wait_for_epochs(1, 3))
    wait_for_epochs(0, len(both[0]) + 1)
    assert starts(events_in(folder)) == [(0, 1), (1, 1)], "the first goes on beside the second"

    with resting(begun):
        cluster.take_back(NODES[1])
        cluster.start_nodes()
        done = len(epochs_by_trial(events_in(folder))[1])
        wait_until(lambda: len(starts(events_in(folder))) == 3)
        events = wait_for_epochs(1, done + 1)
    cluster.tunebook("stop", job, *at)
    (retry,) = [each for each in events if isinstance(each, RetryEvent)]
    assert (retry.trial, cause_of(retry.reason)) == (1, "preempted"), retry.reason
    assert starts(events) == [(0, 1), (1, 1), (1, 2)]
    assert not [each for each in events if isinstance(each, EndEvent)], "limits.retries is 0"
    assert epochs_by_trial(events)[1] == list(range(1, len(epochs_by_trial(events)[1]) + 1))
    wait_until(lambda: not is_locked(folder))
    code, said = tunebook("sync", folder)  # the cluster kills a job soon after it has asked it to stop
    assert code == 0, said
    assert_all_agree(folder)


@contextmanager
def resting(events: list[Event]) -> Iterator[None]:
    """Stop the trials for the block: they would keep the processors from what the test waits for."""
    places = places_of(events)
    assert places
    for place in places:
        os.kill(place.process, signal.SIGSTOP)
    try:
        yield
    finally:
        for place in places:
            os.kill(place.process, signal.SIGCONT)


def starts(events: list[Event]) -> list[tuple[int, int]]:
    """Return the trials that started, in order, each with the number of the attempt."""
    return [(each.trial, each.attempt) for each in events if isinstance(each, StartEvent)]
