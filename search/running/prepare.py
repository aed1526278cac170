"""Everything that is decided, measured and checked before the first trial starts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from search.deciding.pruning import Pruning, choose_pruning
from search.facts.hardware import Hardware, PerTrial, concurrent_trials, per_trial
from search.facts.measured import Say, given, load_data, measured_anew, probed, quiet
from search.facts.packing import packed
from search.record.folder import FACTS_FILE, facts_text, read_facts, read_record, trial_folder
from search.record.storage import store_of
from search.record.trials import Record
from search.study import Study, StudyError
from spaces.catalog.catalog import make_space
from spaces.domains import is_number
from spaces.facts import Facts
from spaces.rules.heuristics import fixed_by_rule
from spaces.rules.optimizers import optimizer
from spaces.space import Space
from trainable.checkpoints.checkpoint_store import Kept
from trainable.data import DataInfo, DataSet, resolve
from trainable.errors import Fault, UserError
from trainable.recipe import Recipe
from trainable.recipe.yamlfile import write_whole


@dataclass(frozen=True)
class Prepared:
    """A search that is ready to run."""

    study: Study
    folder: Path
    data: DataSet
    facts: Facts
    space: Space
    per_trial: PerTrial
    concurrent: int
    pruning: Pruning
    download: bool = False
    """Whether trials may fetch published weights, as each machine has to."""

    def place(self, trial: int) -> str:
        """Where a trial's checkpoints are kept: a folder, or a URI."""
        store = store_of(self.study)
        if store is None:
            return str(trial_folder(self.folder, trial))
        return store.at(trial_folder(Path(), trial).as_posix()).uri

    def kept(self, trial: int, attempts: int = 1) -> Kept:
        """The checkpoints of a trial, for the driver: Ray's loop does not wait for a store that is down."""
        return Kept.at(self.place(trial), attempts=attempts)

    def with_checkpoints(self) -> set[int]:
        """The trials that have some, asked for at once. Raises StoreError where a store does not say."""
        trials = trial_folder(Path(), 0).parent
        store = store_of(self.study)
        if store is not None:
            names = store.at(trials.as_posix()).names()
        else:
            names = [each.name for each in (self.folder / trials).glob("*")]
        return {int(name) for name in names if name.isdecimal()}


def prepare(
    study: Study, folder: Path, hardware: Hardware, *, download: bool = False, say: Say = quiet
) -> Prepared:
    """Load the data, measure the facts, build the space: a new search.

    Raises UserError (StudyError, DataError, ModelError, SpaceError) naming what to mend; nothing is written,
    but for what was measured to the cache. What the study's probes find is said, and where a written range
    lies far from it.
    """
    trial = per_trial(study.resources, hardware)
    base = study.base_recipe()
    data = load_data(base, trial, download=download)
    facts = given(measured_anew(base, data.info, trial), study)
    prepared = _assemble(study, folder, data, facts, trial, hardware, download=download)
    check_weights(prepared.space.base, data.info, download=download)
    if study.space.probes:
        space = prepared.space
        facts = probed(study, facts, space.recipe(space.own), data, download=download, say=say)
        prepared = _assemble(study, folder, data, facts, trial, hardware, download=download)
    if study.resources.pack:
        space = prepared.space
        share = packed(space.recipe(space.own), data, trial, hardware, say)
        trial, facts = replace(trial, gpus=share), facts.model_copy(update={"gpus": share})
        prepared = _assemble(study, folder, data, facts, trial, hardware, download=download)
    if warning := far_rates(study, prepared.space, facts):
        say(warning)
    return prepared


def prepare_again(study: Study, folder: Path, hardware: Hardware, *, download: bool = False) -> Prepared:
    """The same search once more, for `resume`: only the data are loaded again.

    Its facts are read, and so is what it settled: its space and its rungs. Raises UserError when the images
    are no longer those that the search began with.
    """
    facts, info = read_facts(folder)
    record = read_record(folder)
    trial = per_trial(study.resources, hardware, gpus=facts.gpus)
    base = study.base_recipe()
    data = load_data(base.model_copy(update={"data": resolve(study.data, info)}), trial, download=download)
    if data.info.digest != info.digest:
        raise UserError(
            f"{study.data.path}: the images or their labels have changed since the search began "
            f"(digest {info.digest}, now {data.info.digest}); start a new search"
        )
    prepared = _assemble(study, folder, data, facts, trial, hardware, record, download=download)
    check_weights(prepared.space.base, data.info, download=download)
    return prepared


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


def write_facts(prepared: Prepared) -> None:
    """Keep what was measured: a resumed search reads it and never measures again."""
    write_whole(prepared.folder / FACTS_FILE, facts_text(prepared.facts, prepared.data.info))


def check_trials(study: Study, space: Space, facts: Facts) -> None:
    """Refuse what would fail in a trial, before any starts. Raises StudyError, UserError."""
    faults = list(_flip_faults(space, facts))
    if study.objective.metric == "val_top5_accuracy" and facts.classes <= 10:
        message = f"val_top5_accuracy needs more than ten classes, these data have {facts.classes}"
        faults.append(Fault("objective.metric", message))
    batches = [
        end
        for each in space.dimensions
        if each.path == "loop.batch_size"
        for end in each.domain.extremes()
        if isinstance(end, int)
    ]
    if (largest := max(batches, default=0)) > facts.train_images:
        message = f"{largest} is more than the {facts.train_images} training images"
        faults.append(Fault("space.overrides.loop.batch_size", message))
    smallest = min(batches, default=space.base.loop.batch_size)
    if smallest < study.resources.workers:
        message = f"a batch of {smallest} images has none for some of {study.resources.workers} workers"
        faults.append(Fault("resources.workers", message))
    if faults:
        raise StudyError(faults)
    from trainable.training.precision import check as check_precision

    check_precision(space.base.precision, "cuda" if facts.gpus else "cpu")


def far_rates(study: Study, space: Space, facts: Facts) -> str | None:
    """A warning where a written range of rates lies wholly outside of what a sweep recommends, or None."""
    if facts.lr_band is None:
        return None
    low, high = facts.lr_band
    swept = facts.lr_band_kind or optimizer(facts).what
    for each in space.dimensions:
        written = {each.name, each.path} & study.space.overrides.keys()
        if each.path == "optimizer.lr" and written and (each.variant or space.base.optimizer.kind) == swept:
            rates = [end for end in each.domain.extremes() if is_number(end)]
            if rates and (max(rates) < low or min(rates) > high):
                found = f"warning: space.overrides.{written.pop()}: {each.domain}"
                wanted = f"{low:.3g} to {high:.3g} that a sweep recommends for {swept}"
                return f"{found} lies outside of the {wanted}"
    return None


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


def _assemble(
    study: Study,
    folder: Path,
    data: DataSet,
    facts: Facts,
    trial: PerTrial,
    hardware: Hardware,
    record: Record | None = None,
    *,
    download: bool = False,
) -> Prepared:
    """What is ready to run: settled anew, or as the record has it, where that has settled something."""
    settled = record.settled if record is not None else None
    space = (record.space() if record is not None else None) or build_space(study, facts, data.info)
    check_trials(study, space, facts)
    pruning = Pruning(settled.rungs, settled.factor, settled.why) if settled else choose_pruning(study, space)
    concurrent = concurrent_trials(study.concurrent, trial, hardware)
    return Prepared(study, folder, data, facts, space, trial, concurrent, pruning, download)


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
