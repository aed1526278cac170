"""Decides, measures and checks everything before the first trial starts."""

from __future__ import annotations

from dataclasses import dataclass, replace

from search.deciding.pruning import Pruning, choose_pruning
from search.facts.hardware import Hardware, PerTrial, concurrent_trials, per_trial
from search.facts.measured import Say, load_data, measured_anew, run_probes, silent, with_written_facts
from search.facts.packing import gpu_share
from search.record.folder import facts_text
from search.record.home import FACTS_FILE, Home
from search.results.search import Search
from search.study import MODEL_NAME, Study
from search.study.objective import function_faults
from search.study.space import build_space, check_trials, far_rates
from search.study.study import StudyError
from spaces.domains import Choice
from spaces.facts import Facts
from spaces.space import Space
from trainable.data import DataInfo, DataSet, resolve
from trainable.errors import UserError
from trainable.recipe.yamlfile import write_whole

CROP = "augmentation.crop.kind"


@dataclass(frozen=True)
class Prepared:
    """Holds a search that is ready to run."""

    study: Study
    home: Home
    data: DataSet
    facts: Facts
    space: Space
    per_trial: PerTrial
    concurrent: int
    pruning: Pruning
    download: bool = False
    """Whether trials may fetch published weights, which each machine needs."""


def prepare(
    study: Study, home: Home, hardware: Hardware, *, download: bool = False, say: Say = silent
) -> Prepared:
    """Load the data, measure the facts and build the space of a new search.

    Raises UserError (StudyError, DataError, ModelError, SpaceError) naming what to mend. Nothing is written
    but the measured facts, to the cache. It says what the study's probes find, and warns where a written
    range lies far from it.
    """
    check_functions(study)
    trial = per_trial(study.resources, hardware)
    base = study.base_recipe()
    data = load_data(base, trial, download=download, most_bytes=hardware.shared_bytes)
    facts = with_written_facts(measured_anew(base, data.info, trial, download=download), study)
    prepared = _assemble(study, home, data, facts, trial, hardware, download=download)
    check_weights(prepared.space, data.info, download=download)
    if study.space.probes:
        space = prepared.space
        facts = run_probes(study, facts, space.recipe(space.own), data, download=download, say=say)
        prepared = _assemble(study, home, data, facts, trial, hardware, download=download)
    if study.resources.pack:
        space = prepared.space
        least = replace(trial, cpus=study.resources.cpus or 1)
        share = gpu_share(space.recipe(space.own), data, least, hardware, say)
        trial = per_trial(study.resources, hardware, gpus=share)
        facts = facts.model_copy(update={"gpus": share, "cpus": trial.cpus})
        prepared = _assemble(study, home, data, facts, trial, hardware, download=download)
    if warning := far_rates(study, prepared.space, facts):
        say(warning)
    return _with_images_here(prepared, hardware, say)


def prepare_again(
    study: Study,
    home: Home,
    search: Search,
    hardware: Hardware,
    *,
    download: bool = False,
    say: Say = silent,
) -> Prepared:
    """Prepare the same search once more, for `resume`: only the data are loaded again.

    Its facts, its settled space and its rungs are those of the search. Raises UserError when the images are
    no longer those that the search began with.
    """
    check_functions(study)
    facts, info = search.facts, search.info
    trial = per_trial(study.resources, hardware, gpus=facts.gpus, cpus=facts.cpus)
    base = study.base_recipe()
    resolved = base.model_copy(update={"data": resolve(study.data, info)})
    data = load_data(resolved, trial, download=download)
    if data.info.digest != info.digest:
        raise UserError(
            f"{study.data.path}: the images or their labels have changed since the search began "
            f"(digest {info.digest}, now {data.info.digest}); start a new search"
        )
    check_trials(study, search.space, facts)
    check_weights(search.space, data.info, download=download)
    concurrent = concurrent_trials(study.concurrent, trial, hardware)
    space, pruning = search.space, search.pruning
    prepared = Prepared(study, home, data, facts, space, trial, concurrent, pruning, download)
    return _with_images_here(prepared, hardware, say)


def _with_images_here(prepared: Prepared, hardware: Hardware, say: Say) -> Prepared:
    """Decodes the images into this machine's cache if trials run here: then every fault is named before
    they start. In a cluster the first trial on each machine does it."""
    data = replace(prepared.data, crops=prepared.space.may_have(CROP, "resized"))
    data.idle_readers.end()  # those of the probes: the trials have their own
    if not hardware.cluster:
        data.be_here(say)
    elif data.cache is not None:  # nothing that a trial says there arrives here
        say("each machine decodes its images once, before the first trial there trains")
    return replace(prepared, data=data)


def check_functions(study: Study) -> None:
    """Raises StudyError where the objective is a function of the caller's: no search can be given one yet."""
    if faults := list(function_faults(study.objective)):
        raise StudyError(faults)


def write_facts(prepared: Prepared) -> None:
    """Write what was measured: a resumed search reads it and never measures again."""
    write_whole(prepared.home.folder / FACTS_FILE, facts_text(prepared.facts, prepared.data.info))


def check_weights(space: Space, info: DataInfo, *, download: bool = False) -> None:
    """Load the weights from which trials start, once for each model that the space may choose; with
    `download`, published ones are fetched.

    Raises ModelError where they are missing or do not fit, which would fail in every trial with this model.
    """
    base = space.base
    if base.model.weights is None:
        return
    from trainable.training.network import make_network

    domains = [each.domain for each in space.dimensions if each.path == MODEL_NAME]
    others = [name for domain in domains if isinstance(domain, Choice) for name in domain.options]
    for name in dict.fromkeys([base.get(MODEL_NAME), *others] if others else [None]):
        chosen = base if name is None else base.with_values({MODEL_NAME: name})
        make_network(chosen.model, info, download=download)


def _assemble(
    study: Study,
    home: Home,
    data: DataSet,
    facts: Facts,
    trial: PerTrial,
    hardware: Hardware,
    *,
    download: bool = False,
) -> Prepared:
    """Returns what is ready to run, with the space and the rungs that the rules give for these facts."""
    space = build_space(study, facts, data.info)
    check_trials(study, space, facts)
    concurrent = concurrent_trials(study.concurrent, trial, hardware)
    pruning = choose_pruning(study, space)
    return Prepared(study, home, data, facts, space, trial, concurrent, pruning, download)
