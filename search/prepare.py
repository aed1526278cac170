"""Everything that is decided, measured and checked before the first trial starts."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

from search.cluster import Hardware, concurrent_trials, per_trial
from search.folder import FACTS_FILE, read_facts
from search.scheduler import Asha, first_at_or_after, rungs
from search.study import Resources, Study, StudyError
from spaces.catalog import make_space
from spaces.facts import Facts
from spaces.heuristics import fixed_by_rule
from spaces.space import Space
from trainable.data import DataInfo, DataSet, load, resolve
from trainable.datasets.measure import DeviceKind
from trainable.errors import Fault, UserError
from trainable.recipe import Recipe
from trainable.schedule import cycle_ends
from trainable.specs.schedules import SGDR, Cyclic
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
    base = study.base_recipe()
    data = load_data(base, trial, download=download)
    facts = measure_facts(base, data.info, trial)
    return _assemble(study, folder, data, facts, trial, hardware, download=download)


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
    """What the heuristics need to know, measured on the data, the base recipe's model and the hardware.

    The model is built untrained: counting its parameters needs no weights.
    """
    from trainable.models.make import count_parameters, make_model  # torch: seconds that `show` need not wait

    untrained = base.model.model_copy(update={"weights": None})
    model = make_model(
        untrained, classes=len(info.classes), channels=info.channels, image_size=info.image_size
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
        pretrained=base.model.weights is not None,
    )


def write_facts(prepared: Prepared) -> None:
    """Keep what was measured: a resumed search reads it and never measures again."""
    record = {"facts": prepared.facts.tree(), "data": prepared.data.info.tree()}
    write_whole(prepared.folder / FACTS_FILE, json.dumps(record, indent=2).encode())


def check_trials(study: Study, space: Space, facts: Facts) -> None:
    """Refuse what would fail in a trial, before any starts. Raises StudyError, UserError."""
    faults = list(_flip_faults(space, facts))
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
    from trainable.precision import check as check_precision

    check_precision(space.base.precision, "cuda" if facts.gpus else "cpu")


def check_weights(base: Recipe, info: DataInfo, *, download: bool = False) -> None:
    """Load the weights that trials are to start from, once; with `download`, published ones are fetched.

    Raises ModelError where they are missing or do not fit, which would fail in every trial.
    """
    if base.model.weights is not None:
        from trainable.models.make import make_model

        make_model(
            base.model,
            classes=len(info.classes),
            channels=info.channels,
            image_size=info.image_size,
            download=download,
        )


def make_scheduler(study: Study, space: Space) -> Asha:
    """ASHA with the study's rungs, or with those that the budget and the longest warm-up suggest.

    A schedule of cycles has its rungs at their ends, for scores compare there only (arXiv 1608.03983). Raises
    StudyError for a written rung that is none.
    """
    choice = study.scheduler
    match choice.kind:
        case "none":
            epochs: tuple[int, ...] = ()
        case "asha":
            epochs = _rungs(study, space)
        case _:
            assert_never(choice.kind)
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
    study: Study,
    folder: Path,
    data: DataSet,
    facts: Facts,
    trial: Resources,
    hardware: Hardware,
    *,
    download: bool = False,
) -> Prepared:
    space = build_space(study, facts, data.info)
    check_trials(study, space, facts)
    scheduler = make_scheduler(study, space)
    check_weights(space.base, data.info, download=download)
    concurrent = concurrent_trials(study.concurrent, trial, hardware)
    return Prepared(study, folder, data, facts, space, trial, concurrent, scheduler)


def _rungs(study: Study, space: Space) -> tuple[int, ...]:
    choice, epochs, schedule = study.scheduler, study.budget.epochs, space.base.schedule
    grace = choice.grace_epochs or math.ceil(longest_warmup(space)) + LEAST_EPOCHS_AFTER_WARMUP
    usual = rungs(grace, choice.reduction_factor, epochs)
    if not isinstance(schedule, SGDR | Cyclic):
        return choice.rungs if choice.rungs is not None else usual
    ends = tuple(end for end in cycle_ends(schedule, epochs) if end < epochs)
    if choice.rungs is None:
        return first_at_or_after(usual, ends)
    if off := sorted(set(choice.rungs) - set(ends)):
        known = ", ".join(map(str, ends)) or f"none before epoch {epochs}"
        told = (
            f"{off} are no ends of the {schedule.kind} schedule's cycles, where alone scores compare: {known}"
        )
        raise StudyError([Fault("scheduler.rungs", told)])
    return choice.rungs


def _flip_faults(space: Space, facts: Facts) -> Iterator[Fault]:
    """Averaging over mirror images needs labels that survive the mirror."""
    if "horizontal" in facts.flips:
        return
    allowed = ", ".join(facts.flips) or "none"
    told = (
        f"needs data.flips to hold horizontal, which says that a label survives it; these data have {allowed}"
    )
    if space.base.evaluation.flip:
        yield Fault("base.evaluation.flip", told)
    for dimension in space.dimensions:
        if dimension.path == "evaluation.flip" and True in dimension.domain:
            yield Fault("space.overrides.evaluation.flip", told)


def _gpu_memory() -> int | None:
    """Bytes of the first GPU; None where this process sees none, as on a cluster's head."""
    import torch

    return int(torch.cuda.get_device_properties(0).total_memory) if torch.cuda.is_available() else None
