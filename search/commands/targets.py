"""Loads what a command for one recipe was pointed at: a recipe, a study, a search, or data alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from search.commands.inputs import is_written, pointed_at
from search.facts.hardware import PerTrial, local_hardware, per_trial
from search.facts.measured import given, load_data, measure_facts
from search.results.search import Search
from search.study import Study
from search.study.space import build_space
from trainable.data import DataSet, load_for, resolve
from trainable.recipe import Recipe
from trainable.training.devices import default_device

Kind = Literal["recipe", "study", "data"]


@dataclass(frozen=True)
class Target:
    """Holds one recipe with its images and the device; `study` is set if it is a study's first trial.

    `recipe` is resolved for the data, except where a recipe's file was named: Run resolves it.
    """

    recipe: Recipe
    data: DataSet
    study: Study | None
    kind: Kind
    device: torch.device
    cpus: int | None = None
    """The processors of a trial of the study; None for a recipe, which trains with all that the
    machine has."""

    @property
    def threads(self) -> int | None:
        """Torch's threads as a trial has them, or as the recipe was trained; None for torch's own choice."""
        provenance = self.recipe.provenance
        return self.cpus or (provenance.threads if provenance is not None else None)


def target(
    file: str | Path | None, data: str | None, settings: Sequence[str] = (), *, download: bool = False
) -> Target:
    """Returns the recipe that a command is to look at, with its images loaded.

    `file`, `data` and `settings` have the meaning that `pointed_at` documents; `download` says whether
    torchvision may fetch the data set. A study stands for its first trial, the documents' own recipe. Raises
    UserError.
    """
    match pointed_at(file, data, settings):
        case Recipe() as recipe:
            return _of_recipe(recipe, download)
        case Study() as study:
            kind: Kind = "study" if file is not None and is_written(file) else "data"
            return _of_study(study, kind, download)
        case Path() as folder:
            return _of_search(folder)


def _of_recipe(recipe: Recipe, download: bool) -> Target:
    device = default_device()
    return Target(recipe, load_for(recipe, device, download=download), None, "recipe", device)


def _of_study(study: Study, kind: Kind, download: bool) -> Target:
    trial = per_trial(study.resources, local_hardware())
    base = study.base_recipe()
    data = load_data(base, trial, download=download)
    space = build_space(study, given(measure_facts(base, data.info, trial), study), data.info)
    return Target(space.recipe(space.own), data, study, kind, _device(trial), trial.cpus)


def _of_search(folder: Path) -> Target:
    """Returns the first trial of a search that has begun, with its facts as they were measured."""
    search = Search(folder)
    study, space = search.study, search.space
    trial = per_trial(study.resources, local_hardware(), gpus=search.facts.gpus)
    base = study.base_recipe().model_copy(update={"data": resolve(study.data, search.info)})
    images, recipe = load_data(base, trial), space.recipe(space.own)
    return Target(recipe, images, study, "study", _device(trial), trial.cpus)


def _device(trial: PerTrial) -> torch.device:
    return default_device() if trial.gpus else torch.device("cpu")
