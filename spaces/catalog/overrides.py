"""Parses what a person writes over a named space, such as `optimizer.lr: {log: [0.01, 1.0]}`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from spaces.domains import Choice, Domain, Float, Integer, SpaceError, Value, is_number
from spaces.forms import fields_of, types_of
from spaces.priors import SPREADS, Confidence, Prior, Uniform, Weights, believed, check_prior
from trainable.errors import Fault, RecipeError, quoted
from trainable.recipe import Recipe
from trainable.recipe.distillation import SECTION, TEACHER

OVERRIDES = "space.overrides"  # their path in a study, with which the path of each of their faults begins

FORMS = ("uniform", "log", "int", "int_log", "choice", "fixed")
KEYS = (*FORMS, "rule", "prior", "confidence", "weights")

# What no space may vary, and why
FORBIDDEN = {
    "data": "trials that see other images, or are scored on others, cannot be compared",
    "task": "trials of different tasks, or of other masks, cannot be compared",
    "loop.epochs": "the study's budget.epochs sets it for all, since pruning compares trials epoch by epoch",
    "loop.seed": "a seed is luck, not a choice: a search over it would report the luckiest trial",
    "distillation.teacher": "trials learn from one teacher, which base names; write another one there",
    "distillation.model": "it names the network of the teacher's weights; write it under base",
    "model.weights": "the other ranges follow from whether the model is pretrained; write it under base",
    "provenance": "it says where a recipe comes from and changes no run",
    "version": "it says how the file is written and changes no run",
}
# The part of `task` that may vary: trials are scored alike, whatever loss they were trained with
VARIED = "task.loss"


@dataclass(frozen=True)
class Fixed:
    """One value for every trial, the first too."""

    value: Value


@dataclass(frozen=True)
class WrittenPrior:
    """A value that a person expects, and the confidence in it."""

    value: Value
    confidence: Confidence = "medium"


@dataclass(frozen=True)
class Varying:
    """What a person writes of a field that varies; None leaves a part as the named space has it.

    A domain without a prior is drawn from uniformly, since a person who writes a range has said what to
    expect. With neither domain nor prior, the field's rule decides.
    """

    domain: Domain | None
    prior: WrittenPrior | Weights | None = None

    def prior_in(self, domain: Domain) -> Prior:
        """Return the prior in the field's final domain. Raises SpaceError if it does not fit."""
        match self.prior:
            case None:
                return Uniform()
            case WrittenPrior(value=value, confidence=confidence):
                return believed(domain, value, confidence)
            case weights:
                check_prior(domain, weights)
                return weights


def parse(written: Any) -> Varying | Fixed:
    """Parse one override:

    * `{uniform|log: [low, high]}`, `{int|int_log: [low, high]}` or `{choice: [option, ...]}`: the domain;
    * beside it, or alone for a field whose domain is known, `prior: value` and `confidence: low|medium|high`;
      beside a choice also `weights: [number, ...]`;
    * `{rule: true}`: the field varies by the documents' rule, although the space would leave it fixed;
    * `{fixed: value}`.

    Raises SpaceError, its faults without a path.
    """
    if not isinstance(written, Mapping) or not written:
        raise _expected(f"got {quoted(written)}; a single value is written {{fixed: value}}")
    if unknown := [key for key in written if key not in KEYS]:
        close = get_close_matches(str(unknown[0]), KEYS, n=1)
        dotted = "fields of a section are written with dots, as optimizer.lr"
        hint = f"did you mean {close[0]}?" if close else dotted
        raise _expected(f"got {quoted(unknown[0])}; {hint}")
    if "rule" in written:
        if written != {"rule": True}:
            raise SpaceError.at("", f"expected {{rule: true}} alone, got {quoted(dict(written))}")
        return Varying(None)
    forms = [key for key in written if key in FORMS]
    if len(forms) > 1 or (forms == ["fixed"] and len(written) > 1):
        raise _expected(f"got {' and '.join(written)} together")
    if forms == ["fixed"]:
        (value,) = Choice((written["fixed"],)).options  # one option: checked to be a scalar
        return Fixed(value)
    domain = _domain(forms[0], written[forms[0]]) if forms else None
    varying = Varying(domain, _prior(written))
    if domain is not None:
        varying.prior_in(domain)
    return varying


def _domain(kind: str, content: Any) -> Domain:
    match kind:
        case "uniform" | "log":
            low, high = _pair(kind, content)
            return Float(_real(low), _real(high), log=kind == "log")
        case "int" | "int_log":
            low, high = _pair(kind, content)
            return Integer(low, high, log=kind == "int_log")
        case _:
            if not isinstance(content, Sequence) or isinstance(content, str):
                raise SpaceError.at("", f"expected choice: [option, ...], got {quoted(content)}")
            return Choice(tuple(content))


def _prior(written: Mapping[str, Any]) -> WrittenPrior | Weights | None:
    """Return the prior that is written, or None; `prior: null` is a value, as in `model.dropout`."""
    if "weights" in written:
        if "choice" not in written or "prior" in written or "confidence" in written:
            raise SpaceError.at("", "weights stand beside choice: [option, ...], and without a prior")
        weights = written["weights"]
        if not isinstance(weights, Sequence) or isinstance(weights, str):
            raise SpaceError.at("", f"expected weights: [number, ...], got {quoted(weights)}")
        return Weights(tuple(weights))
    if "prior" not in written:
        if "confidence" in written:
            raise SpaceError.at("", "confidence needs a prior beside it: {prior: 0.1, confidence: high}")
        return None
    confidence = written.get("confidence", "medium")
    if not isinstance(confidence, str) or confidence not in SPREADS:
        known = ", ".join(SPREADS)
        raise SpaceError.at("", f"expected confidence to be one of {known}, got {quoted(confidence)}")
    (value,) = Choice((written["prior"],)).options
    return WrittenPrior(value, confidence)


