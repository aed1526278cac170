"""`tunebook explain`: every range of a study, or every value of a recipe, with its reason and source."""

from __future__ import annotations

from pathlib import Path

from search.cluster import local_hardware, per_trial
from search.folder import read_facts, read_search
from search.prepare import build_space, load_data, measure_facts
from search.report import console, rows_table, say
from search.study import Resources, Study
from spaces.explain import recipe_rows, space_rows
from spaces.facts import Facts
from trainable.data import DataInfo
from trainable.errors import UserError
from trainable.recipe import Recipe
from trainable.yamlfile import read_tree


def explain_file(file: Path) -> None:
    """Print the explanation of a study, a recipe, or a search folder. Raises UserError for anything else.

    The data and the model are looked at, since the ranges follow from them; nothing is trained. Where a
    recipe's data are not at hand, its values are explained without what the documents would say to them.
    """
    if file.is_dir():
        _explain_study(read_search(file), file)
        return
    tree = read_tree(file)
    if not set(tree) & (set(Recipe.model_fields) - set(Study.model_fields)):
        _explain_study(Study.from_tree(tree, where=str(file)), None)
    else:
        _explain_recipe(Recipe.from_tree(tree, where=str(file)))


def _explain_study(study: Study, folder: Path | None) -> None:
    if folder is not None:
        facts, info = read_facts(folder)
    else:
        info, facts = _measured(study.base_recipe(), study.resources)
    space = build_space(study, facts, info)
    console().print(rows_table(f"space {study.space.name}: {_told(facts.tree())}", space_rows(space, facts)))


def _explain_recipe(recipe: Recipe) -> None:
    try:
        _, facts = _measured(recipe, Resources())
    except UserError as error:
        say(f"(without the facts of its data: {error})")
        facts = None
    console().print(rows_table(f"recipe {recipe.digest()}", recipe_rows(recipe, facts)))


def _measured(recipe: Recipe, resources: Resources) -> tuple[DataInfo, Facts]:
    trial = per_trial(resources, local_hardware())
    info = load_data(recipe, trial).info
    return info, measure_facts(recipe, info, trial)


def _told(facts: dict[str, object]) -> str:
    return ", ".join(
        f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in facts.items()
        if value not in (None, [], False)
    )
