"""Tests how many trials a search may have at once while machines join and leave."""

from __future__ import annotations

import pytest

from search.facts.hardware import Hardware, Node, PerTrial
from search.running.slots import LOOK_SECONDS, ClusterSlots, FixedSlots

TRIAL = PerTrial(cpus=1, gpus=1.0)


class Machines:
    """A cluster's machines, and a clock that a test moves."""

    def __init__(self, *nodes: Node) -> None:
        self.nodes, self.seconds, self.looks = nodes, 0.0, 0

    def look(self) -> Hardware:
        self.looks += 1
        return Hardware(self.nodes)

    def clock(self) -> float:
        return self.seconds


def test_machines_that_join_and_leave_change_the_room() -> None:
    machines = Machines(Node(8, 2))
    slots = ClusterSlots(TRIAL, None, machines.look, machines.clock)
    assert slots() == 3, "one trial more than there is room for: it shows an autoscaler that more is wanted"
    machines.nodes, machines.seconds = (Node(8, 2), Node(8, 4)), LOOK_SECONDS
    assert slots() == 7
    machines.nodes, machines.seconds = (), 2 * LOOK_SECONDS
    assert slots() == 1, "a search that has lost its machines still asks for one"


def test_machines_are_not_counted_at_every_question() -> None:
    machines = Machines(Node(8, 2))
    slots = ClusterSlots(TRIAL, None, machines.look, machines.clock)
    assert [slots() for _ in range(50)] == [3] * 50
    assert machines.looks == 1


@pytest.mark.parametrize(("asked", "expected"), [(1, 1), (2, 2), (9, 3)])
def test_the_study_s_limit_holds(asked: int, expected: int) -> None:
    machines = Machines(Node(8, 2))
    assert ClusterSlots(TRIAL, asked, machines.look, machines.clock)() == expected


@pytest.mark.parametrize(("parked", "expected"), [(0, 3), (1, 2), (2, 0)])
def test_processes_that_are_parked_take_places_of_a_cluster(parked: int, expected: int) -> None:
    machines = Machines(Node(8, 2))
    assert ClusterSlots(TRIAL, None, machines.look, machines.clock)(parked) == expected


def test_a_cluster_that_has_lost_all_machines_has_no_place_that_is_taken() -> None:
    machines = Machines()
    assert ClusterSlots(TRIAL, None, machines.look, machines.clock)(1) == 1


@pytest.mark.parametrize(
    ("concurrent", "parked", "expected"), [(4, 0, 4), (4, 1, 3), (1, 1, 1), (1, 3, 1), (1, 4, 0), (4, 5, 0)]
)
def test_a_study_that_trains_fewer_trials_than_fit_has_places_to_spare(
    concurrent: int, parked: int, expected: int
) -> None:
    assert FixedSlots(concurrent, fits=4)(parked) == expected
