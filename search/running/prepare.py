"""Decides, measures and checks everything before the first trial starts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from shlex import quote
from typing import TYPE_CHECKING

import numpy as np

from search.deciding.finalists import Final, choose_final, settled_final
from search.deciding.pruning import Pruning, choose_pruning, compared_early, settled_pruning
from search.facts.hardware import Hardware, PerTrial, check_gpu_hours, concurrent_trials, per_trial
from search.facts.measured import (
    load_data,
    measured_anew,
    run_probes,
    with_networks,
    with_written_facts,
)
from search.facts.packing import footprint, gpu_share, shares_gpus, why_shared
from search.facts.start import Start, find_start
from search.record.code import record_of
from search.record.folder import Caution, facts_text, keep_findings
from search.record.home import EVENTS_FILE, FACTS_FILE, FINDINGS_FILE, LOCK_FILE, Home
from search.record.journal import check_format
from search.record.lock import empty
from search.record.stored_search import StoredSearch
from search.record.trials import recipe_key
from search.running.guests import NO_GUESTS, Guests
from search.running.networks import (
    check_first_networks,
    check_networks,
    check_teacher,
    teachers_here_alone,
    teachers_of,
    weights_of,
)
from search.study import STUDY_FILE, Study, read_study
from search.study.code import NO_CODE, Code, check_code
from search.study.first import FirstTrial
from search.study.first_trials import first_trials
from search.study.space import SpaceBuilder, check_trials, far_rates
from search.study.study import Finalists, data_name
from spaces.facts import Facts
from spaces.rules.distillation import gain_to_expect
from spaces.space import Space
from trainable.bench import HERE, Bench, Say
from trainable.data import DataInfo, DataSet, resolve
from trainable.data.measure import comparable
from trainable.errors import DataError, UserError
from trainable.origins import first_renamed
from trainable.recipe import Recipe
from trainable.recipe.distillation import TEACHER
from trainable.recipe.yamlfile import write_whole
from trainable.stages import stage
from trainable.tune.carried import NOTHING, Carried, CarriedMetric, PickledCode

if TYPE_CHECKING:  # torch takes seconds to import
    from trainable.training.extra_metrics import Own

CROP = "augmentation.crop.kind"
FORMER_EXPERIMENT = "tunebook"  # of all searches, before experiments were called after the data
# the names of files that a driver writes before a search's study is there, unfinished ones among them
BEFORE_THE_STUDY = re.compile(
    rf"{re.escape(LOCK_FILE)}(-\d+)?|{re.escape(FACTS_FILE)}|{re.escape(FINDINGS_FILE)}"
    rf"|\.({re.escape(FACTS_FILE)}|{re.escape(FINDINGS_FILE)}|{re.escape(STUDY_FILE)})\.\w+"
)


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A search that is ready to run."""

    study: Study
    home: Home
    data: DataSet
    facts: Facts
    space: Space
    per_trial: PerTrial
    concurrent: int
    pruning: Pruning
    final: Final  # how the best trials are trained again
    first: tuple[FirstTrial, ...] = ()  # what the study asks for, after the documented recipe
    # for each search that the study learns from: what it taught, or why nothing
    learned: tuple[str, ...] = ()
    findings: tuple[Caution, ...] | None = None  # what the images of a new search have shown, if looked at
    bench: Bench = HERE  # trials may fetch published weights if it may, since each machine needs them
    code: Code = NO_CODE  # a person's own functions, for this process
    pickled_code: PickledCode = NOTHING  # their model and metrics, pickled for the processes that train
    # digests of the files of weights that trials begin from, by the names of networks, and of those of their
    # teachers, by `distillation.teacher`
    weights: Mapping[str, str] = field(default_factory=dict)
    splits: Mapping[int, DataSet] = field(default_factory=dict)  # of the finalists, by `data.validation_seed`


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A new search with its images: all that is measured and decided for it follows from this."""

    study: Study
    home: Home
    hardware: Hardware
    bench: Bench
    code: Code
    guests: Guests
    build: SpaceBuilder  # the guests', which have opened the searches that the study learns from
    images: Callable[[Recipe], DataSet]  # loads those of a recipe with another split
    per_trial: PerTrial
    packs: bool  # it is measured how many trials share a GPU
    start: Start
    base: Recipe
    data: DataSet


def load(
    study: Study,
    home: Home,
    hardware: Hardware,
    *,
    bench: Bench = HERE,
    code: Code = NO_CODE,
    guests: Guests = NO_GUESTS,
) -> Loaded:
    """Load the images of a new search, and find the network that its trials start from.

    Raises UserError (StudyError, DataError) naming what to mend.
    """
    check_code(study, code)
    build = guests.space(study)
    trial = per_trial(study.resources, hardware)
    check_gpu_hours(study.budget, trial, hardware)
    packs = shares_gpus(study, trial, hardware)
    start = find_start(study, trial.bench(bench), cluster=hardware.cluster)
    if start.hint:
        bench.say(start.hint)
    base = start.recipe(study)
    images = partial(
        load_data, bench=trial.bench(bench), most_bytes=most_bytes(study, hardware), make=code.data
    )
    data = images(base)
    data.refuse_leaks(study.data)
    return Loaded(
        study=study,
        home=home,
        hardware=hardware,
        bench=bench,
        code=code,
        guests=guests,
        build=build,
        images=images,
        per_trial=trial,
        packs=packs,
        start=start,
        base=base,
        data=data,
    )


def decide(loaded: Loaded) -> Prepared:
    """Measure the facts of a new search, and decide and check all that follows from them.

    It says what the study's probes find, and warns where a written range lies far from it. Nothing is
    written but the measured facts, to the cache. Raises UserError (StudyError, DataError, ModelError,
    SpaceError) naming what to mend.
    """
    findings = _looked_at(loaded)
    prepared = _measured(loaded)
    prepared = _probed(prepared, loaded)
    prepared = _packed(prepared, loaded)
    _check(prepared, loaded.hardware)
    weights = weights_of(prepared.space, prepared.first)
    prepared = replace(prepared, findings=findings, weights=weights)
    return _with_images(prepared, loaded.hardware, loaded.base, loaded.images)


def prepare_again(
    study: Study,
    search: StoredSearch,
    hardware: Hardware,
    *,
    bench: Bench = HERE,
    code: Code = NO_CODE,
    guests: Guests = NO_GUESTS,
) -> Prepared:
    """Prepare the same search once more, for `resume`: only the data are loaded again.

    Its facts, its settled space and its rungs are those of the search. It says whose weights have changed.
    Raises UserError when the images or a teacher are no longer those that the search began with, and where a
    function is not given.
    """
    check_code(study, code, search.code.again if search.code is not None else "")
    facts, info = search.facts, search.info
    trial = per_trial(study.resources, hardware, gpus=facts.gpus, cpus=facts.cpus)
    base = Start.of(facts).recipe(study)
    images = partial(load_data, bench=trial.bench(bench), make=code.data)
    data = images(base.model_copy(update={"data": resolve(study.data, info)}))
    check_unchanged(study.data.path, info, data.info)
    data.refuse_leaks(study.data)
    # a driver may have been killed before it wrote what it had decided
    asked, settled = search.study, search.record.settled
    space = search.record.space() or guests.space(asked)(facts, info).space
    pruning = settled_pruning(settled, asked, space)
    final = settled_final(settled, asked, pruning)
    check_trials(study, space, facts)
    with stage("building the networks"):
        check_networks(space, data.info, code.model, bench)
    first = settled.first if settled is not None else first_trials(asked, space, info, guests.teacher)
    weights = weights_of(space, first)
    _check_weights(search, teachers_of(space, first), weights, bench.say)
    check_teacher(space, data.info, code.model, bench)
    prepared = Prepared(
        study=study,
        home=search.home,
        data=data,
        facts=facts,
        space=space,
        per_trial=trial,
        concurrent=concurrent_trials(study.concurrent, trial, hardware),
        pruning=pruning,
        first=first,
        final=final,
        bench=bench,
        code=code,
        pickled_code=pickled(code),
        weights=weights,
    )
    return _with_images(prepared, hardware, base, images)


def _looked_at(loaded: Loaded) -> tuple[Caution, ...] | None:
    """Say what is odd about the images; return what is to be recorded of that; None: nobody looked."""
    say, remarks = loaded.bench.say, loaded.data.info.remarks
    for line in remarks:
        say(line)
    with stage("comparing the parts of the images"):
        findings = loaded.guests.findings(loaded.data, loaded.study, loaded.base)
        for each in findings or ():
            if not any(each.means in line for line in remarks):
                say(f"{each.title}: {'; '.join(filter(None, (each.brief, each.do)))}")
    return findings


def _measured(loaded: Loaded) -> Prepared:
    """Measure the facts of the images, the network and the machine, and make each network once."""
    study, data, bench, build = loaded.study, loaded.data, loaded.bench, loaded.code.model
    _say_unknown_statistics(loaded.base, bench)
    check_metrics(loaded.base, loaded.code.metrics, data)
    trial, trials = loaded.per_trial, study.budget.trials
    facts = measured_anew(loaded.base, data.info, trial, build, trials=trials, bench=bench)
    facts = loaded.start.known_in(with_written_facts(facts, study))
    facts = with_networks(facts, study, data.info, bench=bench)
    prepared = _with_rules(loaded, facts, trial)
    with stage("building the networks"):
        check_networks(prepared.space, data.info, build, bench)
    check_teacher(prepared.space, data.info, build, bench)
    if (teacher := gain_to_expect(facts)) is not None and not teacher.what:
        bench.say(f"distillation: {teacher.reason} ({teacher.source})")
    return replace(prepared, pickled_code=pickled(loaded.code))


def _probed(prepared: Prepared, loaded: Loaded) -> Prepared:
    """Run the study's probes on the documented recipe, and ask the rules again with what they find."""
    study, space = prepared.study, prepared.space
    if not study.space.probes:
        return prepared
    recipe, build = space.recipe(space.own), prepared.code.model
    with stage("finding what the study's probes ask for"):
        facts = run_probes(study, prepared.facts, recipe, prepared.data, bench=prepared.bench, build=build)
    return _with_rules(loaded, facts, prepared.per_trial, prepared.pickled_code)


