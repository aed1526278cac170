"""The named spaces: which fields of a recipe vary around the documents' own values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from spaces import augmentations, heuristics, optimizers
from spaces.domains import Choice, Domain, SpaceError, Value
from spaces.facts import Facts
from spaces.heuristics import fixed_by_rule
from spaces.overrides import PLACE, in_study, parse_all
from spaces.rulings import Ruling
from spaces.space import Dimension, Space, When
from trainable.errors import Fault, RecipeError
from trainable.recipe import Recipe

NAMES = ("document",)
MOVING_CYCLES = tuple(
    f"schedule.{name}" for name in ("warmup_epochs", "cycle_epochs", "growth", "rise_epochs")
)
"""Fields that decide where the cycles of a schedule end."""


def make_space(
    name: str, base: Recipe, pinned: frozenset[str], facts: Facts, overrides: Mapping[str, Any]
) -> Space:
    """The space of a name around `base`, whose `pinned` paths stay as a person wrote them.

    Overrides (`{"optimizer.lr": {"log": [0.01, 1.0]}}`, see `overrides.parse`) replace the dimensions of
    their path, add one, or fix a value. Raises SpaceError with the faults at their dotted paths.
    """
    if name not in NAMES:
        raise SpaceError([Fault("space.name", f"expected one of {', '.join(NAMES)}, got {name!r}")])
    if base.loop.epochs != facts.epochs:
        told = f"expected the {facts.epochs} epochs of the facts, got {base.loop.epochs}"
        raise SpaceError([Fault("loop.epochs", told)])
    domains, fixed = parse_all(overrides, base, pinned)
    with in_study(overrides.keys()):
        pins = pinned | fixed.keys()
        _check_cycles(base.with_values(fixed), domains)
        own = _own_recipe(facts, base.with_values(fixed), pins, domains)
        offered = [each for each in document(facts, own.loop.batch_size) if each.path not in pins]
        dimensions = _reachable(_overridden(offered, domains, own), own)
        return Space(own, dimensions, _own_values(own, dimensions), pins)


def document(facts: Facts, batch: int) -> Iterator[Dimension]:
    """Every dimension of the space `document`, with its condition; ranges depend on facts and batch only.

    The batch, the schedule's shape and the kind of crop are fixed by rule and not among them.
    """
    yield from _optimizers(facts)
    warmed = When("schedule.kind", heuristics.WARMED)
    yield from _dimension("schedule.warmup_epochs", heuristics.warmups(facts, batch), warmed)
    yield from _dimension("regularisation.label_smoothing", heuristics.label_smoothings(facts))
    yield from _augmentations(facts)


def _optimizers(facts: Facts) -> Iterator[Dimension]:
    """The kinds that are tried, and the ranges of every kind, which a person may pin or add."""
    yield from _dimension("optimizer.kind", optimizers.kinds(facts))
    of = {kind: When("optimizer.kind", (kind,)) for kind in optimizers.KINDS}
    for kind, when in of.items():
        yield from _dimension("optimizer.lr", optimizers.learning_rates(facts, kind), when, kind)
    for kind, when in of.items():
        yield from _dimension("optimizer.weight_decay", optimizers.weight_decays(facts, kind), when, kind)
    yield from _dimension("optimizer.momentum", optimizers.momenta(facts), of["sgd"])
    both = of["adam_then_sgd"]
    yield from _dimension("optimizer.sgd_lr", optimizers.learning_rates(facts, "sgd"), both)
    yield from _dimension("optimizer.sgd_weight_decay", optimizers.weight_decays(facts, "sgd"), both)


def _augmentations(facts: Facts) -> Iterator[Dimension]:
    padded, resized = (When("augmentation.crop.kind", (kind,)) for kind in ("pad", "resized"))
    yield from _dimension("augmentation.crop.fraction", augmentations.crop_fractions(facts), padded)
    yield from _dimension("augmentation.crop.scale_min", augmentations.crop_scales(facts), resized)
    policy = When("augmentation.policy.kind", ("randaugment",))
    yield from _dimension(policy.path, augmentations.policies(facts))
    yield from _dimension("augmentation.policy.magnitude", augmentations.magnitudes(facts), policy)
    erasing = When("augmentation.masking.kind", ("erasing",))
    yield from _dimension(erasing.path, augmentations.maskings(facts))
    share = "augmentation.masking.probability"
    yield from _dimension(share, augmentations.erasing_probabilities(facts), erasing)
    mixup = When("augmentation.mixing.kind", ("mixup",))
    yield from _dimension(mixup.path, augmentations.mixings(facts))
    yield from _dimension("augmentation.mixing.alpha", augmentations.mixup_alphas(facts), mixup)


def _dimension(
    path: str, ruling: Ruling[Domain] | None, when: When | None = None, variant: str = ""
) -> Iterator[Dimension]:
    """The dimension that a heuristic gives, or none."""
    if ruling is not None:
        yield Dimension(path, ruling.what, ruling.reason, ruling.source, when, variant)


# --- the first trial ----------------------------------------------------------------------------------


def _own_recipe(facts: Facts, base: Recipe, pins: frozenset[str], domains: Mapping[str, Domain]) -> Recipe:
    """The documents' own recipe around what is pinned, its words among the options that a person left it."""
    kinds = {path: domain for path, domain in domains.items() if path.endswith(".kind")}
    base = _within(base.with_values(fixed_by_rule(facts, base, pins)), kinds)
    recipe = base.with_values(fixed_by_rule(facts, base, pins | kinds.keys()))
    return _within(recipe, {path: domain for path, domain in domains.items() if _has(recipe, path)})


