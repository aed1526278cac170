"""This module defines the Study: one whole search as data.

It is read from YAML, and its resolved form is stored in the search folder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from math import ceil
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    model_validator,
)

from search.study.first import first_entry
from search.study.objective import (
    Objective,
    default_recipe,
    metric_faults,
    with_default_metric,
    with_objective,
    without_default_metric,
)
from spaces.catalog.overrides import path_of
from spaces.facts import NOT_OVERWRITABLE, WrittenFacts
from trainable.errors import UNION, Fault, FaultyInput, RecipeError, UserError, faults_of
from trainable.files.paths import usable_path, without_tilde
from trainable.files.store import is_uri, name_in, without_credentials
from trainable.recipe import Recipe
from trainable.recipe.base import Spec
from trainable.recipe.data import Data
from trainable.recipe.models import ARGUMENTS, MODEL_NAME, OWN_WEIGHTS, absolute_name, is_published
from trainable.recipe.training import LONGEST_RUN
from trainable.recipe.trees import NoSuchPath, NotPlain, as_json, leaves, with_leaf, with_value, without
from trainable.recipe.yamlfile import read_tree, to_yaml, write_whole
from trainable.training.metrics import OBJECTIVES, SHARES

DEFAULT_STORAGE = "searches"
STUDY_FILE = "study.yaml"  # the file's name in a search's folder
# the recipe fields that `base` may not hold, and where they belong
FIXED_BY_THE_STUDY = {
    "data": "write it in the study's own section `data`",
    "loop.epochs": "write budget.epochs, the length of the longest trial",
    "version": "it is the version of the file format",
    "provenance": "it is written by the search",
}

SHARES_GPUS = False  # by default; True once a search on a card has shown it to be right (decisions/0055)
MOST_TRIALS = 1_000_000
LIBRARIES = ("timm", "torchvision", "smp")
WEIGHTS = "model.weights"
# how a study names a folder: a path on a machine, or a URI in an object store
Address = Annotated[
    str, Field(min_length=1), AfterValidator(without_credentials), AfterValidator(usable_path)
]


class StudyError(FaultyInput):
    """The study is not valid."""

    subject, section = "study", "a-study"


Probe = Literal["lr-find", "batch-find"]
# the fact that each probe measures
FACT_OF_PROBE: dict[Probe, str] = {"lr-find": "lr_band", "batch-find": "largest_micro_batch"}


class SpaceChoice(Spec):
    """The name of the space, and what replaces some of its dimensions (dotted path -> domain)."""

    name: str | None = Field(
        None, description="default: finetune where a rule chooses pretrained weights, else document"
    )
    overrides: dict[str, Any] = Field(
        default_factory=dict,
        description="by dotted path a range, a belief or one value, in place of the rule's",
    )
    learn_from: tuple[Address, ...] = Field(
        (), description="earlier searches, which teach where to look first: their folders or URIs"
    )
    probes: tuple[Probe, ...] = Field((), description="measured once, before the first trial")


SamplerKind = Literal["auto", "mutation", "gp", "prior-tpe", "tpe", "random", "qmc"]


class SamplerChoice(Spec):
    kind: SamplerKind = Field("auto", description="how trials are drawn")


SchedulerKind = Literal["asha", "promotion", "model"]


class SchedulerChoice(Spec):
    """How trials are compared. `None` leaves a value to the budget and the space."""

    kind: Literal[SchedulerKind, "none"] = Field(
        "asha",
        description="asha stops trials at rungs; promotion pauses them; model stops and keeps by forecasts",
    )
    grace_epochs: Annotated[int, Field(ge=1)] | None = Field(
        None, description="the first rung: trials are not compared before this epoch"
    )
    reduction_factor: Annotated[int, Field(ge=2)] | None = Field(
        None, description="of so many trials one goes on at each rung"
    )
    rungs: tuple[Annotated[int, Field(ge=1)], ...] | None = Field(
        None, description="all epochs at which trials are compared, in place of grace_epochs"
    )

    @model_validator(mode="after")
    def rungs_rise(self) -> Self:
        if self.rungs is not None:
            if list(self.rungs) != sorted(set(self.rungs)):
                raise ValueError(f"rungs must rise, got {list(self.rungs)}")
            if self.grace_epochs is not None:
                raise ValueError("give grace_epochs or rungs, not both")
        return self


class Budget(Spec):
    trials: Annotated[int, Field(ge=1, le=MOST_TRIALS)] = Field(16, description="how many trials")
    epochs: Annotated[int, Field(ge=1, le=LONGEST_RUN)] = Field(20, description="of the longest trial")
    hours: Annotated[float, Field(gt=0.0)] | None = Field(
        None, description="the search ends after so many hours; default: no limit"
    )
    gpu_hours: Annotated[float, Field(gt=0.0)] | None = Field(
        None, description="that trials hold GPUs, at most"
    )
    price: Annotated[float, Field(gt=0.0)] | None = Field(
        None, description="of these GPU-hours, at most; needs price_per_gpu_hour"
    )
    price_per_gpu_hour: Annotated[float, Field(gt=0.0)] | None = Field(None, description="in any currency")
    target: float | None = Field(
        None, description="of the objective: a finished trial that reaches it is enough"
    )
    no_gain: Annotated[
        bool | Annotated[int, Field(ge=2, le=MOST_TRIALS)], Field(union_mode="left_to_right")
    ] = Field(
        False, description="true: end when 10 more trials should gain less than luck; or so many trials"
    )

    @model_validator(mode="after")
    def price_has_a_unit(self) -> Self:
        if self.price is not None and self.price_per_gpu_hour is None:
            raise ValueError("price: needs price_per_gpu_hour beside it")
        return self

    @property
    def most_gpu_hours(self) -> float | None:
        """How many GPU-hours the trials may hold, by either limit; None without one."""
        limits = [] if self.gpu_hours is None else [self.gpu_hours]
        if self.price is not None and self.price_per_gpu_hour is not None:
            limits.append(self.price / self.price_per_gpu_hour)
        return min(limits, default=None)

    @property
    def is_time(self) -> bool:
        """Whether time may end the search before its trials: then one that trains faster is worth more."""
        return self.hours is not None or self.most_gpu_hours is not None


class Finalists(Spec):
    """How many of the best trials are trained again, and how often, before one of them is called the best.

    A winner is lucky: it is the best of many scores, each partly chance. Its runs with fresh seeds are not.
    """

    top: Annotated[int, Field(ge=1, le=100)] = Field(3, description="how many of the best trials")
    seeds: Annotated[int, Field(ge=2, le=100)] = Field(3, description="runs of each, with fresh seeds")
    splits: Literal["same", "fresh"] = Field(
        "same", description="fresh: each run draws training and validation anew; the test part stays"
    )


WORD, NUMBERS = f"{UNION}word", f"{UNION}numbers"
# a word, or how many are trained how often
FinalistsChoice = Annotated[
    Annotated[Literal["auto", "none"], Tag(WORD)] | Annotated[Finalists, Tag(NUMBERS)],
    Discriminator(lambda written: NUMBERS if isinstance(written, dict | Finalists) else WORD),
]


def _none_for_auto(written: object) -> object:
    return None if written == "auto" else written


class Resources(Spec):
    """What each of a trial's `workers` gets: they train one model, data-parallel, one process each."""

    cpus: Annotated[Annotated[int, Field(ge=1, le=10_000)] | None, BeforeValidator(_none_for_auto)] = Field(
        None, description="auto: a machine's processors shared out over its GPUs, at most 16; 1 without a GPU"
    )
    gpus: Annotated[Annotated[float, Field(ge=0.0)] | None, BeforeValidator(_none_for_auto)] = Field(
        None, description="a number, 0.25 where four share one; auto: one where there are any, else none"
    )
    pack: bool | None = Field(
        None, description="true: as many trials share a GPU as fill it, which is measured; false: none do"
    )
    workers: Annotated[int, Field(ge=1, le=10_000)] = Field(
        1, description="processes that train one trial together, data-parallel"
    )

    @property
    def shares_gpus(self) -> bool:
        """Whether it is measured how many trials share a GPU, where there is one."""
        if self.pack is None:
            return SHARES_GPUS and self.gpus is None and self.workers == 1
        return self.pack

    @model_validator(mode="after")
    def whole_gpus(self) -> Self:
        if self.pack and (self.gpus not in (None, 1) or self.workers > 1):
            raise ValueError(
                "pack: decides what part of a GPU a trial of one worker gets; leave out gpus and workers"
            )
        if self.gpus is not None and self.gpus > 1:
            raise ValueError(
                f"gpus {self.gpus:g}: a worker uses at most one GPU; for a trial on several write "
                f"workers: {ceil(self.gpus)} and gpus: 1"
            )
        if self.workers > 1 and self.gpus not in (None, 0, 1):
            raise ValueError(
                f"gpus {self.gpus:g}: workers of one trial cannot share a GPU (NCCL refuses it); write 1"
            )
        return self


