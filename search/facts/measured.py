"""Collects the facts of a study: measured on its data, model and machine, or written by a person."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, assert_never

from search.facts.cache import cache_file, read_cached, read_speeds, speeds_file, write_cached, write_speeds
from search.facts.hardware import PerTrial
from search.study import FACT_OF_PROBE, Probe, Study
from spaces.facts import Facts, NetworkFacts
from trainable.bench import HERE, Bench, Say
from trainable.collector import load_torch
from trainable.data import DataInfo, DataSet
from trainable.data.assembly import MakeData, make_own
from trainable.errors import UserError
from trainable.recipe import Recipe
from trainable.recipe.models import MODEL_NAME
from trainable.recipe.network_cost import Speed, pays_to_time
from trainable.recipe.trained_files import STATISTICS_OF_NORMS, parameters_in, teacher_files
from trainable.recipe.training import Compiling
from trainable.stages import stage

if TYPE_CHECKING:  # torch takes seconds to import
    from torch import nn

    from trainable.models.own import BuildModel
    from trainable.training.run import Run


@dataclass(frozen=True)
class Measured:
    """Facts, and what is known of the data. No fact is overwritten yet, unless they are `recorded`."""

    facts: Facts
    info: DataInfo
    cached: bool = False  # by an earlier command, on the same files, model, versions and kind of device
    recorded: bool = False  # in the folder of a search that has begun, from which they were read


def load_data(
    base: Recipe,
    bench: Bench,
    *,
    most_bytes: int | None = None,
    make: MakeData | None = None,
) -> DataSet:
    """Return the images of a recipe for a bench's kind of device; those of a person's own if `make` makes
    them.

    They are held in memory only if they take at most `most_bytes`.
    """
    load_torch()
    from trainable.tasks.kits import kit_of
    from trainable.training.pixels import as_weights_know

    asked = as_weights_know(base, bench)
    if make is not None:
        return make_own(asked.data, make, resize=asked.evaluation.resize, bench=bench)
    return kit_of(asked.task).load(asked, bench=bench, most_bytes=most_bytes)


def with_networks(facts: Facts, study: Study, info: DataInfo, *, bench: Bench = HERE) -> Facts:
    """Return the facts with those of each network that the study chooses between, unless it says them in its
    section `facts`. Raises ModelError for one that cannot be made."""
    base, found = study.base_recipe(), []
    for name in study.networks:
        counted = facts.model_dump(include=NetworkFacts.model_fields.keys() - {"name"})
        if name != base.get(MODEL_NAME):
            other = base.with_values({MODEL_NAME: name})
            counted = _counted(without_weights(other, info, None, bench=bench))
        written = {each: value for each, value in study.facts.values().items() if each in counted}
        found.append(NetworkFacts(name=name, **{**counted, **written}))
    return facts.model_copy(update={"networks": tuple(found)})


@stage("building the network")
def without_weights(base: Recipe, info: DataInfo, build: BuildModel | None, *, bench: Bench) -> nn.Module:
    """Build a recipe's network, with new weights."""
    from trainable.training.network import make_network

    spec = base.model.model_copy(update={"weights": None})
    return make_network(spec, info, build=build, bench=bench)


def facts_of(model: nn.Module, base: Recipe, info: DataInfo, trial: PerTrial) -> Facts:
    """Return the facts of the data, the machine, the base recipe and its network, with any weights."""
    return Facts(
        task=base.task.kind,
        train_images=info.train_images,
        classes=len(info.classes),
        class_balance=info.class_balance,
        channels=info.channels,
        image_size=info.image_size,
        longer_side=info.longer_side,
        flips=info.flips,
        **_counted(model),
        **_facts_of_study(base, trial),
    )


def _counted(model: nn.Module) -> dict[str, Any]:
    """Return the facts that a look at a network gives."""
    from trainable.models.layers import batch_norms, has_attention
    from trainable.models.make import count_parameters

    return {
        "parameters": count_parameters(model),
        "attention": has_attention(model),
        "batch_norm": bool(batch_norms(model)),
    }


def cached_or_measured(base: Recipe, trial: PerTrial, *, trials: int = 1, bench: Bench = HERE) -> Measured:
    """Return the facts of a recipe from the cache, or else measures them: for commands that need no image.

    Raises UserError (DataError, ModelError).
    """
    on = trial.bench(bench)
    if (cached := read_cached(cache_file(base, on.kind, trial.cpus))) is not None:
        facts, info = cached
        if facts.speeds or not _is_timed(base, info, trial, trials):
            known = {**_facts_of_study(base, trial), "trials": trials}
            return Measured(facts.model_copy(update=known), info, cached=True)
    info = load_data(base, on).info
    return Measured(measured_anew(base, info, trial, trials=trials, bench=bench), info)


def measured_anew(
    base: Recipe,
    info: DataInfo,
    trial: PerTrial,
    build: BuildModel | None = None,
    *,
    trials: int = 1,
    bench: Bench = HERE,
) -> Facts:
    """Return what `facts_of` finds and how fast the network trains, and store it in the cache.

    Speeds that an earlier command stored are taken from there: a search that begins again is the same. None
    are measured for a recipe that names its number format, and where that takes longer than the search can
    win by it. Facts of a person's own code are not stored: nothing says when the code is another one.
    """
    model = without_weights(base, info, build, bench=bench)
    facts, on = facts_of(model, base, info, trial), trial.bench(bench)
    facts = facts.model_copy(update={"trials": trials})
    if base.awaits_timing:
        file = speeds_file(base, info, on.kind, trial.cpus) if build is None else None
        speeds = read_speeds(file) if file is not None else ()
        if not speeds and _is_timed(base, info, trial, trials):
            speeds = _speeds(model, base, info, on)
            if file is not None:
                write_speeds(file, speeds)
        facts = facts.model_copy(update={"speeds": speeds})
    if build is None and not base.data.own:
        write_cached(cache_file(base, on.kind, trial.cpus), facts, info)
    return facts


