"""Makes the events that a ledger writes for new trials, with their whole recipes, and checks that those of a
journal are what it would write now.

A search that went on with other rules, defaults or rungs than it began with would be two searches in one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from search.record.chain import JournalError
from search.record.journal import Event, Repeat, SettledEvent, TrialEvent
from search.record.trials import Trial, first_difference
from search.study.first import FirstTrial
from spaces.domains import Value
from spaces.space import Space
from trainable.errors import FaultyInput
from trainable.recipe import Recipe, digest_of

# no draw and no decision depends on these fields of a settled event
UNCHECKED = {"sequence", "time", "why", "version"}


def new_trial(
    space: Space,
    number: int,
    index: int,
    first: Sequence[FirstTrial],
    draw: Callable[[], Mapping[str, Value]],
) -> TrialEvent:
    """Return the event of a trial of the search itself, whose index is counted without trials that repeat
    others: at 0 is the documented recipe, then come those that a person asked for, and then those that are
    drawn."""
    if index == 0:
        return _drawn_trial(space, number, space.own, own=True)
    if index <= len(first):
        asked = first[index - 1]
        return TrialEvent(
            trial=number,
            values=asked.values,
            digest=digest_of(asked.recipe),
            recipe=asked.recipe,
            first=asked.mark,
        )
    return _drawn_trial(space, number, draw(), own=False)


def _drawn_trial(space: Space, number: int, values: Mapping[str, Value], *, own: bool) -> TrialEvent:
    """Return the event of a trial with these values; without a recipe where they make none."""
    event = TrialEvent(trial=number, values=dict(values), own=own)
    try:
        recipe = space.recipe(values)
    except FaultyInput:
        return event
    return event.model_copy(update={"recipe": recipe.tree(), "digest": recipe.digest()})


def repeated_trial(space: Space, number: int, original: Trial, repeat: Repeat) -> TrialEvent:
    """Return the event of a trial that trains the recipe of another one again."""
    recipe = repeat.recipe(recipe_of(space, original))
    return TrialEvent(
        trial=number,
        values=dict(original.values),
        digest=recipe.digest(),
        recipe=recipe.tree(),
        first=original.first,
        repeat=repeat,
    )


def recipe_of(space: Space, trial: Trial | TrialEvent) -> Recipe:
    """Return the recipe that a trial trains. Raises FaultyInput where its values make none.

    A person's first trial may be no point of the space: its recipe is the recorded one.
    """
    if trial.first is not None and trial.recipe is not None:
        return Recipe.from_tree(trial.recipe)
    recipe = space.recipe(trial.values)
    return recipe if trial.repeat is None else trial.repeat.recipe(recipe)


def check_event(event: Event, space: Space, settled: SettledEvent, version: str, where: str) -> None:
    """Raise JournalError, which names the field, where a recorded event is not what this search writes.

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
