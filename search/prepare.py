"""Everything that is decided, measured and checked before the first trial starts."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

from search.cluster import Hardware, concurrent_trials, per_trial
from search.folder import FACTS_FILE, read_facts
from search.scheduler import Asha, rungs
from search.study import Resources, Study, StudyError
from spaces.catalog import make_space
from spaces.facts import Facts
from spaces.heuristics import fixed_by_rule
from spaces.space import Space
from trainable.data import DataInfo, DataSet, load, resolve
from trainable.datasets.measure import DeviceKind
from trainable.errors import Fault, UserError
from trainable.models.make import count_parameters, make_model
from trainable.precision import check as check_precision
from trainable.recipe import Recipe
from trainable.yamlfile import write_whole

LEAST_EPOCHS_AFTER_WARMUP = 2
"""The first rung lies at least so far behind the warm-up: before, every trial ranks by luck."""


@dataclass(frozen=True)
class Prepared:
    """A search that is ready to run."""

    study: Study
    folder: Path
    data: DataSet
    facts: Facts
    space: Space
    per_trial: Resources
    concurrent: int
    scheduler: Asha


def prepare(study: Study, folder: Path, hardware: Hardware, *, download: bool = False) -> Prepared:
    """Load the data, measure the facts, build the space: a new search.

    Raises UserError (StudyError, DataError, ModelError, SpaceError) naming what to mend; nothing is written.
    """
    trial = per_trial(study.resources, hardware)
    data = load_data(study.base_recipe(), trial, download=download)
    return _assemble(
        study, folder, data, measure_facts(study.base_recipe(), data.info, trial), trial, hardware
    )


def prepare_again(study: Study, folder: Path, hardware: Hardware) -> Prepared:
    """The same search once more, for `resume`: its facts are read, and only the data are loaded again.

    Raises UserError when the images are no longer those that the search began with.
    """
    facts, info = read_facts(folder)
    trial = per_trial(study.resources.model_copy(update={"gpus": facts.gpus}), hardware)
    base = study.base_recipe()
    data = load_data(base.model_copy(update={"data": resolve(study.data, info)}), trial)
    if data.info.digest != info.digest:
        raise UserError(
            f"{study.data.path}: the images or their labels have changed since the search began "
            f"(digest {info.digest}, now {data.info.digest}); start a new search"
        )
    return _assemble(study, folder, data, facts, trial, hardware)


def build_space(study: Study, facts: Facts, info: DataInfo) -> Space:
    """The space around the study's base recipe: what is pinned, then what the heuristics fix, then ranges."""
    pinned = study.pinned
    base = study.base_recipe().model_copy(update={"data": resolve(study.data, info)})
    ruled = fixed_by_rule(facts, base, frozenset(pinned))
    if not info.in_memory:
        # one process decodes at least, and the training thread keeps a processor where there are several
        ruled = {**ruled, "loop.workers": max(1, facts.cpus - 1)}
    base = base.with_values({path: value for path, value in ruled.items() if path not in pinned})
    if base.loop.batch_size > facts.train_images:
        message = f"{base.loop.batch_size} is more than the {facts.train_images} training images"
        raise StudyError([Fault("base.loop.batch_size", message)])
    return make_space(study.space.name, base, frozenset(pinned), facts, study.space.overrides)


def measure_facts(base: Recipe, info: DataInfo, trial: Resources) -> Facts:
    """What the heuristics need to know, measured on the data, the base recipe's model and the hardware."""
    model = make_model(
        base.model, classes=len(info.classes), channels=info.channels, image_size=info.image_size
    )
    return Facts(
        train_images=info.train_images,
        classes=len(info.classes),
        class_balance=min(info.class_counts) / max(info.class_counts),
        channels=info.channels,
        image_size=info.image_size,
        flips=info.flips,
        parameters=count_parameters(model),
        epochs=base.loop.epochs,
        cpus=trial.cpus,
        gpus=trial.gpus or 0,
        gpu_memory_bytes=_gpu_memory() if trial.gpus else None,
    )


def write_facts(prepared: Prepared) -> None:
    """Keep what was measured: a resumed search reads it and never measures again."""
    record = {"facts": prepared.facts.tree(), "data": prepared.data.info.tree()}
    write_whole(prepared.folder / FACTS_FILE, json.dumps(record, indent=2).encode())


def check_trials(study: Study, space: Space, facts: Facts) -> None:
    """Refuse what would fail in a trial, before any starts. Raises StudyError, UserError."""
    faults = []
    if study.objective.metric == "val_top5_accuracy" and facts.classes <= 10:
        message = f"val_top5_accuracy needs more than ten classes, these data have {facts.classes}"
        faults.append(Fault("objective.metric", message))
    for dimension in space.dimensions:
        largest = max((end for end in dimension.domain.extremes() if isinstance(end, int)), default=0)
        if dimension.path == "loop.batch_size" and largest > facts.train_images:
            message = f"{largest} is more than the {facts.train_images} training images"
            faults.append(Fault("space.overrides.loop.batch_size", message))
    if faults:
        raise StudyError(faults)
    check_precision(space.base.precision, "cuda" if facts.gpus else "cpu")


def make_scheduler(study: Study, space: Space) -> Asha:
    """ASHA with the study's rungs, or with those that the budget and the longest warm-up suggest."""
    choice = study.scheduler
    grace = choice.grace_epochs or math.ceil(longest_warmup(space)) + LEAST_EPOCHS_AFTER_WARMUP
    match choice.kind, choice.rungs:
        case "none", _:
            epochs: tuple[int, ...] = ()
        case "asha", None:
            epochs = rungs(grace, choice.reduction_factor, study.budget.epochs)
        case "asha", written:
            epochs = written
    return Asha(epochs, choice.reduction_factor, study.objective.direction)


def longest_warmup(space: Space) -> float:
    """The longest warm-up that any trial of the space can have, in epochs."""
    ends = [float(space.base.schedule.warmup_epochs)]
    for dimension in space.dimensions:
        if dimension.path == "schedule.warmup_epochs":
            ends += [value for value in dimension.domain.extremes() if isinstance(value, int | float)]
    return max(ends)


def load_data(base: Recipe, trial: Resources, *, download: bool = False) -> DataSet:
    """The images of a recipe, for the kind of device that a trial gets."""
    device: DeviceKind = "cuda" if trial.gpus else "cpu"
    return load(base.data, resize=base.evaluation.resize, device_kind=device, download=download)


def _assemble(
    study: Study, folder: Path, data: DataSet, facts: Facts, trial: Resources, hardware: Hardware
) -> Prepared:
    space = build_space(study, facts, data.info)
    check_trials(study, space, facts)
    concurrent = concurrent_trials(study.concurrent, trial, hardware)
    return Prepared(study, folder, data, facts, space, trial, concurrent, make_scheduler(study, space))


def _gpu_memory() -> int | None:
    """Bytes of the first GPU; None where this process sees none, as on a cluster's head."""
    import torch

    return int(torch.cuda.get_device_properties(0).total_memory) if torch.cuda.is_available() else None
