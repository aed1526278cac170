"""Lets a driver that is asked to stop ask the processes that train for it to save, on whatever machine.

Ray cannot interrupt a step of a trial, and ends its process 10 to 15 s after it has asked for that. So the
request stands in Ray's store of keys and values, where a process looks when its state can be saved.
"""

from __future__ import annotations

import contextlib
from typing import Any

from ray.experimental import internal_kv

NAMESPACE = b"tunebook"
# Ray answers within milliseconds; one that does not is about to end its processes by itself
ANSWER_SECONDS = 2.0


class Stopped(RuntimeError):
    """A trial has been saved and trains no more, since its search is asked to stop."""


def ask_to_stop(search: str) -> None:
    """Ask all processes of a search, by its id, to save and to stop; none if Ray does not answer."""
    with contextlib.suppress(Exception):  # Ray's errors have no class of their own
        _store().internal_kv_put(_key(search), b"1", True, NAMESPACE, ANSWER_SECONDS)


def withdraw(search: str) -> None:
    """Take back what an earlier driver of this search has asked for."""
    with contextlib.suppress(Exception):
        _store().internal_kv_del(_key(search), False, NAMESPACE, ANSWER_SECONDS)


def is_asked_to_stop(search: str) -> bool:
    """Say whether a search is asked to stop; no if Ray does not answer, or there is none."""
    with contextlib.suppress(Exception):
        return _store().internal_kv_get(_key(search), NAMESPACE, ANSWER_SECONDS) is not None
    return False


def _store() -> Any:
    return internal_kv.internal_kv_get_gcs_client()


def _key(search: str) -> bytes:
    return f"stop {search}".encode()
