"""What a person named to a command: a recipe, a study, a search, or data alone. It loads nothing.

It imports no torch, so that a mistake in what was typed, or in a YAML file, is answered at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Any

from search.commands.asked import settings_of, study_asked, study_given
from search.commands.options import BackbonesOptions, InputOptions, SearchOptions
from search.record.storage import local_folder
from search.study import STUDY_FILE, Study, is_recipe
from trainable.errors import UserError
from trainable.files.folders import check_can_be_made
from trainable.files.paths import without_tilde
from trainable.files.store import Store, is_uri
from trainable.models.network_names import read_named_recipe
from trainable.recipe import Recipe
from trainable.recipe.data import Data, refuse_missing
from trainable.recipe.tasks import AnyTask
from trainable.recipe.yamlfile import read_tree
from trainable.terminal import program_name
from trainable.train_options import recipe_with_options, study_values

YAML_ENDINGS = (".yaml", ".yml")

Input = Recipe | Study | Path  # a path is a search's folder
# what a function takes for it: a mapping is a study, a path that of a recipe, a study, a search or images
AnyInput = Recipe | Study | Mapping[str, Any] | str | Path


def named_input(options: InputOptions | SearchOptions | BackbonesOptions) -> Input:
    """Return what the command's arguments name.

    `file` is a recipe or a study in YAML, or a search's folder or URI; anything else counts as data, and data
    alone stand for the default study. Options and `path=value` settings change a recipe or a study. Raises
    UserError.
    """
    file, values = options.file, study_values(options)
    if file is not None and not is_file_or_search(file):
        if options.data is not None:
            raise UserError(
                f"{file}: is neither YAML nor a search folder, and --data {options.data} was given too; "
                "leave one of them out"
            )
        file, values = None, values | {"data.path": file}
    if file is None and "data.path" not in values:
        raise UserError("give images (--data PATH), a study, a recipe or a search's folder")
    path = local_folder(file) if file is not None else None
    if path is not None and path.is_dir():
        if values or options.settings:
            raise UserError(f"{path}: --data, --set and others cannot change a search; give its study.yaml")
        return path
    if path is not None and is_recipe(read_tree(path)):
        return recipe_with_options(read_named_recipe(path), options)
    study = study_asked(path, values | settings_of(options.settings or ()))
    _check(study)
    return study


def input_given(given: AnyInput, options: InputOptions | BackbonesOptions) -> Input:
    """Return what Python code gives, with the values that a command's options set: a recipe, a study, or what
    their path names, as `named_input` does. Raises UserError."""
    match given:
        case str() | Path():
            return named_input(replace(options, file=str(given)))
        case Recipe():
            return recipe_with_options(given, options)
        case _:
            study = study_given(given, study_values(options) | settings_of(options.settings or ()))
            refuse_missing(study.data)
            return study


def needing_images(named: Input) -> Input:
    """Return what was named, for what reads its images. Raises UserError where those of a recipe are not
    there."""
    if isinstance(named, Recipe):
        _refuse_no_images(named.data, named.task)
    return named


def named_study(options: SearchOptions) -> Study:
    """Return the study that a search is asked for, from its file or of images alone. Raises UserError, also
    where no search could be stored."""
    study = _named_study(options)
    check_storage(study)
    return study


def check_storage(study: Study) -> None:
    """Raise UserError for a storage in which no search could be written."""
    if not is_uri(study.storage):
        check_can_be_made(without_tilde(study.storage), "storage")


def no_new_search(file: str | Path) -> UserError:
    """Return why a search's folder or URI names no study of a new search, and what to do."""
    name, tunebook = quote(str(file)), program_name()
    return UserError(
        f"{file}: is a search already; `{tunebook} resume {name}` goes on with it, and "
        f"`{tunebook} extend {name} --trials N` adds trials"
    )


def _named_study(options: SearchOptions) -> Study:
    if options.file is not None and Path(options.file).suffix in YAML_ENDINGS:
        values = study_values(options) | settings_of(options.settings or ())
        study = study_asked(Path(options.file), values)
        _check(study)
        return study
    if isinstance(named := named_input(options), Study):
        return named
    raise no_new_search(str(options.file))  # a file of a recipe is refused where a study is read


def _check(study: Study) -> None:
    """Raise UserError for what is wrong whatever the data are, and for data that are none."""
    _refuse_no_images(study.data, study.base_recipe().task)
    from spaces.catalog.catalog import check_written  # the rules take a while to import

    check_written(study.space.name, study.base_recipe(), frozenset(study.pinned), study.space.overrides)


def _refuse_no_images(data: Data, task: AnyTask) -> None:
    refuse_missing(data)
    from trainable.data.reading import refuse_no_images  # NumPy takes a while to import

    refuse_no_images(data, task)


def is_file_or_search(file: str) -> bool:
    """Say whether a path is a recipe's, a study's or a search's; otherwise it names images."""
    if is_uri(file):
        return STUDY_FILE in Store(file).names()
    return Path(file).suffix in YAML_ENDINGS or (Path(file) / STUDY_FILE).exists()
