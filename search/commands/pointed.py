"""What a person points a command at, read and not loaded: a recipe, a study, a search, or data alone.

It imports no torch: `explain` answers from what an earlier command measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from search.folder import STUDY_FILE
from search.study import RECIPE_SECTIONS, Study, settings_of, study_from
from trainable.errors import UserError
from trainable.recipe import Recipe
from trainable.yamlfile import read_recipe, read_tree

YAML_ENDINGS = (".yaml", ".yml")

Pointed = Recipe | Study | Path
"""A path is a search's folder."""


def pointed_at(file: Path | None, data: str | None, settings: Sequence[str] = ()) -> Pointed:
    """What a command was given.

    Args:
        file: a recipe or a study in YAML, or a search's folder; anything else is taken for data.
        data: images in place of the file's own, or alone: then the study is the default one.
        settings: `path=value` texts. Of a study, paths are the study's (`budget.epochs`, `data.train_limit`);
            one that begins with a section of the recipe (`optimizer.lr`) is meant under `base`.

    Raises UserError.
    """
    if file is not None and not is_written(file):
        if data is not None:
            raise UserError(f"{file}: is neither YAML nor a search folder, and --data {data} was given too")
        file, data = None, str(file)
    if file is None and data is None:
        raise UserError("give a recipe, a study or --data PATH")
    if file is not None and file.is_dir():
        return _search(file, data, settings)
    if file is not None and _is_recipe(file):
        return _recipe(file, data, settings)
    values = _study_values(settings) | ({"data.path": data} if data is not None else {})
    return study_from(file, values)


def is_written(file: Path) -> bool:
    """Whether a path is a recipe's, a study's or a search's, to be read as such; else it names images."""
    return file.suffix in YAML_ENDINGS or (file / STUDY_FILE).exists()


def _is_recipe(file: Path) -> bool:
    """Whether there is a section that only a recipe has."""
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
