"""Checks whether a journal belongs to this search: the space as it is now must give what was recorded.

A search that went on with other rules, defaults or rungs than it began with would be two searches in one.
"""

from __future__ import annotations

from typing import Any

from search.record.chain import JournalError
from search.record.differences import first_difference
from search.record.journal import Event, SettledEvent, TrialEvent
from spaces.space import Space
from trainable.errors import FaultyInput

CHANGED = "finish it with the version and the study that began it, or start a new search"
UNCHECKED = {"sequence", "time", "why", "version"}
"""The fields of a settled event on which no draw and no decision depends."""


def check_event(event: Event, space: Space, settled: SettledEvent, where: str) -> None:
    """Raises JournalError, which names the field, where a recorded event is not what this search writes.

    `settled` is the event that this search would write; `where` names the journal.
    """
    match event:
        case SettledEvent():
            was, now = (each.model_dump(mode="json", exclude=UNCHECKED) for each in (event, settled))
            _refuse_difference(where, "", was, now)
        case TrialEvent():
            _refuse_difference(where, f"trial {event.trial}: ", event.recipe, _recipe(event, space))
        case _:
            pass


def _recipe(event: TrialEvent, space: Space) -> dict[str, Any] | None:
    """Returns the recipe that the values make now; None where they make none."""
    try:
        return space.recipe(event.values).tree()
    except FaultyInput:
        return None


def _refuse_difference(where: str, what: str, was: Any, now: Any) -> None:
    if found := first_difference(was, now):
        field = f"{what}{found.path or 'the recipe'}"
        both = f"is {found.one} in the journal and {found.other} by this version of tunebook"
        raise JournalError(f"{where}: {field} {both}; {CHANGED}")