def _is_timed(base: Recipe, info: DataInfo, trial: PerTrial, trials: int) -> bool:
    """Whether steps are timed for so many trials: not where their device is not on this machine, as on a
    cluster's head."""
    import torch

    images = trials * base.loop.epochs * info.train_images
    is_here = not trial.gpus or torch.cuda.is_available()
    return base.awaits_timing and is_here and pays_to_time(trial.bench(HERE).kind, images)


def _speeds(model: nn.Module, base: Recipe, info: DataInfo, bench: Bench) -> tuple[Speed, ...]:
    """Return how fast a network trains on a trial's bench; it is of no use afterwards.

    Compiled it is timed where that is open: by blocks if a person asks for `auto`, and else as a whole on a
    GPU. By blocks is no default as long as no GPU has shown what it saves (docs/decisions/0056).
    """
    from trainable.probes.speed import measure_speeds
    from trainable.training.devices import problem_here, threads

    asked = base.loop.compile
    compiling: Compiling = False
    with threads(bench.threads):
        if asked == "auto" or (asked is False and bench.kind == "cuda"):
            able = problem_here(bench.kind, may_compile=True) is None
            compiling = able and ("blocks" if asked == "auto" else True)
        return measure_speeds(model, info, bench.device, base.precision, compiling=compiling)


def with_written_facts(facts: Facts, study: Study) -> Facts:
    """Return the facts, overwritten by those that the study says or that stand in its section `facts`."""
    written = study.facts.values()
    if "lr_band" in written:  # for every trial's optimizer, or else for the documented recipe's
        written = {"lr_band_kind": study.pinned.get("optimizer.kind"), **written}
    written["classes_count_alike"] = study.objective.counts_classes_alike
    return facts.model_copy(update=written)


def run_probes(
    study: Study,
    facts: Facts,
    recipe: Recipe,
    data: DataSet,
    *,
    bench: Bench = HERE,
    build: BuildModel | None = None,
) -> Facts:
    """Return the facts with what the study's probes measure on a recipe; each probe says one line.

    It takes seconds to minutes, as `tunebook lr-find` and `batch-find` do. Raises UserError where the trials'
    device is not on this machine, or where not even one image fits into its memory.
    """
    if not study.space.probes:
        return facts
    import torch

    from trainable.run import make_run
    from trainable.training.devices import threads

    if facts.gpus and not torch.cuda.is_available():
        raise UserError(
            f"space.probes: trials run on a GPU, and there is none here to measure on; run "
            f"`tunebook {study.space.probes[0]}` where there is one, and write what it says under facts"
        )
    on = PerTrial(facts.cpus, facts.gpus).bench(bench)
    with threads(on.threads):
        run = make_run(recipe, data=data, model=build, bench=on)
        try:
            probes = dict.fromkeys(study.space.probes)
            found = {FACT_OF_PROBE[probe]: _measured_by(probe, run, on.say) for probe in probes}
        finally:
            run.close()
    if found.get("lr_band") is not None:
        found["lr_band_kind"] = recipe.optimizer.kind
    return facts.model_copy(update=found)


def _measured_by(probe: Probe, run: Run, say: Say) -> Any:
    match probe:
        case "lr-find":
            return _lr_band(run, say)
        case "batch-find":
            return _largest_micro_batch(run, say)
        case _:
            assert_never(probe)


def _lr_band(run: Run, say: Say) -> tuple[float, float] | None:
    from trainable.probes.lr_find import lr_find

    found = lr_find(run)
    if found.band_at_256 is None:
        say(f"lr-find: no band: {found.reason}; the rules use the other facts")
        return None
    low, high = found.band_at_256
    say(f"lr-find: optimizer.lr {low:.3g} to {high:.3g} at batch 256")
    return low, high


def _largest_micro_batch(run: Run, say: Say) -> int:
    from trainable.probes.batch_find import batch_find

    found = batch_find(run)
    if not found.found:
        raise UserError(
            "space.probes: batch-find: not even the smallest micro-batch fits into memory: use smaller "
            "images, a smaller model, or more memory"
        )
    say(f"batch-find: {found.largest} images fit into memory at once")
    return found.largest


def _facts_of_study(base: Recipe, trial: PerTrial) -> Mapping[str, Any]:
    """Return the facts that follow from the study and the machine, and from no look at data or model."""
    return {
        "epochs": base.loop.epochs,
        "cpus": trial.cpus,
        "gpus": trial.gpus,
        "workers": trial.workers,
        "gpu_memory_bytes": _gpu_memory() if trial.gpus else None,
        "pretrained": base.model.weights is not None,
        "teacher_parameters": teacher_parameters(base),
    }


def teacher_parameters(base: Recipe) -> int | None:
    """Return how many parameters the teacher of a recipe has, by its file of weights; None without one.

    Raises ModelError where there is no such file, or none that can be read.
    """
    if base.distillation is None:
        return None
    weights = teacher_files(base.distillation).weights
    if (counted := parameters_in(weights)) is not None:
        return counted
    from trainable.models.weights import read_weights  # torch takes seconds to import

    state = read_weights(weights)
    return sum(each.numel() for name, each in state.items() if not name.endswith(STATISTICS_OF_NORMS))


def _gpu_memory() -> int | None:
    """Return the bytes of the first GPU; None where this process sees none, as on a cluster's head."""
    import torch

    return int(torch.cuda.get_device_properties(0).total_memory) if torch.cuda.is_available() else None