def _packed(prepared: Prepared, loaded: Loaded) -> Prepared:
    """Measure what a trial takes of a GPU, and give each trial its share, where the study has them share."""
    if not loaded.packs:
        return prepared
    study, space, hardware = prepared.study, prepared.space, loaded.hardware
    with stage("measuring what a trial takes of a GPU"):
        took = footprint(space.recipe(space.own), prepared.data, prepared.pickled_code.model)
    share = gpu_share(took, study, hardware)
    prepared.bench.say(f"resources.pack: {why_shared(took, share)}")
    trial = per_trial(study.resources, hardware, gpus=share)
    facts = prepared.facts.model_copy(update={"gpus": share, "cpus": trial.cpus, "footprint": took})
    return _with_rules(loaded, facts, trial, prepared.pickled_code)


def _check(prepared: Prepared, hardware: Hardware) -> None:
    """Say what a person should know of the ranges, the first trials and the teachers. Raises ModelError."""
    bench = prepared.bench
    if warning := far_rates(prepared.study, prepared.space, prepared.facts):
        bench.say(warning)
    for line in prepared.learned:
        bench.say(f"space.learn_from: {line}")
    for at, first in enumerate(prepared.first, start=1):
        if first.outside:  # the sampler ignores it
            bench.say(f"trial {at}: {first.mark}")
        if why := compared_early(Recipe.from_tree(first.recipe), prepared.pruning):
            bench.say(f"trial {at}: {why}")
    check_first_networks(prepared.first, prepared.data.info, prepared.code.model, bench)
    for path in teachers_here_alone(teachers_of(prepared.space, prepared.first), hardware):
        bench.say(
            f"warning: {TEACHER}: {path} is a copy of a search in an object store on this machine, and "
            "trials on others fail unless they see it there; copy it to a folder that all machines see, and "
            "name that"
        )


