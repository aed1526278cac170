"""Builds the named spaces: each asks certain rules, around the documented recipe."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, assert_never, get_args

from spaces.catalog.dimensions import dimension_of, make_dimensions, with_beliefs
from spaces.catalog.overrides import in_study, parse_all
from spaces.catalog.wide_space import WIDE
from spaces.conditions import check_fixed, domains_of, has, holds, scalars_of
from spaces.domains import Choice, Domain, SpaceError, Value, is_number
from spaces.facts import Facts
from spaces.rules import schedules
from spaces.rules.heuristics import fixed_by_rule, kinds_and_batch, rule_values
from spaces.rules.rules import RULES, Rule
from spaces.rules.rulings import Threshold
from spaces.rules.tasks import rules_of
from spaces.space import Dimension, Space
from spaces.validity import check_recipes
from trainable.errors import Fault, quoted
from trainable.recipe import Recipe
from trainable.recipe.models import MODEL_NAME

SpaceName = Literal["document", "finetune", "quick", "wide"]
NAMES: tuple[SpaceName, ...] = get_args(SpaceName)

# Fields that decide where the cycles of a schedule end
MOVING_CYCLES = tuple(
    f"schedule.{name}" for name in ("warmup_epochs", "cycle_epochs", "growth", "rise_epochs")
)

# All that a study of under ten trials should tune, says Google's Deep Learning Tuning Playbook in its answer
# about Adam's hyperparameters (https://github.com/google-research/tuning_playbook)
TUNED_RATE = ("optimizer.lr",)

# What published fine-tuning varies: how far pretrained weights may move, and a little augmentation
# (PaddleClas guide, 003:88; PyTorch tuning guide, 001:98-102; training tricks notes, 000:51)
FINE_TUNED = (
    "optimizer.kind",
    *TUNED_RATE,
    "optimizer.weight_decay",
    "model.freeze_epochs",
    "model.freeze_norm",
    "model.layer_rates.kind",
    "model.layer_rates.lowest",
    "model.layer_rates.factor",
    "regularisation.label_smoothing",
    "regularisation.logit_adjustment",
    "regularisation.class_weights.kind",
    "regularisation.class_weights.beta",
    "loop.sampling",
    "augmentation.crop.scale_min",
    "augmentation.policy.kind",
    "augmentation.policy.magnitude",
    "distillation.temperature",
    "distillation.weight",
)


def make_space(
    name: str, base: Recipe, pinned: frozenset[str], facts: Facts, overrides: Mapping[str, Any]
) -> Space:
    """Return the space of this name around `base`, whose `pinned` paths stay as a person wrote them.

    Overrides (`{"optimizer.lr": {"log": [0.01, 1.0]}}`, see `overrides.parse`) replace the dimensions of
    their path or their priors, add a dimension, or fix a value. Raises SpaceError with the faults at their
    dotted paths.
    """
    found = _checked(name, base, facts)
    rules = WIDE if found == "wide" else RULES
    varying, fixed = parse_all(overrides, base, pinned, [rule.name for rule in rules])
    domains = {each: written.domain for each, written in varying.items() if written.domain is not None}
    with in_study(overrides.keys()):
        pins = pinned | fixed.keys()
        check_fixed(base, fixed)
        base = base.with_values(fixed)
        _check_cycles(base, domains)
        own = _own_recipe(facts, base, pins, domains, rules)
        ruled = make_dimensions(rules, _offer(found, facts, own), facts, own, pins, varying)
        dimensions = tuple(each.dimension for each in ruled)
        own_values = {each.path: _own_value(own, each) for each in dimensions if holds(each.when, own)}
        space = Space(own, dimensions, own_values, pins)
        check_recipes(space)
        return replace(
            space,
            dimensions=with_beliefs(ruled, facts, own),
            rule_values=rule_values(facts, own, pins, domains_of(dimensions)),
        )


def check_written(
    name: str | None, base: Recipe, pinned: frozenset[str], overrides: Mapping[str, Any]
) -> None:
    """Refuse what `make_space` refuses for any data: the name of a space, and faulty overrides. Raises
    SpaceError."""
    if name is not None:
        named(name)
    parse_all(overrides, base, pinned, [rule.name for rule in (WIDE if name == "wide" else RULES)])


def just_missed(name: str, space: Space, facts: Facts) -> dict[Threshold, list[str]]:
    """Return the thresholds that facts are just below, with the fields of the named space that are therefore
    not varied, in drawing order. The space `wide` has no thresholds."""
    found: dict[Threshold, list[str]] = {}
    if name == "wide":
        return found
    offered, values = _offer(named(name), facts, space.base), scalars_of(space.base)
    varied = {each.path for each in space.dimensions}
    for rule in RULES:
        if rule.path in varied | space.pins or not (offered(rule) and holds(rule.when, space.base)):
            continue
        missed = rule.missed(facts.of_network(values.get(MODEL_NAME)), values)
        if missed is not None and missed.is_near:
            found.setdefault(missed, []).append(rule.path)
    return found


def document(facts: Facts, recipe: Recipe) -> list[Dimension]:
    """Return every dimension of the space `document` around a recipe,
    also those of kinds that it does not have."""
    own_values = scalars_of(recipe)
    dimensions = [dimension_of(rule, facts, own_values) for rule in RULES if not rule.optional]
    return [each for each in dimensions if each is not None]


def named(name: str) -> SpaceName:
    """Return the name if it is that of a space. Raises SpaceError otherwise."""
    for each in NAMES:
        if each == name:
            return each
    raise SpaceError.at("space.name", f"expected one of {', '.join(NAMES)}, got {quoted(name)}")


def _checked(name: str, base: Recipe, facts: Facts) -> SpaceName:
    found = named(name)
    if base.loop.epochs != facts.epochs:
        raise SpaceError.at(
            "loop.epochs", f"expected the {facts.epochs} epochs of the facts, got {base.loop.epochs}"
        )
    if found == "finetune" and base.model.weights is None:
        problem = "finetune starts from pretrained weights, and base has none: write model.weights under base"
        raise SpaceError.at("space.name", f"{problem}, or use the space document")
    return found


def _offer(name: SpaceName, facts: Facts, own: Recipe) -> Callable[[Rule], bool]:
    """Return which rules make dimensions in a space although no override asks for them."""
    match name:
        case "document":
            return lambda rule: not rule.optional
        case "finetune":
            tuned = FINE_TUNED + rules_of(facts.task).fine_tuned
            return lambda rule: rule.path in tuned and not rule.optional
        case "quick":
            return lambda rule: rule.path in TUNED_RATE
        case "wide":
            varied = {each.path for each in document(facts, own)}
            return lambda rule: rule.path in varied
        case _:
            assert_never(name)


# --- the first trial ----------------------------------------------------------------------------------


def _own_recipe(
    facts: Facts, base: Recipe, pins: frozenset[str], domains: Mapping[str, Domain], rules: Sequence[Rule]
) -> Recipe:
    """Return the documented recipe around the pinned paths. Where a person restricted the options of a
    field, its word is one of them."""
    asked_first = kinds_and_batch(facts)
    first = {path: each for path, each in domains.items() if path.endswith(".kind") or path in asked_first}
    base = _within(base.with_values(fixed_by_rule(facts, base, pins)), first)
    recipe = base.with_values(fixed_by_rule(facts, base, pins | first.keys()))
    variants = {
        rule.path: domains[rule.name] for rule in rules if rule.name in domains and holds(rule.when, recipe)
    }
    return _within(recipe, variants | {path: each for path, each in domains.items() if has(recipe, path)})


def _within(recipe: Recipe, domains: Mapping[str, Domain]) -> Recipe:
    """Return the recipe with the first option of each Choice that does not contain the recipe's own value.

    A number outside an overridden range stays, as a baseline. A word outside the options would be another
    space.
    """
    chosen = {
        path: domain.options[0]
        for path, domain in domains.items()
        if isinstance(domain, Choice) and recipe.get(path) not in domain
    }
    return recipe.with_values(chosen)


def _own_value(own: Recipe, dimension: Dimension) -> Value:
    """Return the own recipe's value, or the nearest numeric option to a number that is none: `wide` has
    decays of its own."""
    value: Value = own.get(dimension.path)
    if not isinstance(dimension.domain, Choice) or value in dimension.domain or not is_number(value):
        return value
    own_number = value
    numbers = [each for each in dimension.domain.options if is_number(each)]
    return min(numbers, key=lambda each: abs(each - own_number), default=value)


def _check_cycles(base: Recipe, domains: Mapping[str, Domain]) -> None:
    """Raise SpaceError if trials would have cycles of different lengths: they could not be compared."""
    faults = []
    kinds = domains.get("schedule.kind")
    for kind in (each for each in schedules.CYCLED if isinstance(kinds, Choice) and each in kinds):
        problem = (
            f"{kind} cannot be one choice among others: trials with it are compared at the ends of its cycles"
        )
        faults.append(Fault("schedule.kind", f"{problem}; pin it under base, as schedule: {{kind: {kind}}}"))
    if base.schedule.kind in schedules.CYCLED:
        problem = "moves the ends of the cycles, at which trials are compared; write one value under base"
        faults += [Fault(path, problem) for path in domains if path in MOVING_CYCLES]
    if faults:
        raise SpaceError(faults)
