"""Joins a study, which is data, with the functions of a person's own that Python gives for a search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from search.study.objective import PREFIX, function_faults
from search.study.study import Study, StudyError
from spaces.catalog.overrides import Fixed, WrittenPrior, in_overrides, parse, path_of
from spaces.domains import Choice, Domain, Float, Integer, SpaceError, Value, domain_tree, is_number
from spaces.priors import likeliest
from trainable.errors import Fault, UserError, listed, quoted
from trainable.recipe.models import ARGUMENTS, ModelSpec
from trainable.recipe.trees import leaves
from trainable.training.metrics import OBJECTIVES

if TYPE_CHECKING:  # torch takes seconds to import
    from trainable.data.assembly import MakeData
    from trainable.models.own import BuildModel
    from trainable.training.extra_metrics import Own

Written = Mapping[str, Any]  # a range as a study writes it, such as {log: [0.001, 0.1], prior: 0.01}
Ranges = Mapping[str, Domain | Written]  # what may vary, by dotted path


@dataclass(frozen=True)
class Code:
    """The functions of a person's own that a search uses; None where its study names what it uses."""

    model: BuildModel | None = None
    data: MakeData | None = None
    metrics: Own = field(default_factory=dict)  # functions that score a model's answers, by name


NO_CODE = Code()


def check_code(study: Study, code: Code, advice: str = "") -> None:
    """Raise UserError (StudyError) where a study needs a function that is not given: one that makes the
    network or the images, or the metric that it optimises.

    `advice` says how it is given, where that is known better than here.
    """
    if faults := list(function_faults(study.objective, code.metrics)):
        raise StudyError(faults)
    base = study.base_recipe()
    for needs, given, word, name in (
        (base.model.kind == "own", code.model, "model", study.pinned.get("model.name")),
        (study.data.own, code.data, "data", study.data.path),
    ):
        if needs and given is None:
            how = advice or f"call search(study, {word}={name}) from Python"
            raise UserError(f"this search uses code of yours, {word}={name}, which no file names: {how}")


def study_with_code(study: Study | Written, code: Code, ranges: Ranges) -> Study:
    """Return the study that a person's functions and ranges belong to, as plain data without code.

    The functions' names are labels in it. The first trial has the value in `base` of each argument that
    varies, else the default of the function's parameter, else the likeliest value of the range. Raises
    UserError (StudyError, SpaceError, ModelError).
    """
    _check_functions(code)
    tree = study.model_dump(mode="json") if isinstance(study, Study) else dict(study)
    tree = _with_ranges(tree, ranges)
    if code.data is not None:
        tree = {**tree, "data": _with_data(tree.get("data", {}), code)}
    if code.model is not None:
        tree = {**tree, "base": _with_model(dict(leaves(tree.get("base", {}))), _overrides(tree), code.model)}
    tree = _with_objective(tree, code)
    found = Study.from_tree(tree)
    check_code(found, code)
    return found


def _check_functions(code: Code) -> None:
    """Raise UserError for a name or a network where a function is expected: each trial builds its own."""
    for word, given in (("model", code.model), ("data", code.data)):
        makes = isinstance(given, type) or (callable(given) and not hasattr(given, "state_dict"))
        if given is not None and not makes:
            raise UserError(f"{word}: expected a function that makes it, got {type(given).__name__}")


def _with_objective(tree: dict[str, Any], code: Code) -> dict[str, Any]:
    """Return a study's tree in which an objective that is one of the functions says so, with its mode.
    Raises StudyError for a name that is neither one of them nor one of ours."""
    objective = tree.get("objective")
    if not isinstance(objective, Mapping) or not code.metrics:
        return tree
    name = objective.get("metric")
    metric = code.metrics.get(str(name).removeprefix(PREFIX))
    if metric is None and isinstance(name, str) and name not in OBJECTIVES:
        yours = listed([f"{PREFIX}{each}" for each in code.metrics])
        message = (
            f"{quoted(name)} is none of yours, {yours}, and none of ours, {listed(list(OBJECTIVES), 20)}"
        )
        raise StudyError([Fault("objective.metric", message)])
    if metric is None:
        return tree
    return {**tree, "objective": {**objective, "own": True, "mode": getattr(metric, "mode", "max")}}


def _overrides(tree: Written) -> dict[str, Any]:
    space = tree.get("space", {})
    return dict(space.get("overrides", {})) if isinstance(space, Mapping) else {}


def _with_ranges(tree: dict[str, Any], ranges: Ranges) -> dict[str, Any]:
    """Return a study's tree with more overrides; the study's own schema checks them."""
    if not ranges:
        return tree
    written, faults = _overrides(tree), []
    for path, domain in ranges.items():
        if path in written:
            faults.append(Fault(f"space.overrides.{path}", "is in the study and in space: keep one"))
        written[path] = domain_tree(domain) if isinstance(domain, Float | Integer | Choice) else domain
    if faults:
        raise StudyError(faults)
    return {**tree, "space": {**tree.get("space", {}), "overrides": written}}


def _with_data(section: Any, code: Code) -> dict[str, Any]:
    from trainable.models.own import name_of

    assert code.data is not None
    named = dict(section) if isinstance(section, Mapping) else {}
    if "path" in named and named.get("format") != "own":
        raise StudyError([Fault("data.path", f"is {named['path']!r}, and data= is given, too: keep one")])
    return {"path": name_of(code.data), **named, "format": "own"}


def _with_model(base: dict[str, Any], overrides: Written, build: BuildModel) -> dict[str, Any]:
    """Return the pinned values of a study for a network of a person's own."""
    from trainable.models.own import check_takes, name_of

    if (kind := base.get("model.kind", "own")) != "own":
        raise StudyError([Fault("base.model.kind", f"is {kind!r}, and model= is given, too: keep one")])
    for path in overrides:
        section, _, name = path_of(path).rpartition(".")
        if section in ("", "model") and name not in ModelSpec.model_fields:
            message = f"is no field; a parameter of your function is written {ARGUMENTS}.{name}"
            raise StudyError([Fault(f"space.overrides.{path}", message)])
    own = {"model.name": name_of(build), **base, "model.kind": "own"}
    for path, written in overrides.items():
        if path.startswith(f"{ARGUMENTS}.") and path not in own:
            own[path] = _first_value(path, written, build)
    prefix = f"{ARGUMENTS}."
    check_takes(build, [path.removeprefix(prefix) for path in own if path.startswith(prefix)])
    return own


def _first_value(path: str, written: Any, build: BuildModel) -> Value:
    """Return the value of an argument in the first trial. Raises SpaceError for what is no range."""
    from trainable.models.own import default_of

    try:
        found = parse(written)
        if isinstance(found, Fixed):
            return found.value
        if found.domain is None:
            raise SpaceError.at("", "no rule knows a parameter of your function: write a range for it")
        if isinstance(found.prior, WrittenPrior):
            return found.prior.value
        default = default_of(build, path.removeprefix(f"{ARGUMENTS}."))
        if default in found.domain:
            is_real = isinstance(found.domain, Float) and is_number(default)
            value: Value = float(default) if is_real else default
            return value
        return likeliest(found.domain, found.prior_in(found.domain))
    except SpaceError as error:
        raise SpaceError(in_overrides(error.faults, path)) from None
