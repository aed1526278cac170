"""Makes the events that a ledger writes for new trials, with their whole recipes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from search.record.journal import TrialEvent
from search.record.repeats import Repeat
from search.record.trials import Trial
from search.study.first import FirstTrial
from spaces.domains import Value
from spaces.space import Space
from trainable.errors import FaultyInput
from trainable.recipe import Recipe, digest_of


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
        return _first_trial(number, first[index - 1])
    return _drawn_trial(space, number, draw(), own=False)


def _drawn_trial(space: Space, number: int, values: Mapping[str, Value], *, own: bool) -> TrialEvent:
    """Return the event of a trial with these values; without a recipe where they make none."""
    event = TrialEvent(trial=number, values=dict(values), own=own)
    try:
        recipe = space.recipe(values)
    except FaultyInput:
        return event
    return event.model_copy(update={"recipe": recipe.tree(), "digest": recipe.digest()})


def _first_trial(number: int, first: FirstTrial) -> TrialEvent:
    return TrialEvent(
        trial=number,
        values=first.values,
        digest=digest_of(first.recipe),
        recipe=first.recipe,
        first=first.mark,
    )


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
