"""Tests how many trials a search may have at once while machines join and leave."""

from __future__ import annotations

import pytest

from search.facts.hardware import Hardware, Node, PerTrial
from search.running.room import LOOK_SECONDS, ClusterRoom

TRIAL = PerTrial(cpus=1, gpus=1.0)


class Machines:
    """Holds a cluster's machines, and a clock that a test moves."""

    def __init__(self, *nodes: Node) -> None:
        self.nodes, self.seconds, self.looks = nodes, 0.0, 0

    def look(self) -> Hardware:
        self.looks += 1
        return Hardware(self.nodes)

    def clock(self) -> float:
        return self.seconds


def test_machines_that_join_and_leave_change_the_room() -> None:
    machines = Machines(Node(8, 2))
    room = ClusterRoom(TRIAL, None, machines.look, machines.clock)
    assert room() == 3, "one trial more than there is room for: it shows an autoscaler that more is wanted"
    machines.nodes, machines.seconds = (Node(8, 2), Node(8, 4)), LOOK_SECONDS
    assert room() == 7
    machines.nodes, machines.seconds = (), 2 * LOOK_SECONDS
    assert room() == 1, "a search that has lost its machines still asks for one"


def test_machines_are_not_counted_at_every_question() -> None:
    machines = Machines(Node(8, 2))
    room = ClusterRoom(TRIAL, None, machines.look, machines.clock)
    assert [room() for _ in range(50)] == [3] * 50
    assert machines.looks == 1


@pytest.mark.parametrize(("asked", "expected"), [(1, 1), (2, 2), (9, 3)])
def test_the_study_s_limit_holds(asked: int, expected: int) -> None:
    machines = Machines(Node(8, 2))
    assert ClusterRoom(TRIAL, asked, machines.look, machines.clock)() == expected