def _say_unknown_statistics(base: Recipe, bench: Bench) -> None:
    from trainable.models.pretrained_input import pretrained_input

    is_open = base.model.weights is not None and base.data.normalisation is None
    if is_open and pretrained_input(base.model, may_fetch=bench.may_fetch) is None:
        bench.say(
            "data.normalisation: nothing says how images looked to these weights, so they are normalised by "
            "their own statistics; write the mean and std of pretraining if you know them"
        )


def check_unchanged(path: str, before: DataInfo, now: DataInfo) -> None:
    """Raise UserError if the images are no longer those that the search began with."""
    if renamed := first_renamed(before.classes, now.classes):
        raise UserError(
            f"{path}: since the search began classes have changed their names ({renamed}); give them the "
            "former ones, or start a new search"
        )
    if before.digest == now.digest and before.stored in ("", now.stored):
        return
    if not before.stored or not comparable(before.digest, now.digest):
        raise UserError(
            f"{path}: the search was begun by an earlier version, whose digest of the images "
            f"({before.digest}) cannot be compared with today's ({now.digest}); start a new search"
        )
    raise UserError(
        f"{path}: the images or their labels have changed since the search began (digest {before.digest} of "
        f"files {before.stored}, now {now.digest} of {now.stored}); start a new search"
    )