def _within(recipe: Recipe, domains: Mapping[str, Domain]) -> Recipe:
    """The recipe with the first option of each Choice that its own value is not among.

    A number outside an overridden range stays: it is a baseline. A word outside the options is another space.
    """
    return recipe.with_values(
        {
            path: domain.options[0]
            for path, domain in domains.items()
            if isinstance(domain, Choice) and recipe.get(path) not in domain
        }
    )


def _own_values(own: Recipe, dimensions: Sequence[Dimension]) -> dict[str, Value]:
    return {
        each.path: own.get(each.path)
        for each in dimensions
        if each.when is None or own.get(each.when.path) in each.when.values
    }


# --- overrides and conditions -------------------------------------------------------------------------


def _check_cycles(base: Recipe, domains: Mapping[str, Domain]) -> None:
    """Raises SpaceError where trials would have cycles of different lengths: they could not be compared."""
    faults = []
    kinds = domains.get("schedule.kind")
    for kind in (each for each in heuristics.CYCLED if isinstance(kinds, Choice) and each in kinds):
        told = (
            f"{kind} cannot be one choice among others: trials with it are compared at the ends of its cycles"
        )
        faults.append(Fault("schedule.kind", f"{told}; pin it under base, as schedule: {{kind: {kind}}}"))
    if base.schedule.kind in heuristics.CYCLED:
        told = "moves the ends of the cycles, at which trials are compared; write one value under base"
        faults += [Fault(path, told) for path in domains if path in MOVING_CYCLES]
    if faults:
        raise SpaceError(faults)


def _overridden(offered: Sequence[Dimension], domains: Mapping[str, Domain], own: Recipe) -> list[Dimension]:
    """The offered dimensions, those of an overridden path replaced by one in their first place.

    What the space did not vary comes last, but kinds come first: other dimensions may depend on them.
    """
    options = {each.path: each.domain.options for each in offered if isinstance(each.domain, Choice)}
    options |= {path: domain.options for path, domain in domains.items() if isinstance(domain, Choice)}
    written = {
        path: Dimension(path, domain, "written in the study", PLACE, _condition(path, options, own))
        for path, domain in domains.items()
    }
    known = list(dict.fromkeys(each.path for each in offered))
    added = [path for path in domains if path not in known]
    order = [path for path in added if path.endswith(".kind")] + known
    order += [path for path in added if not path.endswith(".kind")]
    return [
        dimension
        for path in order
        for dimension in (
            [written[path]] if path in written else [each for each in offered if each.path == path]
        )
    ]


def _condition(path: str, options: Mapping[str, tuple[Value, ...]], own: Recipe) -> When | None:
    """None for a field that every kind of its section has; else those kinds that have it.

    Raises RecipeError, naming the known fields, where none has it.
    """
    kind = f"{path.rpartition('.')[0]}.kind"
    if kind == path or kind not in options:
        _check_scalar(path, own.get(path))
        return None
    having = tuple(option for option in options[kind] if _has(own, path, {kind: option}))
    if not having:
        own.get(path)
    return None if having == options[kind] else When(kind, having)


def _has(recipe: Recipe, path: str, values: Mapping[str, Value] | None = None) -> bool:
    try:
        recipe.with_values(values or {}).get(path)
    except RecipeError:
        return False
    return True


def _check_scalar(path: str, value: Any) -> None:
    if isinstance(value, dict):
        fields = ", ".join(f"{path}.{name}" for name in value)
        raise SpaceError([Fault(path, f"is a section; name one of its fields: {fields}")])


def _reachable(dimensions: Sequence[Dimension], own: Recipe) -> tuple[Dimension, ...]:
    """The dimensions that some trial can have; a condition that always holds is dropped, with its variant."""
    options = {each.path: each.domain.options for each in dimensions if isinstance(each.domain, Choice)}
    kept = []
    for dimension in dimensions:
        if (when := dimension.when) is None:
            kept.append(dimension)
            continue
        possible = options.get(when.path, (own.get(when.path),))
        met = tuple(value for value in possible if value in when.values)
        if len(met) == len(possible):
            kept.append(replace(dimension, when=None, variant=""))
        elif met:
            kept.append(replace(dimension, when=When(when.path, met)))
    return tuple(kept)
