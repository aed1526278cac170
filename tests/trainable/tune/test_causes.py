"""Whose fault a failed attempt was, by its error's text as Ray writes it and by the ranks' errors;
and who can reach the address where ranks meet."""

from __future__ import annotations

import errno
import os
import socket

import pytest
from ray.exceptions import ActorPlacementGroupRemoved, OutOfMemoryError, RayActorError

from trainable.errors import RunError, crashes_named
from trainable.ranks import RankSilent
from trainable.tune.causes import REFUSALS, DiskRefused, cause_of, last_error, refusals_named
from trainable.tune.team import RankLost, cause, interface_of, open_store

TRACEBACK = """\x1b[36mray::ResourceTrainable.train()\x1b[39m (pid=3986, ip=127.0.0.1, repr=<...>)
  File "/x/worker.py", line 99, in step
    self._checkpoints.save(self._run.state_dict(), self._run.history)
OSError: [Errno 28] No space left on device

The above exception was the direct cause of the following exception:

\x1b[36mray::ResourceTrainable.train()\x1b[39m (pid=3986, ip=127.0.0.1, repr=<...>)
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/x/causes.py", line 39, in refusals_named
    raise DiskRefused(f"{in_words(refused)}") from error
{last}
"""
# What Ray 2.60 says after a machine was drained, with the reason `preemption`, and died
TAKEN_BACK = (
    "The actor died unexpectedly before finishing this task.\n\tclass_name: \n"
    "\tactor_id: b58ab1d1420ad1c19aedcdc202000000\n"
)
# What Ray 2.60 says in the first seconds after a machine is lost
UNAVAILABLE = (
    "The actor c1d9c13220d5b598bee574d202000000 is unavailable: The actor is temporarily unavailable: "
    "RpcError: RPC error: Socket closed rpc_code: 14. The task may or may not have been executed on the "
    "actor."
)
DIED = (
    "The actor died unexpectedly before finishing this task.\n\tclass_name: ResourceTrainable\n\tpid: 7\n"
    "The actor is dead because its {}"
)


def test_the_last_error_of_a_traceback_is_one_line_without_modules() -> None:
    text = TRACEBACK.replace("{last}", "trainable.tune.causes.DiskRefused: No space left\n  on device: x")
    assert last_error(text) == "DiskRefused: No space left on device: x"


def test_an_error_without_a_message_and_a_text_without_a_traceback_are_read_too() -> None:
    assert last_error(TRACEBACK.replace("{last}", "RuntimeError")) == "RuntimeError"
    assert last_error(DIED.format("worker process has died.")).startswith("The actor died unexpectedly")
    assert last_error("") == ""


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("trainable.tune.causes.DiskRefused: No space left on device", "disk"),
        ("ray.exceptions.OutOfDiskError: Local disk is full", "disk"),
        ("trainable.errors.RunError: recipe abc: OSError: No space left on device", "crash"),
        ("ValueError: DiskRefused: the node has died, it was preempted", "crash"),
        ("trainable.tune.team.RankLost: rank 1 has died: its node was removed", "infrastructure"),
        (DIED.format("worker process has died. Worker exits with an exit code 3."), "crash"),
        (DIED.format("node has died. Node Id: abc."), "infrastructure"),
        (DIED.format("node was terminated: it was preempted"), "preempted"),
        (TAKEN_BACK, "preempted"),
        (UNAVAILABLE, "infrastructure"),
        (f"RunError: recipe abc: ValueError: {UNAVAILABLE}", "crash"),
    ],
)
def test_the_cause_of_a_failure_is_known_from_its_text(text: str, cause: str) -> None:
    assert cause_of(last_error(text)) == cause


@pytest.mark.parametrize("number", REFUSALS)
def test_what_a_disk_refuses_is_named_also_below_other_errors(number: int) -> None:
    with pytest.raises(DiskRefused, match=f"{os.strerror(number)}: /x"), refusals_named():
        save(number)


def save(number: int) -> None:
    """Raises what torch.save raises on a full disk, within a run."""
    with crashes_named("recipe abc"):
        try:
            raise OSError(number, os.strerror(number), "/x")
        except OSError:
            raise RuntimeError("unexpected pos 704 vs 598")  # noqa: B904


def test_other_errors_pass_unchanged() -> None:
    for error in (OSError(errno.ENOENT, "no such file"), ValueError("wrong")):
        with pytest.raises(type(error)) as raised, refusals_named():
            raise error
        assert raised.value is error


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
