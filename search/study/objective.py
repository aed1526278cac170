"""Describes what a search optimises and what a trial's network may cost, and makes recipes measure it.

A study that names no metric has that of its task.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Annotated, Any, Self

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from trainable.errors import Fault, RecipeError, quoted
from trainable.recipe import Recipe
from trainable.recipe.base import Spec
from trainable.recipe.metrics import KINDS, SCORE_OF_KIND, AnyMetric, MetricKind, Mode, cost_faults
from trainable.recipe.network_cost import NetworkCost
from trainable.recipe.tasks import CLASSIFICATION, TASKS, AnyTask
from trainable.training.metrics import CLASSES_ALIKE, OBJECTIVES

PREFIX = "val_"
METRICS = "evaluation.metrics"
_ADAPTER: TypeAdapter[MetricKind] = TypeAdapter(AnyMetric)
TASK = "task.kind"


class Limit(Spec):
    """The most that a cost may be."""

    max: Annotated[float, Field(gt=0.0)] = Field(description="the limit itself")


class Constraints(Spec):
    """What the network of a trial may cost, as `NetworkCost` counts; None allows anything."""

    latency_ms: Limit | None = Field(None, description="from one image to its answer")
    parameters: Limit | None = Field(None, description="all numbers of the network, frozen ones too")
    memory_gib: Limit | None = Field(None, description="of a training step of the micro-batch")

    @property
    def limits(self) -> dict[str, float]:
        """The most that a cost may be, by name; empty where anything is allowed."""
        return {name: limit.max for name, limit in self if limit is not None}

    def __str__(self) -> str:
        """Return the limits in words, such as `latency_ms at most 20`; empty without any."""
        return ", ".join(f"{name} at most {shown_cost(most)}" for name, most in self.limits.items())

    def excesses(self, cost: NetworkCost) -> dict[str, float]:
        """Return for each limit by what share of it a cost is above it; 0 or less where it is met.

        Shares can be added: 5 ms above 20 ms count as much as a quarter more parameters than are allowed.
        """
        return {name: getattr(cost, name) / most - 1.0 for name, most in self.limits.items()}

    def broken(self, cost: NetworkCost) -> str | None:
        """Return in words which limits a cost is above, and by how much; None where it meets them all."""
        words = []
        for name, share in self.excesses(cost).items():
            if share > 0.0:
                percent = f"{share:,.0%}" if share >= 0.1 else f"{100.0 * share:.2g}%"
                is_above = f"{shown_cost(getattr(cost, name))} is {percent} above"
                words.append(f"{name} {is_above} {shown_cost(self.limits[name])}")
        return ", ".join(words) or None


NO_CONSTRAINTS = Constraints()


def above_limits(excesses: Mapping[str, float]) -> float:
    """Return the sum of the shares that are above limits, as Optuna ranks trials; 0 where all are met."""
    return sum(max(0.0, share) for share in excesses.values())


def shown_cost(value: float) -> str:
    """Return a cost for people: whole numbers in full from a thousand on, three digits below."""
    return f"{value:,.0f}" if value >= 1000.0 else f"{value:.3g}"


class Objective(Spec):
    """The metric by which trials are compared, with what that metric itself asks for.

    `own` says that it is a function of the caller's, which the search is given in Python.
    """

    metric: str = Field("val_accuracy", description="of the validation part, such as val_balanced_accuracy")
    mode: Mode | None = Field(None, description="max or min; every metric of tunebook's own has one")
    own: bool = Field(False, description="a function given to the search in Python; needs mode: max or min")
    precision: Annotated[float, Field(gt=0.0, le=1.0)] | None = Field(
        None, description="of val_recall_at_precision"
    )
    costs: tuple[tuple[float, ...], ...] | None = Field(
        None, description="of val_cost: a row for each true class"
    )
    classes: tuple[str, ...] | None = Field(None, description="of val_cost: the order of its rows")
    bins: Annotated[int, Field(ge=1, le=10_000)] | None = Field(
        None, description="of val_calibration_error: 15"
    )
    constraints: Constraints = Field(NO_CONSTRAINTS, description="what a trial's network may cost")

    @model_validator(mode="after")
    def metric_is_known(self) -> Self:
        if self.own:
            self._check_own()
            return self
        if self.metric not in OBJECTIVES:
            known = ", ".join(OBJECTIVES)
            advice = "a function of yours is named by own: true and a mode, from Python"
            raise ValueError(f"metric {quoted(self.metric)} is none of {known} ({advice})")
        if self.mode not in (None, OBJECTIVES[self.metric]):
            raise ValueError(f"mode of {self.metric} is {OBJECTIVES[self.metric]!r}, got {self.mode!r}")
        self._check_parameters()
        return self

    def _check_own(self) -> None:
        if self.metric in OBJECTIVES:
            raise ValueError(f"{self.metric} is one of ours: give a function of yours another name")
        if not self.metric.startswith(PREFIX):
            raise ValueError(f"metric {quoted(self.metric)}: the name of a function begins with {PREFIX}")
        if self.mode is None:
            raise ValueError(f"{self.metric} is your own: say which is better, mode: max or mode: min")
        if self.parameters:
            raise ValueError(f"{self.metric} is your own and takes no {', '.join(self.parameters)}")

    def _check_parameters(self) -> None:
        kind = self.metric.removeprefix(PREFIX)
        fields = _fields_of(kind) if kind in SCORE_OF_KIND else {}
        if strange := [name for name in self.parameters if name not in fields]:
            raise ValueError(f"{self.metric} takes no {', '.join(strange)}")
        if missing := [name for name, required in fields.items() if required and name not in self.parameters]:
            raise ValueError(f"{self.metric} needs {', '.join(missing)} beside it, under objective")
        try:
            self.spec  # noqa: B018  # it checks how the parameters fit together
        except ValidationError as error:
            raise ValueError(error.errors()[0]["msg"].removeprefix("Value error, ")) from None

    @property
    def parameters(self) -> dict[str, Any]:
        """What is said beside the metric's name for the metric itself."""
        named = ("precision", "costs", "classes", "bins")
        return {name: value for name in named if (value := getattr(self, name)) is not None}

    @property
    def spec(self) -> MetricKind | None:
        """What a recipe measures for this objective; None where every run does, or a function."""
        kind = self.metric.removeprefix(PREFIX)
        return _ADAPTER.validate_python({"kind": kind, **self.parameters}) if kind in SCORE_OF_KIND else None

    @property
    def direction(self) -> Mode:
        return self.mode if self.mode is not None else OBJECTIVES[self.metric]

    @property
    def counts_classes_alike(self) -> bool:
        """Whether a small class is as much of the score as a large one."""
        return self.metric in CLASSES_ALIKE


