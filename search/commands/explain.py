"""`tunebook explain`: every range of a study, or every value of a recipe, with its reason and source."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rich.console import RenderableType
from rich.table import Table

from search.cluster import local_hardware, per_trial
from search.facts.measured import Measured, given, looked_up
from search.facts.told import fact_rows, facts_table
from search.folder import read_facts, read_search, read_summary
from search.prepare import build_space
from search.pruning import choose_pruning
from search.report import console, rows_table, say
from search.study import Resources, Study
from search.verdicts.conclusions import with_conclusions
from search.verdicts.words import full_table
from spaces.explain import recipe_rows, space_rows
from spaces.facts import Facts
from spaces.loops import wanted_epochs
from spaces.space import Space
from trainable.errors import UserError
from trainable.recipe import Recipe
from trainable.yamlfile import read_tree


def explain_file(file: Path) -> None:
    """Print the explanation of a study, a recipe, or a search folder. Raises UserError for anything else.

    The data and the model are looked at, since the ranges follow from them, unless they are as an earlier
    command saw them; nothing is trained. Where a recipe's data are not at hand, its values are explained
    without what the documents would say to them.
    """
    out = console()
    for part in _parts(file):
        out.print(part)
        out.print()


def _parts(file: Path) -> Iterator[RenderableType]:
    if file.is_dir():
        yield from _of_search(file)
        return
    tree = read_tree(file)
    if not set(tree) & (set(Recipe.model_fields) - set(Study.model_fields)):
        yield from _of_study(Study.from_tree(tree, where=str(file)))
    else:
        yield from _of_recipe(Recipe.from_tree(tree, where=str(file)))


def _of_search(folder: Path) -> Iterator[RenderableType]:
    """A search that has begun: its facts as they were kept, whatever has become of the data since."""
    study = read_search(folder)
    yield from _of_measured(study, Measured(*read_facts(folder), kept=True))
    if verdicts := with_conclusions(read_summary(folder), study, folder).verdicts:
        yield full_table(verdicts)


def _of_study(study: Study) -> Iterator[RenderableType]:
    trial = per_trial(study.resources, local_hardware())
    yield from _of_measured(study, looked_up(study.base_recipe(), trial))


def _of_measured(study: Study, measured: Measured) -> Iterator[RenderableType]:
    facts = given(measured.facts, study)
    space = build_space(study, facts, measured.info)
    yield facts_table(fact_rows(facts, measured, study.data, study))
    yield _plan(study, space, facts)
    yield rows_table(f"space {study.space.name}", space_rows(space, facts))


def _plan(study: Study, space: Space, facts: Facts) -> Table:
    """What a search of the study does, in the order in which it is decided."""
    budget, sampler, objective = study.budget, study.sampler, study.objective
    epochs = wanted_epochs(facts)
    hours = f", {budget.hours:g} hours at most" if budget.hours is not None else ""
    better = "highest" if objective.direction == "max" else "lowest"
    table = Table(title="plan", title_justify="left", box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, told in (
        ("budget", f"{budget.trials} trials of {budget.epochs} epochs at most{hours}"),
        ("length", f"{epochs.reason} ({epochs.source})"),
        ("sampler", f"{sampler.kind}, seed {study.seed}"),
        ("objective", f"{objective.metric}, the {better} of a finished trial's last epoch is best"),
        ("pruning", choose_pruning(study, space).told(budget.epochs)),
    ):
        table.add_row(name, told)
    return table


def _of_recipe(recipe: Recipe) -> Iterator[RenderableType]:
    facts = None
    try:
        measured = looked_up(recipe, per_trial(Resources(), local_hardware()))
    except UserError as error:
        say(f"(without the facts of its data: {error})")
    else:
        facts = measured.facts
        yield facts_table(fact_rows(facts, measured, recipe.data))
    yield rows_table(f"recipe {recipe.digest()}", recipe_rows(recipe, facts))
