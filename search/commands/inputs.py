"""Finds what a person named to a command, without loading data: a recipe, a study, a search, or data alone.

It imports no torch: `explain` answers from what an earlier command measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from search.record.storage import local_folder
from search.study import RECIPE_SECTIONS, STUDY_FILE, Study, settings_of, study_from
from trainable.errors import UserError
from trainable.files.store import Store, is_uri
from trainable.recipe import Recipe
from trainable.recipe.yamlfile import read_recipe, read_tree

YAML_ENDINGS = (".yaml", ".yml")

Pointed = Recipe | Study | Path
"""A path is a search's folder."""


def pointed_at(file: str | Path | None, data: str | None, settings: Sequence[str] = ()) -> Pointed:
    """Returns what the command's arguments name.

    Args:
        file: a recipe or a study in YAML, or a search's folder or URI; anything else counts as data.
        data: images in place of the file's own, or alone: then the study is the default one.
        settings: `path=value` texts. For a study, paths are the study's (`budget.epochs`,
            `data.train_limit`); one that begins with a section of the recipe (`optimizer.lr`) means the
            field under `base`.

    Raises UserError.
    """
    if file is not None and not is_written(file):
        if data is not None:
            raise UserError(f"{file}: is neither YAML nor a search folder, and --data {data} was given too")
        file, data = None, str(file)
    if file is None and data is None:
        raise UserError("give a recipe, a study or --data PATH")
    path = local_folder(str(file)) if file is not None else None
    if path is not None and path.is_dir():
        return _search(path, data, settings)
    if path is not None and _is_recipe(path):
        return _recipe(path, data, settings)
    values = _study_values(settings) | ({"data.path": data} if data is not None else {})
    return study_from(path, values)


def is_written(file: str | Path) -> bool:
    """Says whether a path is a recipe's, a study's or a search's; otherwise it names images."""
    if is_uri(str(file)):
        return STUDY_FILE in Store(str(file)).names()
    return Path(file).suffix in YAML_ENDINGS or (Path(file) / STUDY_FILE).exists()


def _is_recipe(file: Path) -> bool:
    """Says whether there is a section that only a recipe has."""
    return bool(set(read_tree(file)) & RECIPE_SECTIONS)


def _search(folder: Path, data: str | None, settings: Sequence[str]) -> Path:
    if data is not None or settings:
        raise UserError(f"{folder}: a search's recipes are settled; give its study.yaml to change something")
    return folder


def _recipe(file: Path, data: str | None, settings: Sequence[str]) -> Recipe:
    recipe = read_recipe(file)
    if data is None and not settings:
        return recipe
    from trainable.train import with_settings  # torch takes seconds to import

    return with_settings(recipe, settings, data)


def _study_values(settings: Sequence[str]) -> dict[str, Any]:
    values = settings_of(settings)
    return {
        f"base.{path}" if path.split(".")[0] in RECIPE_SECTIONS else path: value
        for path, value in values.items()
    }