def _fields_of(kind: str) -> dict[str, bool]:
    """Return the fields of a kind of metric, and whether each must be given."""
    (spec,) = (each for each in KINDS if each.model_fields["kind"].default == kind)
    fields = spec.model_fields
    return {name: fields[name].is_required() for name in fields if name != "kind"}


def with_objective(recipe: Recipe, objective: Objective) -> Recipe:
    """Return the recipe, which measures the objective too.

    Raises RecipeError where it measures the same kind with other parameters.
    """
    spec = objective.spec
    if spec is None or spec in recipe.evaluation.metrics:
        return recipe
    if any(each.kind == spec.kind for each in recipe.evaluation.metrics):
        message = f"has {spec.kind} with other parameters than the objective {objective.metric}; keep one"
        raise RecipeError([Fault(METRICS, message)])
    metrics = [*recipe.evaluation.metrics, spec]
    return recipe.with_values({METRICS: [each.model_dump(mode="json") for each in metrics]})


def class_faults(objective: Objective, recipe: Recipe, classes: Sequence[str]) -> Iterator[Fault]:
    """Yield what the objective, or what the recipe measures, asks of other classes than these."""
    if objective.metric == "val_top5_accuracy" and len(classes) <= 10:
        message = f"val_top5_accuracy needs more than ten classes, these data have {len(classes)}"
        yield Fault("objective.metric", message)
    for fault in cost_faults(recipe.evaluation.metrics, classes):
        yield Fault("objective.costs" if objective.costs is not None else f"base.{METRICS}", fault)


def function_faults(objective: Objective, functions: Collection[str] = ()) -> Iterator[Fault]:
    """Yield a fault where the objective is a function of the caller's that is not among those given."""
    if objective.own and objective.metric.removeprefix(PREFIX) not in functions:
        given = ", ".join(functions) or "none"
        message = (
            f"{objective.metric} is a function of yours, which a search is given in Python; given: {given}"
        )
        yield Fault("objective.metric", message)


def task_asked(base: Mapping[str, Any]) -> AnyTask:
    """Return the task that a study's `base`, with nested or dotted keys, asks for, with its defaults."""
    task = base.get("task")
    kind = task.get("kind") if isinstance(task, Mapping) else base.get(TASK)
    return TASKS[kind]() if isinstance(kind, str) and kind in TASKS else CLASSIFICATION


def default_recipe(base: Mapping[str, Any]) -> Recipe:
    """Return the default recipe of the task that a study's `base` asks for."""
    return Recipe.from_tree({"task": {"kind": task_asked(base).kind}})


def with_default_metric(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return a study's tree with the metric of its task, where it names none."""
    objective, default = tree.get("objective", {}), _default_metric(tree)
    named = not isinstance(objective, Mapping) or "metric" in objective
    if named or default == Objective().metric:
        return dict(tree)
    return {**tree, "objective": {**objective, "metric": default}}


def without_default_metric(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return a study's whole tree without the metric that its task would get by default.

    So a study that becomes one of another task gets the metric of that task.
    """
    default = ("metric", _default_metric(tree))
    objective = {name: value for name, value in tree["objective"].items() if (name, value) != default}
    return {**tree, "objective": objective}


def metric_faults(objective: Objective, base: Mapping[str, Any]) -> Iterator[Fault]:
    """Yield a fault for a metric of ours that is one of another task."""
    task = task_asked(base)
    if not objective.own and objective.metric not in task.objectives:
        known = ", ".join(task.objectives)
        message = f"{objective.metric} does not go with task.kind {task.kind}: expected {known}"
        yield Fault("objective.metric", message)


def _default_metric(tree: Mapping[str, Any]) -> str:
    base = tree.get("base")
    return task_asked(base if isinstance(base, Mapping) else {}).objectives[0]