def _with_images(
    prepared: Prepared, hardware: Hardware, base: Recipe, images: Callable[[Recipe], DataSet]
) -> Prepared:
    """Load the fresh splits of the finalists, and decode the images into this machine's cache if trials run
    here: then every fault is named before they start. In a cluster the first trial on a machine does it."""
    splits = fresh_splits(prepared.final, base, prepared.data.info, images)
    data = replace(prepared.data, crops=prepared.space.may_have(CROP, "resized"))
    data.idle_readers.end()  # those of the probes: the trials have their own
    if not hardware.cluster:
        with stage("decoding the images"):
            data.be_here(prepared.bench.say)
    elif data.cache is not None:  # nothing that a trial says there arrives here
        prepared.bench.say("each machine decodes its images once, before the first trial there trains")
    return replace(prepared, data=data, splits=splits)


def pickled(code: Code) -> PickledCode:
    """Return the functions as they travel. Raises UserError where one cannot be copied."""
    model = Carried.of(code.model) if code.model is not None else None
    return PickledCode(model, {name: CarriedMetric.of(name, each) for name, each in code.metrics.items()})


def write_facts(prepared: Prepared) -> None:
    """Write what was measured, which a resumed search reads and never measures again, and what was found
    about the images."""
    code = record_of(prepared.code) if prepared.code != NO_CODE else None
    write_whole(
        prepared.home.folder / FACTS_FILE,
        facts_text(prepared.facts, prepared.data.info, code, prepared.learned),
    )
    if prepared.findings is not None:
        keep_findings(prepared.home.folder, prepared.findings)


def check_metrics(base: Recipe, metrics: Own, data: DataSet) -> None:
    """Raise UserError where the answers that metrics need do not fit in this machine's memory, and for a
    fault of a person's own metrics, which are called once, on answers drawn at random for the validation
    part: either would end every trial."""
    specs = base.evaluation.metrics
    if not specs and not metrics:
        return
    import torch

    from trainable.tasks.kits import kit_of
    from trainable.training.answers import Answers
    from trainable.training.extra_metrics import ExtraMetrics, as_metric, make_extra_metrics

    host, own = torch.device("cpu"), {name: as_metric(each) for name, each in metrics.items()}
    extra = ExtraMetrics(specs, own, data.info.classes)
    if not kit_of(base.task).task_class.measures_itself:
        extra.check_fits(max(data.info.validation_images, data.info.test_images), host)
    if not metrics:
        return
    labels = torch.from_numpy(np.array(data.validation.labels, np.int64))
    shape = (len(labels), len(data.info.classes))
    logits = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    make_extra_metrics((), metrics, data.info.classes).measure(Answers.of_logits(logits, labels))


def _check_weights(
    search: StoredSearch, teachers_named: Iterable[str], weights: Mapping[str, str], say: Say
) -> None:
    """Say which networks begin from other weights than before. Raises UserError for another teacher: it has
    a share in the loss, so trials that learnt from two of them cannot be compared."""
    teachers = {
        name: (path, what)
        for path in teachers_named
        for name, what in ((path, "weights"), (recipe_key(path), "recipe"))
    }
    before = {name: digest for each in search.record.trials for name, digest in each.weights.items()}
    for name, digest in weights.items():
        if (known := before.get(name, digest)) == digest:
            continue
        if name in teachers:
            path, what = teachers[name]
            have = "have" if what == "weights" else "has"
            raise UserError(
                f"{TEACHER}: {path}: the teacher's {what} {have} changed since the search began (digest "
                f"{known}, now {digest}), and trials of two teachers cannot be compared; put the earlier "
                f"{what} back, or start a new search"
            )
        say(f"the file of weights of {name} has changed since the search began")


