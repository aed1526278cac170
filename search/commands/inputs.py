"""What a person named to a command (`search.commands.named`), with its images.

It imports torch only to load: `explain` answers without it from what an earlier command measured.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from search.commands.named import Input, is_file_or_search
from search.facts.hardware import local_hardware, per_trial
from search.facts.measured import load_data, measured_anew, with_networks, with_written_facts
from search.facts.start import Start, find_start
from search.learning.learned_space import space_of
from search.learning.search import Search
from search.record.storage import local_folder
from search.results.teachers import recipe_with_teacher, teacher_path, with_teacher
from search.running.networks import check_first_networks
from search.study import Study
from search.study.first_trials import first_trials
from spaces.rules.distillation import gain_to_expect
from trainable.bench import HERE, Bench
from trainable.data import DataSet, resolve
from trainable.models.network_names import read_named_recipe
from trainable.recipe import Recipe
from trainable.recipe.trained_files import of_pruned_network
from trainable.stages import stage

TargetKind = Literal["recipe", "study", "data"]


@dataclass(frozen=True)
class Target:
    """One recipe with its images and the bench that it trains on.

    `recipe` is resolved for the data, except where a recipe's file was named: Run resolves it.
    """

    recipe: Recipe
    data: DataSet
    kind: TargetKind
    # that of a trial of the study; a recipe trains with all that the machine has, and no number of threads
    bench: Bench
    study: Study | None = None  # the study whose first trial it is; None for a recipe
    # a line for each search that a study learns from: what it taught, or why nothing
    learned: tuple[str, ...] = ()
    # that a recipe is of a pruned network, and builds the whole one, in words, if it is
    pruned: str | None = None
    # what is to be expected of a study's teacher; None without one, and for a recipe
    teacher: str | None = None
    search: Search | None = None  # the search whose first trial it is, if that has begun

    @property
    def threads(self) -> int | None:
        """Torch's threads as a trial has them, or as the recipe was trained; None for torch's own choice."""
        provenance = self.recipe.provenance
        return self.bench.threads or (provenance.threads if provenance is not None else None)


def with_teachers(named: Input) -> Input:
    """Return what was named with the path of its teacher's files, where that is a trial. Raises UserError."""
    match named:
        case Recipe() as recipe:
            return recipe_with_teacher(recipe)
        case Study() as study:
            return with_teacher(study)
        case Path():
            return named


@stage("reading the images, and building the first trial")
def load_target(named: Input, file: str | None, *, bench: Bench = HERE) -> Target:
    """Return the recipe that a command is to look at, with its images loaded.

    `named` is what `named_input` found in `file`, None for data alone; `bench` says whether torchvision may
    fetch the data set. A study stands for its first trial, the documented recipe. Raises UserError.
    """
    match with_teachers(named):
        case Recipe() as recipe:
            return replace(_recipe_target(recipe, bench), pruned=_of_pruned_network(file))
        case Study() as study:
            kind: TargetKind = "study" if file is not None and is_file_or_search(file) else "data"
            return _study_target(study, kind, bench)
        case Path() as folder:
            return _search_target(folder, bench)


def _of_pruned_network(file: str | None) -> str | None:
    """Return in words that a recipe's file is of a pruned network; settings change nothing about that."""
    path = None if file is None else local_folder(str(file))
    return None if path is None else of_pruned_network(path, read_named_recipe(path))


def _recipe_target(recipe: Recipe, bench: Bench) -> Target:
    from trainable.tasks.kits import load_for

    return Target(recipe, load_for(recipe, bench), "recipe", bench)


def _study_target(study: Study, kind: TargetKind, bench: Bench) -> Target:
    trial = per_trial(study.resources, local_hardware())
    on = trial.bench(bench)
    start = find_start(study, on)
    base = start.recipe(study)
    data = load_data(base, on)
    facts = measured_anew(base, data.info, trial, trials=study.budget.trials, bench=bench)
    facts = with_written_facts(start.known_in(facts), study)
    facts = with_networks(facts, study, data.info, bench=on)
    learned = space_of(study, facts, data.info)
    space = learned.space
    first = first_trials(study, space, data.info, teacher_path)  # it refuses what `search` would refuse
    check_first_networks(first, data.info, bench=on)
    recipe = space.recipe(space.own)
    taught = gain_to_expect(facts)
    teacher = None if taught is None else f"{taught.reason} ({taught.source})"
    return Target(recipe, data, kind, on, study, learned=learned.lines, teacher=teacher)


def _search_target(folder: Path, bench: Bench) -> Target:
    """Return the first trial of a search that has begun, with its facts as they were measured."""
    search = Search(folder)
    study, space = search.study, search.space
    trial = per_trial(study.resources, local_hardware(), gpus=search.facts.gpus)
    base = Start.of(search.facts).recipe(study)
    base = base.model_copy(update={"data": resolve(study.data, search.info)})
    images, recipe = load_data(base, trial.bench(HERE)), space.recipe(space.own)
    return Target(recipe, images, "study", trial.bench(bench), study, search=search)
