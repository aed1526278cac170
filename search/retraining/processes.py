"""Runs work on recipes in fresh processes, which know nothing but the recipe's YAML."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from search.facts.hardware import local_hardware
from trainable.errors import UserError
from trainable.recipe import Recipe
from trainable.recipe.yamlfile import read_recipe, write_recipe

Work = Callable[[Recipe, bool, bool], Any]
"""A function of a module: the recipe, whether to score the test part, whether to fetch published weights."""


class Done(NamedTuple):
    """Holds what the work on one recipe returned, or why it came to nothing."""

    recipe: Recipe
    result: Any
    fault: str | None


def refuse_own_code(recipe: Recipe) -> None:
    """Raises UserError for a recipe that a process of its own cannot train from the file alone."""
    if recipe.model.kind == "own" or recipe.data.own:
        raise UserError(
            "the recipe uses functions of your own, which its file does not hold: train it with other seeds "
            "in Python, train(recipe.with_values({'loop.seed': 1}), model=..., data=..., test=True)"
        )


def in_processes(
    work: Work, recipes: Sequence[Recipe], *, test: bool = False, download: bool = False
) -> Iterator[Done]:
    """Does the work on each recipe, read from its file in a process of its own; yields them in their order.

    On a CPU as many run at once as have the threads of the recipe's provenance; on a GPU one after the other.
    """
    with TemporaryDirectory(prefix="tunebook-") as folder:
        files = [Path(folder) / f"{number}.yaml" for number in range(len(recipes))]
        for recipe, file in zip(recipes, files, strict=True):
            write_recipe(file, recipe)
        with _processes(recipes) as pool:
            asked = [pool.submit(_done, work, file, test, download) for file in files]
            for recipe, future in zip(recipes, asked, strict=True):
                yield Done(recipe, *future.result())


def _processes(recipes: Sequence[Recipe]) -> ProcessPoolExecutor:
    machine = local_hardware()
    threads = max((each.provenance.threads or 1 for each in recipes if each.provenance), default=1)
    at_once = 1 if machine.gpus else max(1, sum(node.cpus for node in machine.nodes) // threads)
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(min(at_once, len(recipes)), context, max_tasks_per_child=1)


def _done(work: Work, file: Path, test: bool, download: bool) -> tuple[Any, str | None]:
    try:
        return work(read_recipe(file), test, download), None
    except Exception as error:  # whatever ends a run; in this process there is nobody else to say it
        return None, f"{type(error).__name__}: {error}"
