"""The text of a recipe's file: a head for people, each value with its reason, and the sources at the foot."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from search.learning.search import Search
from search.learning.standings import positions, standings
from search.record.trials import Trial
from spaces.domains import Choice, Value, Values, fraction_of, shown
from spaces.space import Dimension, Space
from trainable.errors import UserError, one_line
from trainable.extras import needing_run
from trainable.recipe import Recipe
from trainable.recipe.base import Purpose, is_citation, spelled_out
from trainable.recipe.optimizers import OPTIMIZER_KIND, OPTIMIZER_NAME
from trainable.recipe.yamlfile import to_yaml
from trainable.stages import stage

NAMED = 5  # so many values are named in the head
FIXED = "# What follows was fixed: the search varied nothing in these sections.\n"


def recipe_text(
    recipe: Recipe, reasons: Mapping[str, Purpose], varied: Collection[str], head: Sequence[str] = ()
) -> str:
    """Return a recipe as YAML that is read as the same recipe: the lines of the head, then the fields that
    the search `varied`, then the fixed ones, each value with its reason beside it; sources are numbers in
    brackets, which the foot explains.
    """
    marks: dict[str, int] = {}
    tree = searched_first(recipe.tree(), varied)
    comments = {path: _comment(reasons[path], marks) for path in _paths(tree) if path in reasons}
    searched = {path.partition(".")[0] for path in varied}
    above = {name: value for name, value in tree.items() if name in searched}
    below = {name: value for name, value in tree.items() if name not in searched}
    body = [to_yaml(above, comments), FIXED] if above else []
    lines = [*(f"# {one_line(line)}\n" for line in head), *("\n" if head else ""), *body]
    return "".join([*lines, to_yaml(below, comments), *_foot(marks)])


def bare_text(recipe: Recipe, varied: Collection[str]) -> str:
    """Return a recipe as YAML without comments, what was searched first."""
    return to_yaml(searched_first(recipe.tree(), varied), {})


def searched_first(tree: Mapping[str, Any], varied: Collection[str], above: str = "") -> dict[str, Any]:
    """Return a recipe's tree with what the search varied before what was fixed, in each section; `kind`,
    which says what the other fields of a section mean, stays ahead of them."""

    def place(name: str) -> int:
        path = f"{above}{name}"
        is_varied = path in varied or any(each.startswith(f"{path}.") for each in varied)
        return 0 if name == "kind" else 1 if is_varied else 2

    ordered = sorted(tree, key=place)  # stable: the recipe's order otherwise
    return {
        name: searched_first(value, varied, f"{above}{name}.")
        if isinstance(value := tree[name], dict)
        else value
        for name in ordered
    }


def _paths(tree: Mapping[str, Any], above: str = "") -> Iterator[str]:
    for name, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from _paths(value, f"{above}{name}.")
        else:
            yield f"{above}{name}"


def _comment(purpose: Purpose, marks: dict[str, int]) -> str:
    """Return the reason with its source: a number where it can be looked up, otherwise its words."""
    reason, source = purpose
    if not source:
        return reason
    return (
        f"{reason} [{marks.setdefault(source, len(marks) + 1)}]"
        if is_citation(source)
        else f"{reason} ({source})"
    )


def _foot(marks: Mapping[str, int]) -> Iterator[str]:
    if marks:
        yield "\n# Sources; tunebook's docs/sources.md says where the guides are from:\n"
    for source, number in marks.items():
        yield f"# [{number}] {one_line(spelled_out(source))}\n"


def values_that_matter(search: Search, trial: Trial) -> str:
    """Return a sentence on a trial's values, `NAMED` at most: on those that decide most in its search, or of
    too few trials to know, on those that are farthest from the documented recipe."""
    if trial.own:
        return "It is the documented recipe"
    space, values = search.space, trial.values
    if (at := positions(space, trial)) is None:
        return f"It was asked for by {trial.first}" if trial.first is not None else "It leaves the space"
    by_name = {each.name: each.path for each in space.dimensions if each.name in at}
    own = space.own
    if decisive := [by_name[name] for name in _decisive(search) if name in by_name]:
        named = [_value(path, values) for path in _without_twice(decisive)]
        return f"What decides most in this search: {', '.join(named[:NAMED])}"
    # a value that differs in its last digits alone reads as the documented one
    far = [
        path
        for path in _without_twice(_far_from_documented(space, trial))
        if path not in own or brief(own[path]) != brief(values[path])
    ]
    named = [f"{_value(path, values)}{_instead_of(path, own)}" for path in far[:NAMED]]
    if not far:
        return "Its values are the documented ones"
    return f"Farthest from the documented recipe: {', '.join(named)}"


def _value(path: str, values: Values) -> str:
    """Return a field with its value; of an optimizer of timm, whose kind does not say which one, its name."""
    name = f" ({values[OPTIMIZER_NAME]})" if path == OPTIMIZER_KIND and OPTIMIZER_NAME in values else ""
    return f"{path} {brief(values[path])}{name}"


def _without_twice(paths: Sequence[str]) -> list[str]:
    """Return paths without that of the name of timm's optimizer where its kind, which shows it, is among
    them."""
    return [path for path in paths if path != OPTIMIZER_NAME or OPTIMIZER_KIND not in paths]


def _decisive(search: Search) -> Sequence[str]:
    """Return the dimensions that decide who is among the best trials, the first the most; none where too few
    trials can be compared, or where what computes it is not installed."""
    try:
        with needing_run("what decides most"), stage("finding what decides most"):
            from search.reporting.importances import importances  # Optuna and scikit-learn take a second

            found = importances(search.space, search.trials, standings(search.progress))
    except UserError:
        return ()
    return [each.name for each in found.fields if each.share > 0.0]


def _far_from_documented(space: Space, trial: Trial) -> list[str]:
    """Return the paths whose values differ from the documented ones, the farthest in its range first; another
    option is as far as the whole range."""

    existing = space.named(trial.values)

    def distance(dimension: Dimension) -> float:
        own, value, domain = space.own.get(dimension.path), trial.values[dimension.path], dimension.domain
        if own is None or isinstance(domain, Choice) or own not in domain:
            return float(own != value)
        return abs(fraction_of(domain, value) - fraction_of(domain, own))

    away = {each.path: distance(each) for each in space.dimensions if each.name in existing}
    return sorted((path for path in away if away[path] > 0.0), key=lambda path: -away[path])


def _instead_of(path: str, own: Values) -> str:
    return f" (documented {brief(own[path])})" if path in own else ""


def brief(value: Value) -> str:
    """Return a value with three significant digits."""
    return f"{value:.3g}" if isinstance(value, float) else shown(value)
