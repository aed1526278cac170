"""Builds the next study: the old one with changes, after each of which it is still a valid search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from search.deciding.pruning import choose_pruning
from search.study import Study
from search.study.space import build_space, check_trials
from spaces.catalog.overrides import OVERRIDES, Varying, WrittenPrior, parse, path_of
from spaces.conditions import has
from spaces.domains import shown
from spaces.facts import Facts
from spaces.priors import describe
from spaces.space import Dimension, Space
from trainable.data import DataInfo
from trainable.recipe.trees import value_at


@dataclass(frozen=True)
class Draft:
    """A study with what was measured for it."""

    study: Study
    facts: Facts
    info: DataInfo

    @cached_property
    def space(self) -> Space:
        """The ranges that the next search would draw from, with the beliefs of rules and of a person, without
        those that `space.learn_from` teaches. Raises UserError where the search could not start."""
        epochs = self.study.budget.epochs
        facts = self.facts.model_copy(update={"epochs": epochs})
        space = build_space(self.study, facts, self.info)
        check_trials(self.study, space, facts)
        choose_pruning(self.study, space)
        return space

    def changed(self, path: str, to: Any) -> Draft:
        """Return a draft with plain data at a path; `space.overrides.NAME` replaces the old override.

        Raises UserError where that makes no valid search.
        """
        name = path.removeprefix(f"{OVERRIDES}.")
        study = self._overridden(name, to) if name != path else self.study.with_values({path: to})
        draft = Draft(study, self.facts, self.info)
        _ = draft.space
        return draft

    def _overridden(self, name: str, to: Any) -> Study:
        """Return the study with an override: of a field by path, or of its variants by name, never both."""
        path = path_of(name)
        old = self.study.space.overrides
        beside = {} if name == path else self._variants_beside(name, old)
        mine = {name: to, **beside}
        placed = [
            each
            for key in old
            for each in (mine if path_of(key) == path and key not in mine else [key])  # at its first position
        ]
        overrides = {each: mine.get(each, old.get(each)) for each in (*placed, *mine)}
        space = self.study.space.model_copy(update={"overrides": overrides})
        return Study.from_tree(self.study.model_copy(update={"space": space}).model_dump(mode="json"))

    def _variants_beside(self, name: str, old: Mapping[str, Any]) -> dict[str, Any]:
        """Return the overrides of the field's other variants; one of the whole field is copied to each."""
        path = path_of(name)
        if path not in old:
            return {each: old[each] for each in old if path_of(each) == path and each != name}
        others = [each for each in self.space.dimensions if each.path == path and each.name != name]
        return {each.name: old[path] for each in others if _fits(old[path], each)}


def content_at(path: str, study: Study, space: Space) -> str:
    """Return in words what a path of a study holds: a range with the belief in it, or a value."""
    name = path.removeprefix(f"{OVERRIDES}.")
    if name == path:
        return shown(value_at(study.model_dump(mode="json"), path))
    for dimension in space.dimensions:
        if dimension.name == name:
            return describe(dimension.domain, dimension.prior(space.own))
    base = space.base
    return shown(base.get(path_of(name))) if has(base, path_of(name)) else "not there"


def _fits(written: Any, dimension: Dimension) -> bool:
    """Say whether an override for all variants of a field fits this one: its rule, or a belief in it."""
    found = parse(written)
    if found == Varying(None):
        return True
    believed = found.prior if isinstance(found, Varying) else None
    return isinstance(believed, WrittenPrior) and believed.value in dimension.domain