def parse_all(
    overrides: Mapping[str, Any], base: Recipe, pins: Set[str], names: Sequence[str]
) -> tuple[dict[str, Varying], dict[str, Value]]:
    """Parse all overrides: what varies, by dimension name or by path, and fixed values, by path.

    `names` are those of the rules. A variant that is fixed, `optimizer.lr[sgd]: {fixed: 0.1}`, varies over
    that one value. Raises SpaceError with every fault: a field that does not exist, that may not vary, that
    the base pins or that is written twice, or a bad domain.
    """
    varying: dict[str, Varying] = {}
    fixed: dict[str, Value] = {}
    faults: list[Fault] = []
    for name, written in overrides.items():
        try:
            _check_free(path_of(name), base, pins)
            _check_known(name, written, base, names)
            if name != (path := path_of(name)) and path in overrides:
                covers = f"{path} is written too, which covers every variant"
                raise SpaceError.at("", f"{covers}: keep one of the two")
            match parse(written):
                case Fixed(value) if name == path_of(name):
                    fixed[name] = value
                case Fixed(value):
                    varying[name] = Varying(Choice((value,)))
                case found:
                    varying[name] = found
        except (SpaceError, RecipeError) as error:
            faults += in_overrides(error.faults, name)
    if faults:
        raise SpaceError(faults)
    return varying, fixed


def path_of(name: str) -> str:
    """Return the path in a dimension's name: `optimizer.lr` in `optimizer.lr[sgd]`."""
    return name.partition("[")[0]


def in_overrides(faults: Sequence[Fault], name: str) -> list[Fault]:
    """Return the faults of one override, with its path in the study."""
    return [Fault(f"{OVERRIDES}.{name}", fault.message) for fault in faults]


@contextmanager
def in_study(overridden: Set[str]) -> Iterator[None]:
    """Turn faults of overridden fields, raised inside the context,
    into a SpaceError with their paths in the study."""
    try:
        yield
    except (SpaceError, RecipeError) as error:
        raise SpaceError([_in_overrides(fault, overridden) for fault in error.faults]) from None


def _in_overrides(fault: Fault, overridden: Set[str]) -> Fault:
    """Move a fault to the override that it concerns. `optimizer.lr[sgd]` may be overridden as
    `optimizer.lr`, and the reverse if only one kind is left."""
    same = [name for name in overridden if path_of(name) == path_of(fault.path)]
    if fault.path in overridden or len(same) == 1:
        (moved,) = in_overrides([fault], fault.path if fault.path in overridden else same[0])
        return moved
    return fault


def _check_known(name: str, written: Any, base: Recipe, names: Sequence[str]) -> None:
    """Raise SpaceError or RecipeError for a section, or a field or variant that does not exist."""
    path = path_of(name)
    if not types_of(path):
        base.get(path)  # says which fields there are
    if path.startswith(f"{SECTION}.") and base.distillation is None:
        raise SpaceError.at("", f"no trial learns from a teacher: write base.{TEACHER} to name one")
    if fields := fields_of(path):
        raise SpaceError.at("", _section(path, fields, written))
    if name != path and name not in names:
        variants = ", ".join(each for each in names if path_of(each) == path != each) or "none"
        raise SpaceError.at("", f"no such variant of {path}; known: {variants}")


def _section(path: str, fields: Sequence[str], written: Any) -> str:
    kind = f"{path}.kind"
    if kind in fields and isinstance(written, Mapping) and "choice" in written:
        return f"is a section: write {kind}, or name another of its fields"
    return f"is a section; name one of its fields: {', '.join(fields)}"


def _check_free(path: str, base: Recipe, pins: Set[str]) -> None:
    for part, why in FORBIDDEN.items():
        if _within(path, part) and not _within(path, VARIED):
            raise SpaceError.at("", f"can never vary: {why}")
    if path in pins:
        raise SpaceError.at(
            "", f"is pinned to {base.get(path)!r} in base and overridden here: keep one of the two"
        )


def _within(path: str, section: str) -> bool:
    return path == section or path.startswith(f"{section}.")


def _pair(kind: str, content: Any) -> tuple[Any, Any]:
    if not isinstance(content, Sequence) or isinstance(content, str) or len(content) != 2:
        raise SpaceError.at("", f"expected {kind}: [low, high], got {quoted(content)}")
    return content[0], content[1]


def _real(value: Any) -> Any:
    """Turn YAML's `1` into 1.0; the domain itself checks anything that is not a number."""
    return float(value) if is_number(value) else value


def _expected(got: str) -> SpaceError:
    ranges = "{uniform|log|int|int_log: [low, high]}, {choice: [option, ...]}"
    forms = f"{ranges}, {{prior: value}}, {{rule: true}} or {{fixed: value}}"
    return SpaceError.at("", f"expected {forms}, {got}")
