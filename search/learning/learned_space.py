"""Builds the space of a study, with what earlier searches teach as beliefs in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from search.learning.earlier import Earlier, earlier_searches
from search.learning.lessons import Lesson, with_lessons
from search.learning.likeness import Likeness, likeness
from search.learning.standings import LEAST_TRIALS
from search.study import Study
from search.study.space import LearnedSpace, SpaceBuilder, build_space
from spaces.catalog.overrides import OVERRIDES
from spaces.conditions import holds, kind_of, options_of, scalars_of, value_of
from spaces.domains import Value, counted
from spaces.facts import Facts
from spaces.priors import Normal
from spaces.rules.rules import RULES
from spaces.space import NOTHING_BELIEVED, Dimension, Space
from trainable.data import DataInfo
from trainable.recipe import LEARNING_RATES
from trainable.recipe.models import MODEL_NAME


def space_of(study: Study, facts: Facts, info: DataInfo) -> LearnedSpace:
    """Return the space that a new search of a study draws from; `space.learn_from` is read.

    Raises UserError (StudyError, SpaceError).
    """
    return learning_space(study)(facts, info)


def learning_space(study: Study) -> SpaceBuilder:
    """Open the searches that a study learns from, and return what builds its space. Raises StudyError."""
    return partial(learned_space, study, earlier=earlier_searches(study))


def learned_space(
    study: Study, facts: Facts, info: DataInfo, earlier: Sequence[Earlier] = ()
) -> LearnedSpace:
    """Return what `space_of` returns, from earlier searches that are open already."""
    space = build_space(study, facts, info)
    if not earlier:
        return LearnedSpace(space)
    alike = [likeness(each.facts, facts) for each in earlier]
    pairs = list(zip(earlier, alike, strict=True))
    lessons = {
        dimension.name: [_lesson(each, likes, space, dimension, facts) for each, likes in pairs]
        for dimension in space.dimensions
        if not _is_persons(dimension)
    }
    learned = tuple(
        with_lessons(each, [lesson for lesson in lessons.get(each.name, ()) if lesson is not None])
        for each in space.dimensions
    )
    lines = tuple(
        _line(each, likes, space, {name: found[at] for name, found in lessons.items()})
        for at, (each, likes) in enumerate(pairs)
    )
    return LearnedSpace(replace(space, dimensions=learned), lines)


def _is_persons(dimension: Dimension) -> bool:
    """Say whether a person wrote what to believe of a field: that is left as it is."""
    return dimension.source.startswith(OVERRIDES) and dimension.beliefs != NOTHING_BELIEVED


def _lesson(
    earlier: Earlier, likes: Likeness, space: Space, dimension: Dimension, facts: Facts
) -> Lesson | None:
    """Return what a search says of a dimension; None where that search does not vary the field."""
    theirs = next(
        (
            each
            for each in earlier.space.dimensions
            if each.path == dimension.path
            and each.name in earlier.optima
            and set(_kinds(space, dimension)) <= set(_kinds(earlier.space, each))
        ),
        None,
    )
    if theirs is None:
        return None
    rule = _rule_value(earlier, theirs, facts)
    return Lesson(earlier.name, earlier.optima[theirs.name], theirs.domain, rule, likes)


def _kinds(space: Space, dimension: Dimension) -> tuple[Value, ...]:
    """Return the kinds of its section that have a dimension: SGD's rate says nothing of Adam's."""
    kind = kind_of(dimension.path)
    if kind == dimension.path:
        return ()
    if dimension.when is not None and dimension.when.path == kind:
        return dimension.when.values
    return options_of(space.dimensions).get(kind, (value_of(space.base, kind),))


def _rule_value(earlier: Earlier, dimension: Dimension, facts: Facts) -> float | None:
    """Return where this version's rule looks first, given an earlier search's facts and its best trial.

    The rule is asked anew, since another version may have begun that search, or a person may have written
    beliefs for it. None where no rule says where to look, and where a sweep moved the rates of only one of
    the two searches.
    """
    swept = dimension.path in LEARNING_RATES and (facts.lr_band is None) != (earlier.facts.lr_band is None)
    rules = [rule for rule in RULES if rule.path == dimension.path]
    values = earlier.best_values(dimension)
    if swept or not rules or values is None:
        return None
    recipe = earlier.space.recipe(values)
    scalars = scalars_of(recipe)
    network = earlier.facts.of_network(scalars.get(MODEL_NAME))
    found = [rule.of(network, scalars) for rule in rules if holds(rule.when, recipe)]
    priors = [each.prior for each in found if each is not None]
    return next((each.centre for each in priors if isinstance(each, Normal)), None)


def _line(earlier: Earlier, likes: Likeness, space: Space, lessons: Mapping[str, Lesson | None]) -> str:
    """Return what a search taught and with what weight, or why it taught nothing."""
    common = [
        (dimension, lesson)
        for dimension in space.dimensions
        if (lesson := lessons.get(dimension.name)) is not None
    ]
    taught = sum(with_lessons(dimension, [lesson]) != dimension for dimension, lesson in common)
    if why := _why_nothing(earlier, len(common), taught):
        return f"{earlier.address}: nothing is learned: {why}"
    apart = f": {'; '.join(likes.words)}" if likes.words else ""
    weight = f"weight {likes.share:.0%} of that of a search with the same facts{apart}"
    which = f"{taught} of {counted(len(common), 'field')} that both vary"
    return f"{earlier.address}: {len(earlier.observed)} trials teach {which} ({weight})"


def _why_nothing(earlier: Earlier, common: int, taught: int) -> str | None:
    """Return why a search taught nothing; None where it taught `taught` of the `common` fields."""
    if (count := len(earlier.observed)) < LEAST_TRIALS:
        return f"only {count} of its trials have a result, and at least {LEAST_TRIALS} are needed"
    if not earlier.space.dimensions:
        return "nothing varies in it"
    if not earlier.optima:
        return f"luck explains the scores of its {count} trials as well as their values do"
    if not common:
        return "it varies none of the fields that are free here"
    if not taught:
        return f"its {count} trials show no best value of {counted(common, 'field')} that both vary"
    return None