class MachinesChoice(Spec):
    """What becomes of machines of a cluster that cannot train: each is asked before the first trial."""

    unfit: Literal["refuse", "leave_out"] = Field(
        "refuse", description="the search does not start and says why, or the others train without them"
    )


class Limits(Spec):
    step_seconds: Annotated[float, Field(gt=0.0)] = Field(900.0, description="a longer batch counts as hung")
    retries: Annotated[int, Field(ge=0, le=1000)] = Field(
        1, description="of a crashed trial, from its checkpoint"
    )
    machine_retries: Annotated[int, Field(ge=0, le=1000)] = Field(
        20, description="of a trial that lost its machine or processes, from its checkpoint"
    )


class Tracking(Spec):
    """Where MLflow keeps the search, and how much of it."""

    uri: str | None = Field(None, description="default: SQLite beside the searches")
    experiment: Annotated[str, Field(min_length=1, max_length=500)] | None = Field(
        None, description="the name of MLflow's experiment; default: that of the data"
    )
    metrics: Literal["few", "all"] = Field(
        "few",
        description="few: the objective, losses, accuracy, rate and time of each epoch; all: the rest too",
    )
    system_metrics: bool = Field(
        False, description="processor, memory, disk, network and GPUs of the driver's machine"
    )
    register_as: Annotated[str, Field(min_length=1, max_length=250, pattern=r"^[^/:'\"]+$")] | None = Field(
        None,
        description="the name in MLflow's model registry under which the best trial's model is registered",
    )


