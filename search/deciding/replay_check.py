"""Checks whether a journal belongs to this search: the space as it is now must give what was recorded.

A search that went on with other rules, defaults or rungs than it began with would be two searches in one.
"""

from __future__ import annotations

from typing import Any

from search.deciding.new_events import recipe_of
from search.record.chain import JournalError
from search.record.differences import first_difference
from search.record.journal import Event, SettledEvent, TrialEvent
from spaces.space import Space
from trainable.errors import FaultyInput

# no draw and no decision depends on these fields of a settled event
UNCHECKED = {"sequence", "time", "why", "version"}


def check_event(event: Event, space: Space, settled: SettledEvent, version: str, where: str) -> None:
    """Raises JournalError, which names the field, where a recorded event is not what this search writes.

    `settled` is the event that this search would write, `version` tunebook's version that began the search;
    `where` names the journal.
    """
    match event:
        case SettledEvent():
            was, now = (each.model_dump(mode="json", exclude=UNCHECKED) for each in (event, settled))
            found = _difference("", was, now)
        case TrialEvent():
            found = _difference(f"trial {event.trial}: ", event.recipe, _recipe_now(event, space))
        case _:
            return
    if found is not None:
        advice = f"finish it with its own study and tunebook {version}, or start a new search"
        raise JournalError(f"{where}: {found}; {advice}")


def _recipe_now(event: TrialEvent, space: Space) -> dict[str, Any] | None:
    """Return the recipe that the values make now; None where they make none."""
    try:
        return recipe_of(space, event).tree()
    except FaultyInput:
        return None


def _difference(what: str, was: Any, now: Any) -> str | None:
    """Return in words the first field that differs; None where none does."""
    if (found := first_difference(was, now)) is None:
        return None
    field = f"{what}{found.path or 'the recipe'}"
    return f"{field} is {found.one} in the journal and {found.other} by this version of tunebook"
