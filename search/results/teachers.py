"""A trial of an earlier search as a teacher: a folder such as `tunebook train --out` leaves."""

from __future__ import annotations

import re
from pathlib import Path

from search.learning.search import Search
from search.results.export import chosen_trial, recipe_of
from search.study import STUDY_FILE, Study
from search.study.first import FirstTrial
from search.study.first_trials import first_trials
from search.study.study import absolute
from trainable.errors import UserError
from trainable.files.paths import without_tilde
from trainable.files.regular import refuse_links
from trainable.files.store import Store, is_uri
from trainable.recipe import Recipe
from trainable.recipe.distillation import TEACHER
from trainable.recipe.trained_files import MODEL_FILE, RECIPE_FILE
from trainable.recipe.trees import with_leaf
from trainable.recipe.yamlfile import write_recipe, write_whole

# in the folder of a search, this holds the networks of its trials that taught others
TEACHERS_FOLDER = "teachers"
_TRIAL = re.compile(r"(?P<search>.+)#(?P<trial>\d+)")


def with_teacher(study: Study) -> Study:
    """Return the study with the absolute path of its teacher's files, if it has a teacher.

    Raises UserError where the teacher is a trial that a search does not have, or has no weights of.
    """
    named = study.pinned.get(TEACHER)
    if not isinstance(named, str):
        return study
    return study.model_copy(update={"base": with_leaf(study.base, TEACHER, teacher_path(named))})


def recipe_with_teacher(recipe: Recipe) -> Recipe:
    """Return the recipe with the path of its teacher's files, where it names a search. Raises UserError."""
    if recipe.distillation is None or _trial_named(recipe.distillation.teacher) is None:
        return recipe
    return recipe.with_values({TEACHER: teacher_path(recipe.distillation.teacher)})


def teacher_path(named: str) -> str:
    """Return the absolute path of a teacher's files, also of those that are named as `SEARCH`, the best
    trial of a search, or `SEARCH#NUMBER`. Raises UserError."""
    trial = _trial_named(named)
    return absolute(named) if trial is None else str(teacher_folder(*trial))


def teacher_folder(address: str, number: int | None) -> Path:
    """Return a folder with the weights and the recipe of a trial, the best one for None: in the search's own
    folder, where all that can read the search can read it; of a search in an object store, in this machine's
    copy of it. Raises UserError, also where they are to be written and the search's folder has a link."""
    search = Search(address)
    chosen = chosen_trial(search, number)
    from search.results.trained_trial import newest_state  # torch takes seconds to import
    from trainable.bundle.trained import scored_weights
    from trainable.train import model_file
    from trainable.training.pixels import resolved_for

    state = newest_state(search, chosen, f"name DIR as {TEACHER}")
    folder = search.folder.absolute() / TEACHERS_FOLDER / f"trial-{chosen.id}-epoch-{state['epoch']}"
    if (folder / RECIPE_FILE).is_file():
        return folder
    refuse_links(search.folder)  # the search may be somebody else's
    recipe = resolved_for(recipe_of(search, chosen), search.info)
    write_whole(folder / MODEL_FILE, model_file(scored_weights(state), recipe, search.info))
    write_recipe(folder / RECIPE_FILE, recipe)  # the last one: with it the folder is whole
    return folder


def first_of(search: Search) -> tuple[FirstTrial, ...]:
    """Return the first trials that a search's study asks for; before they are recorded, as its files are now.

    Raises StudyError and UserError as `first_trials` does.
    """
    if (settled := search.record.settled) is not None:
        return settled.first
    return first_trials(search.study, search.space, search.info, teacher_path)


def _trial_named(named: str) -> tuple[str, int | None] | None:
    """Return the search, and the number of the trial or None for the best one; None for any other
    path, also of a folder whose own name ends so."""
    match = _TRIAL.fullmatch(named)
    if match and (is_uri(named) or not without_tilde(named).exists()):
        if not _is_search(match["search"]):
            raise UserError(f"{TEACHER}: {named}: {match['search']} is not the folder of a search")
        return match["search"], int(match["trial"])
    return (named, None) if _is_search(named) else None


def _is_search(address: str) -> bool:
    if is_uri(address):
        return STUDY_FILE in Store(address).names()
    return (without_tilde(address) / STUDY_FILE).is_file()
