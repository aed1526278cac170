"""`tunebook explain`: every range of a study, or every value of a recipe, with its reason and source."""

from __future__ import annotations

from pathlib import Path

from search.cluster import local_hardware, per_trial
from search.folder import read_facts, read_search
from search.prepare import build_space, load_data, measure_facts
from search.report import console, rows_table
from search.study import Study
from spaces.explain import recipe_rows, space_rows
from trainable.recipe import Recipe
from trainable.yamlfile import read_tree


def explain_file(file: Path) -> None:
    """Print the explanation of a study, a recipe, or a search folder. Raises UserError for anything else.

    A study's data and model are looked at, since its ranges follow from them; nothing is trained. A recipe
    that a search has exported is explained by the facts of that search where its folder is still there.
    """
    if file.is_dir():
        _explain_study(read_search(file), file)
        return
    tree = read_tree(file)
    if (
        "base" in tree
        or "budget" in tree
        or "space" in tree
        or set(tree) <= set(Study.model_fields) - {"version"}
    ):
        _explain_study(Study.from_tree(tree, where=str(file)), None)
    else:
        recipe = Recipe.from_tree(tree, where=str(file))
        console().print(rows_table(f"recipe {recipe.digest()}", recipe_rows(recipe)))


def _explain_study(study: Study, folder: Path | None) -> None:
    if folder is not None:
        facts, info = read_facts(folder)
    else:
        trial = per_trial(study.resources, local_hardware())
        info = load_data(study, trial, download=False).info
        facts = measure_facts(study, info, trial)
    space = build_space(study, facts, info)
    console().print(rows_table(f"space {study.space.name}: {_told(facts.tree())}", space_rows(space, facts)))


def _told(facts: dict[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in facts.items() if value not in (None, [], False))