class Study(Spec):
    """One search, as asked for: a base recipe, a space around it, and how to sample, stop and compute."""

    version: Literal[1] = Field(1, description="of the file's format")
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")] | None = Field(
        None, description="the search's folder is STORAGE/NAME; default: from the data and the date"
    )
    seed: Annotated[int, Field(ge=0, lt=2**32)] = Field(
        0, description="of the draws; with the same results in the same order: the same trials"
    )
    data: Data = Field(description="the images to learn from")
    base: dict[str, Any] = Field(
        default_factory=dict, description="fields of the recipe that are fixed, not searched"
    )
    facts: WrittenFacts = Field(WrittenFacts(), description="what you know better than the measurement")
    space: SpaceChoice = Field(SpaceChoice(), description="what varies")
    first: tuple[Annotated[Any, AfterValidator(first_entry)], ...] = Field(
        (), description="trials after the documented recipe: files of recipes, or values on top of it"
    )
    sampler: SamplerChoice = Field(SamplerChoice(), description="how trials are drawn")
    scheduler: SchedulerChoice = Field(SchedulerChoice(), description="which trials are stopped early")
    budget: Budget = Field(Budget(), description="how much is trained")
    finalists: FinalistsChoice = Field(
        "auto", description="auto: 3 seeds of the best 3, 2 or 1, if that costs a fifth of the search at most"
    )
    resources: Resources = Field(Resources(), description="what a trial computes with")
    concurrent: Annotated[int, Field(ge=1, le=10_000)] | None = Field(
        None, description="trials at once; default: as many as fit the machines"
    )
    machines: MachinesChoice = Field(MachinesChoice(), description="machines that cannot train")
    limits: Limits = Field(Limits(), description="when a trial counts as hung or failed")
    objective: Objective = Field(Objective(), description="the metric by which trials are compared")
    tracking: Tracking = Field(Tracking(), description="where MLflow keeps the search")
    storage: Address = Field(DEFAULT_STORAGE, description="the folder or URI that holds the searches")

    @model_validator(mode="after")
    def rungs_lie_in_the_budget(self) -> Self:
        late = [rung for rung in self.scheduler.rungs or () if rung >= self.budget.epochs]
        if late:
            raise ValueError(f"scheduler.rungs {late} are not below budget.epochs {self.budget.epochs}")
        grace = self.scheduler.grace_epochs
        if grace is not None and grace >= self.budget.epochs > 1:
            raise ValueError(
                f"scheduler.grace_epochs {grace} is not below budget.epochs {self.budget.epochs}: "
                "no trial would be stopped early"
            )
        return self

    @classmethod
    def from_tree(cls, tree: Mapping[str, Any], where: str = "") -> Study:
        """Return the study that a mapping describes. Raises StudyError with every fault at once."""
        misplaced = RECIPE_SECTIONS & set(tree)
        if is_recipe(tree):
            raise UserError(
                f"{where or 'study'}: this is a recipe, not a study: train it with `tunebook train`, "
                "or put its sections under `base:`"
            )
        tree = with_default_metric(tree)
        try:
            study = cls.model_validate_json(as_json(tree))
        except NotPlain as error:
            raise StudyError([Fault(error.path, str(error))], where) from None
        except ValidationError as error:
            faults = [_explained(fault, misplaced) for fault in faults_of(error, tree, cls)]
            raise StudyError(faults, where) from None
        if faults := list(_contradictions(study)):
            raise StudyError(faults, where)
        try:
            study.base_recipe()
        except RecipeError as error:
            faults = [Fault(f"base.{path}" if path else "base", message) for path, message in error.faults]
            raise StudyError(faults, where) from None
        return study

    @property
    def pinned(self) -> dict[str, Any]:
        """The values that `base` fixes, by dotted path; nested and dotted keys mean the same.

        A model's name and the arguments of a person's own network are not fixed if an override varies them:
        `base` has the first trial's values. `loop.compile: auto` leaves it to the rule.
        """
        varied = {path_of(name) for name in self.space.overrides}
        varied = {path for path in varied if path == MODEL_NAME or path.startswith(f"{ARGUMENTS}.")}
        written = {path: value for path, value in leaves(self.base) if path not in varied}
        return {path: value for path, value in written.items() if (path, value) != ("loop.compile", "auto")}

    def base_recipe(self) -> Recipe:
        """Return the default recipe with this study's data, length and pinned values, which measures the
        objective. Raises RecipeError."""
        paths = [path for path, _ in leaves(self.base)]
        if twice := sorted({path for path in paths if paths.count(path) > 1}):
            raise RecipeError([Fault(path, "is pinned twice, nested and dotted; keep one") for path in twice])
        for path in self.pinned:
            for field, instead in FIXED_BY_THE_STUDY.items():
                if path == field or path.startswith(f"{field}."):
                    raise RecipeError([Fault(path, f"cannot be pinned in base: {instead}")])
        with_length = default_recipe(self.base).with_values({"loop.epochs": self.budget.epochs})
        # data are loaded for the first model that `space.overrides` chooses between, where `base` names none
        first_name = {MODEL_NAME: self.networks[0]} if self.networks else {}
        written = {**first_name, **dict(leaves(self.base))}
        pinned = with_length.model_copy(update={"data": self.data}).with_values(written)
        return with_objective(pinned, self.objective)

    def with_rules(self, recipe: Recipe, values: Mapping[str, Any]) -> Recipe:
        """Return the recipe with the values that rules give. What is pinned of the model stays: a recipe of
        another network would lose it."""
        pinned = {path: value for path, value in self.pinned.items() if path.startswith("model.")}
        return recipe.with_values({**values, **pinned})

    @property
    def experiment(self) -> str:
        """The name of MLflow's experiment: as it is written, or else the data's."""
        return self.tracking.experiment or data_name(self.data)

    @property
    def networks(self) -> tuple[str, ...]:
        """The models that `space.overrides` chooses between; none where it does not."""
        chosen = self.space.overrides.get(MODEL_NAME)
        options = chosen.get("choice") if isinstance(chosen, Mapping) else None
        known = self.pinned.get("model.kind") in LIBRARIES
        return tuple(options) if known and isinstance(options, list) else ()

    def with_values(self, values: Mapping[str, Any]) -> Study:
        """Return a copy with values set by dotted path.

        For example `{"budget.trials": 32, "base.optimizer.lr": 0.2}`.
        """
        tree = without_default_metric(self.model_dump(mode="json"))
        return Study.from_tree(study_tree_with(tree, values))

    def with_trials(self, trials: int | None) -> Study:
        """Return a copy whose budget has so many trials; for None, the study itself."""
        if trials is None:
            return self
        return self.model_copy(update={"budget": self.budget.model_copy(update={"trials": trials})})

    def resolved(self, name: str) -> Study:
        """Return a copy whose paths are absolute, so that it means the same from any folder.

        Raises StudyError where the initial weights are neither a file nor a folder.
        """
        storage = absolute(self.storage)
        data = self.data
        if not data.bundled and not data.own:
            data = data.model_copy(update={"path": absolute(data.path)})
        if data.root is not None:
            data = data.model_copy(update={"root": absolute(data.root)})
        if data.exclude is not None:
            data = data.model_copy(update={"exclude": absolute(data.exclude)})
        base = dict(self.base)
        weights = self.pinned.get(WEIGHTS)
        if weights is not None and not is_published(weights):
            base = with_leaf(base, WEIGHTS, str(weights_path(weights)))
        if (named := self.pinned.get(MODEL_NAME)) is not None:
            base = with_leaf(base, MODEL_NAME, absolute_name(named))
        space = self.space
        if self.networks:
            chosen = {**space.overrides[MODEL_NAME], "choice": [*map(absolute_name, self.networks)]}
            space = space.model_copy(update={"overrides": {**space.overrides, MODEL_NAME: chosen}})
        space = space.model_copy(update={"learn_from": tuple(map(absolute, space.learn_from))})
        first = tuple(absolute(each) if isinstance(each, str) else each for each in self.first)
        resources = self.resources
        if not resources.shares_gpus:  # so it goes on under a version that shares GPUs by default
            resources = resources.model_copy(update={"pack": False})
        tracking = self.tracking.model_copy(update={"experiment": self.experiment})
        found = {"name": name, "storage": storage, "data": data, "base": base, "space": space, "first": first}
        return self.model_copy(update={**found, "resources": resources, "tracking": tracking})

    def yaml(self) -> str:
        return to_yaml(self.model_dump(mode="json"), {})

    def write(self, folder: Path) -> None:
        """Write `study.yaml`, readable by its owner alone, because a tracking URI may hold a password."""
        write_whole(folder / STUDY_FILE, self.yaml().encode(), mode=0o600)


