"""Tests which rank's error is reported of a failed trial, and who can reach the address where ranks meet."""

from __future__ import annotations

import socket

import pytest
from ray.exceptions import ActorPlacementGroupRemoved, OutOfMemoryError, RayActorError

from trainable.errors import RunError
from trainable.ranks import RankSilent
from trainable.tune.team import RankLost, cause, interface_of, open_store

SILENT = RankSilent("ranks could not exchange tensors: Connection closed by peer")
NAMED = RunError("epoch 3: RankSilent: ranks could not exchange tensors: NCCL error")
OWN = RunError("epoch 3: ValueError: a path of gloo/ and NCCL")


@pytest.mark.parametrize(
    "errors", [{0: SILENT, 1: OWN}, {0: OWN, 1: SILENT}, {0: NAMED, 1: OWN, 2: SILENT}, {1: OWN}]
)
def test_a_rank_s_own_error_goes_before_the_waiting_of_others(errors: dict[int, Exception]) -> None:
    assert cause(errors) is OWN


@pytest.mark.parametrize(
    "death", [RayActorError(), OutOfMemoryError("the machine's memory ran out"), ActorPlacementGroupRemoved()]
)
def test_a_process_that_was_ended_goes_before_all(death: Exception) -> None:
    found = cause({0: OWN, 1: death, 2: SILENT})
    assert isinstance(found, RankLost)
    assert str(found).startswith("rank 1 of the trial has died")


def test_where_all_have_waited_the_first_is_reported() -> None:
    assert cause({0: SILENT, 1: NAMED}) is SILENT


def test_the_interface_of_an_address_is_found_by_its_name() -> None:
    assert interface_of("127.0.0.1") in {name for _, name in socket.if_nameindex()}
    assert interface_of("192.0.2.77") is None


def test_ranks_meet_at_one_address_of_this_machine_alone() -> None:
    store = open_store("127.0.0.1", world=2)
    socket.create_connection(("127.0.0.1", store.port), timeout=5).close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", store.port), timeout=5)