def _with_rules(
    loaded: Loaded, facts: Facts, trial: PerTrial, pickled_code: PickledCode = NOTHING
) -> Prepared:
    """Return what is ready to run, with the space and the rungs that the rules give for these facts."""
    study, info = loaded.study, loaded.data.info
    learned = loaded.build(facts, info)
    space = learned.space
    check_trials(study, space, facts)
    pruning = choose_pruning(study, space)
    return Prepared(
        study=study,
        home=loaded.home,
        data=loaded.data,
        facts=facts,
        space=space,
        learned=learned.lines,
        per_trial=trial,
        concurrent=concurrent_trials(study.concurrent, trial, loaded.hardware),
        pruning=pruning,
        first=first_trials(study, space, info, loaded.guests.teacher),
        final=choose_final(study, pruning),
        bench=loaded.bench,
        code=loaded.code,
        pickled_code=pickled_code,
    )


def most_bytes(study: Study, hardware: Hardware) -> int | None:
    """Return how large the images may be to be held in memory, with a copy for each fresh split."""
    fresh = isinstance(study.finalists, Finalists) and study.finalists.splits == "fresh"
    copies = 1 + study.finalists.seeds if isinstance(study.finalists, Finalists) and fresh else 1
    return None if hardware.shared_bytes is None else hardware.shared_bytes // copies


def fresh_splits(
    final: Final, base: Recipe, info: DataInfo, load: Callable[[Recipe], DataSet]
) -> dict[int, DataSet]:
    """Return the images with training and validation drawn anew for each run of a finalist, by the seed of
    the split. Raises UserError where the data have a validation part of their own."""
    if final.finalists is None or final.finalists.splits == "same":
        return {}
    spec = resolve(base.data, info)
    first = (spec.validation_seed or 0) + 1
    drawn = {
        seed: base.model_copy(update={"data": spec.model_copy(update={"validation_seed": seed})})
        for seed in range(first, first + final.finalists.seeds)
    }
    try:
        return {seed: load(recipe) for seed, recipe in drawn.items()}
    except DataError as error:  # the search's own split was loaded before, from the same images
        raise UserError(f"finalists.splits: fresh is not possible here: {error}") from None


# --- a name that a search has already -------------------------------------------------------------------


def refuse_existing(home: Home, study: Study) -> None:
    """A name is used once: the same study is resumed, another one needs another name. Raises UserError.

    JournalError says that another version of tunebook wrote the search.

    The caller must have the folder's lock: otherwise a search of this name could begin in between.
    """
    names = {path.name for path in home.folder.iterdir()}
    if all(BEFORE_THE_STUDY.fullmatch(name) for name in names):
        empty(home.folder)  # the remains of a search whose driver was killed before it began
        return
    if not {STUDY_FILE, FACTS_FILE} <= names:
        raise UserError(f"{home.address}: exists and is not a search; choose another --name")
    check_format(home.folder / EVENTS_FILE)
    if is_same_study(home, study):
        again = f"`tunebook resume {quote(home.address)}`"
        raise UserError(f"{home.address}: this search exists; go on with {again}")
    raise UserError(f"{home.address}: another study has this name; choose another --name")


def is_same_study(home: Home, study: Study) -> bool:
    """Say whether this very study is there already; what becomes of unfit machines may change, and a search
    of an earlier version has another experiment by default.

    Raises StudyError where its file cannot be read.
    """
    file = home.folder / STUDY_FILE
    if not file.exists():
        return False
    there = read_study(file)
    if (there.tracking.experiment, study.experiment) == (FORMER_EXPERIMENT, data_name(study.data)):
        study = study.model_copy(
            update={"tracking": there.tracking.model_copy(update={"uri": study.tracking.uri})}
        )
    return there.model_copy(update={"machines": study.machines}) == study