def data_name(data: Data) -> str:
    """Return what data are called: `flowers` for /home/ada/flowers.npz."""
    return Path(data.name or name_in(data.path)).stem or "search"


def absolute(address: str) -> str:
    """Make a folder's address absolute and without `..`; `~` is a home folder, a URI stays as it is."""
    if is_uri(address):
        return address
    path = without_tilde(address).absolute()
    return str(path.resolve() if ".." in path.parts else path)


def _contradictions(study: Study) -> Iterator[Fault]:
    yield from metric_faults(study.objective, study.base)
    yield from _goal_faults(study.budget, study.objective)
    for probe in dict.fromkeys(study.space.probes):
        for name in study.facts.values():
            if name.startswith(FACT_OF_PROBE[probe]):
                yield Fault(f"facts.{name}", f"is measured by space.probes: [{probe}], too; keep one")
    if MODEL_NAME in study.space.overrides and not study.networks:
        known = study.pinned.get("model.kind") in LIBRARIES
        choose = "expected choice: [NAME, ...]; write base.model.name for one network alone"
        message = (
            choose if known else "needs base.model.kind: timm, torchvision or smp, whose networks have names"
        )
        yield Fault(f"space.overrides.{MODEL_NAME}", message)


def _goal_faults(budget: Budget, objective: Objective) -> Iterator[Fault]:
    """Yield what is wrong with goals for an objective."""
    metric, target = objective.metric, budget.target
    if target is not None and metric in SHARES and not 0.0 < target <= 1.0:
        percent = f"; write {target / 100:g} for {target:g} %" if 1.0 < target <= 100.0 else ""
        yield Fault("budget.target", f"{metric} lies between 0 and 1, got {target:g}{percent}")
    if target is not None and metric in OBJECTIVES and target < 0.0:
        yield Fault("budget.target", f"{metric} is never below 0, got {target:g}")
    if budget.no_gain and metric not in SHARES:
        why = f"luck is only known of scores between 0 and 1, and {metric} is none of these"
        yield Fault("budget.no_gain", f"{why}; write budget.target instead")


