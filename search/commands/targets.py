"""What a command that looks at one recipe is pointed at: a recipe, a study, a search, or data alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from search.cluster import local_hardware, per_trial
from search.facts.measured import given, load_data, measure_facts
from search.folder import STUDY_FILE, read_facts, read_search
from search.prepare import build_space
from search.study import RECIPE_SECTIONS, Resources, Study, study_from
from trainable.data import DataSet, load_for, resolve
from trainable.devices import default_device
from trainable.errors import UserError
from trainable.recipe import Recipe
from trainable.train import with_settings
from trainable.yamlfile import parse_setting, read_recipe, read_tree

Kind = Literal["recipe", "study", "data"]
YAML_ENDINGS = (".yaml", ".yml")


@dataclass(frozen=True)
class Target:
    """One recipe with its images and the device for them; `study` where the recipe is a study's first trial.

    `recipe` is resolved for the data, except where a recipe's file was given: Run resolves it.
    """

    recipe: Recipe
    data: DataSet
    study: Study | None
    kind: Kind
    device: torch.device
    cpus: int | None = None
    """What a trial of the study gets; None for a recipe, which is trained with what the machine has."""

    @property
    def threads(self) -> int | None:
        """Torch's threads as a trial has them, or as the recipe was trained; None for torch's own choice."""
        provenance = self.recipe.provenance
        return self.cpus or (provenance.threads if provenance is not None else None)


def target(
    file: Path | None, data: str | None, settings: Sequence[str] = (), *, download: bool = False
) -> Target:
    """The recipe that a command is to look at, with its images loaded.

    Args:
        file: a recipe or a study in YAML, or a search's folder; anything else is taken for data.
        data: images in place of the file's own, or alone: then the study is the default one.
        settings: `path=value` texts. Of a study, paths are the study's (`budget.epochs`, `data.train_limit`);
            one that begins with a section of the recipe (`optimizer.lr`) is meant under `base`.
        download: whether torchvision may fetch the data set.

    A study stands for its first trial, the documents' own recipe. Raises UserError.
    """
    if file is not None and not _is_written(file):
        if data is not None:
            raise UserError(f"{file}: is neither YAML nor a search folder, and --data {data} was given too")
        file, data = None, str(file)
    if file is None and data is None:
        raise UserError("give a recipe, a study or --data PATH")
    if file is not None and file.suffix in YAML_ENDINGS and _is_recipe(file):
        return _of_recipe(with_settings(read_recipe(file), settings, data), download)
    if file is not None and file.is_dir():
        return _of_search(file, data, settings)
    values = _study_values(settings) | ({"data.path": data} if data is not None else {})
    return _of_study(study_from(file, values), "study" if file is not None else "data", download)


def _is_written(file: Path) -> bool:
    """Whether a path is a recipe's or a study's, to be read as such; else it names images."""
    return file.suffix in YAML_ENDINGS or (file / STUDY_FILE).exists()


def _is_recipe(file: Path) -> bool:
    """As `explain` tells them apart: a section that only a recipe has."""
    return bool(set(read_tree(file)) & RECIPE_SECTIONS)


def _of_recipe(recipe: Recipe, download: bool) -> Target:
    device = default_device()
    return Target(recipe, load_for(recipe, device, download=download), None, "recipe", device)


def _of_study(study: Study, kind: Kind, download: bool) -> Target:
    trial = per_trial(study.resources, local_hardware())
    base = study.base_recipe()
    data = load_data(base, trial, download=download)
    space = build_space(study, given(measure_facts(base, data.info, trial), study), data.info)
    return Target(space.recipe(space.own), data, study, kind, _device(trial), trial.cpus)


def _of_search(folder: Path, data: str | None, settings: Sequence[str]) -> Target:
    """The first trial of a search that has begun: its facts are read as they were measured."""
    if data is not None or settings:
        raise UserError(f"{folder}: a search's recipes are settled; give its study.yaml to change something")
    study = read_search(folder)
    facts, info = read_facts(folder)
    trial = per_trial(study.resources.model_copy(update={"gpus": facts.gpus}), local_hardware())
    base = study.base_recipe().model_copy(update={"data": resolve(study.data, info)})
    space = build_space(study, facts, info)
    images, recipe = load_data(base, trial), space.recipe(space.own)
    return Target(recipe, images, study, "study", _device(trial), trial.cpus)


def _study_values(settings: Sequence[str]) -> dict[str, Any]:
    values = dict(parse_setting(text, "base.optimizer.lr=0.1") for text in settings)
    return {
        f"base.{path}" if path.split(".")[0] in RECIPE_SECTIONS else path: value
        for path, value in values.items()
    }


def _device(trial: Resources) -> torch.device:
    return default_device() if trial.gpus else torch.device("cpu")