def _explained(fault: Fault, misplaced: Set[str]) -> Fault:
    """Return a fault of the schema; where a key belongs in another section, the message says so instead."""
    path, _ = fault
    if path in misplaced:
        return Fault(path, f"is a section of the recipe: write it under base, as base.{path}")
    section, _, name = path.partition(".")
    if section == "facts" and name in NOT_OVERWRITABLE:
        known = ", ".join(WrittenFacts.model_fields)
        return Fault(path, f"cannot be written: {NOT_OVERWRITABLE[name]} (known here: {known})")
    return fault


RECIPE_SECTIONS = set(Recipe.model_fields) - set(Study.model_fields)
STUDY_SECTIONS = set(Study.model_fields) - set(Recipe.model_fields)


def is_recipe(tree: Mapping[str, Any]) -> bool:
    """Say whether a mapping has more sections of a recipe than of a study: one may be misplaced."""
    return len(RECIPE_SECTIONS & set(tree)) > len(STUDY_SECTIONS & set(tree))


def read_study(path: Path) -> Study:
    """Return the study in a YAML file. Raises UserError or StudyError."""
    return Study.from_tree(read_tree(path), where=str(path))


def study_tree_with(tree: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a study's tree with values set by dotted path; the schema checks new keys later."""
    copy = dict(tree)
    for path, value in values.items():
        names = _split(path)
        if path.startswith("base.") and isinstance(copy.get("base"), Mapping):
            copy["base"] = without(copy["base"], names[-1])
        try:
            copy = with_value(copy, names, value, may_add=lambda section: True)
        except NoSuchPath as error:
            message = f"{error.section} is a single value, not a section"
            raise StudyError([Fault(path, message)]) from None
    return copy


def _split(path: str) -> list[str]:
    """Split a path into names; below `space.overrides` and `base` a dotted path stays one name."""
    for head in ("space.overrides.", "base."):
        if path.startswith(head):
            return [*head.rstrip(".").split("."), path.removeprefix(head)]
    return path.split(".")


def weights_path(text: str) -> Path:
    """Return the absolute path of a person's weights. Raises StudyError where there is nothing."""
    path = without_tilde(text).absolute()
    if path.exists():
        return path
    message = (
        f"no such file or folder: {path}; `{OWN_WEIGHTS}` names the weights of the model's library, and null "
        "(on the command line none) trains from scratch"
    )
    raise StudyError([Fault(f"base.{WEIGHTS}", message)])
