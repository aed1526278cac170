"""The documents' rules as formulas: pure functions from Facts to a value or a distribution, with a source.

`rulings` gathers the values into the documented recipe, `spaces.rules` the distributions into what a
space varies. The formulas are in the files beside this one: `optimizers` and `rates`, `schedules`,
`regularisation`, `augmentations`, `finetuning` and `loops`, and for segmentations `masks`; `tasks` says
which of them a task asks.

Sources such as "PaddleClas guide, 003:26-40" are lines of five documents on training that the product
follows: 000 is the training tricks notes, 001 the PyTorch tuning guide, 002 the PyTorch speed notes, 003 the
PaddleClas guide and 004 the 17 ways guide (see docs/sources.md). arXiv numbers are papers. If neither gives a
number, the reason says that it is ours. Between the sizes that a source names, rules are straight lines in
log-log: there are no jumps where a formula can avoid them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from functools import partial
from typing import Literal, assert_never, get_args

from spaces.conditions import scalars_of
from spaces.domains import Domain, Value, Values
from spaces.facts import Facts
from spaces.rules import (
    augmentations,
    backbones,
    loops,
    masks,
    optimizers,
    regularisation,
    schedules,
)
from spaces.rules.rulings import Ruling, Rulings, word_at
from spaces.rules.tasks import rules_of
from spaces.space import RuleValue, When
from spaces.tables import Table, mapped, with_conditions, written_out
from trainable.recipe import Recipe

# A pair: a person who pins one of them has decided what the crops are
RATIOS = frozenset({"augmentation.crop.ratio_min", "augmentation.crop.ratio_max"})
AveragingKind = Literal["none", "ema"]
AVERAGINGS: tuple[AveragingKind, ...] = get_args(AveragingKind)
CropKind = Literal["none", "pad", "resized", "scaled"]
CROPS: tuple[CropKind, ...] = get_args(CropKind)
MaskingKind = Literal["none", "erasing", "cutout", "gridmask", "hide_and_seek"]
MASKINGS: tuple[MaskingKind, ...] = get_args(MaskingKind)


def fixed_by_rule(facts: Facts, base: Recipe, pinned: Set[str]) -> dict[str, Value]:
    """Return the values that turn a base recipe into the documents' own for these facts,
    without pinned paths."""
    return {path: ruling.what for path, ruling in rulings(facts, base, pinned).items()}


def rulings(facts: Facts, base: Recipe, pinned: Set[str]) -> Rulings:
    """Return the values of `fixed_by_rule` with the reason and the source of each.

    A section with any pinned field does not change its kind, since the field was written for that kind.
    """
    fixed = _fixed(facts, pinned)
    values = {**scalars_of(base), **{path: ruling.what for path, ruling in fixed.items()}}
    return fixed | _unpinned(details(facts, values), _with_pairs(pinned))


def rule_values(
    facts: Facts, own: Recipe, pinned: Set[str], domains: Mapping[str, Sequence[Domain]]
) -> tuple[RuleValue, ...]:
    """Return what the rules give to every recipe around `own` with values in their paths' domains."""
    fixed = _fixed(facts, pinned)
    found = [_rule_value(path, ruling, ()) for path, ruling in fixed.items()]
    own_values, left_out = scalars_of(own), _with_pairs(pinned)
    for rule in DETAILS:
        table = written_out(partial(rule, facts), own_values, domains)
        paths = dict.fromkeys(path for _, answer in with_conditions(table) for path in answer)
        found += [each for path in paths if path not in left_out for each in _conditional(path, table)]
    return tuple(found)


def values_for(facts: Facts, recipe: Recipe) -> dict[str, RuleValue]:
    """Return what the rules would give to a recipe of these kinds, by path, whatever its space."""
    found = _fixed(facts, frozenset()) | details(facts, scalars_of(recipe))
    return {path: _rule_value(path, ruling, ()) for path, ruling in found.items()}


def kinds_and_batch(facts: Facts) -> Rulings:
    """Return the kinds, the batch and whether BatchNorm is frozen, which the other rules depend on."""
    task = rules_of(facts.task)
    return {
        "optimizer.kind": task.optimizer(facts),
        "schedule.kind": task.schedule(facts),
        "augmentation.crop.kind": task.crop(facts),
        "augmentation.policy.kind": augmentations.policy(facts),
        "augmentation.masking.kind": augmentations.masking(facts),
        "augmentation.mixing.kind": augmentations.mixing(facts),
        "loop.batch_size": task.batch_size(facts),
        "precision.kind": loops.precision(facts),
        "precision.channels_last": loops.channels_last(facts),
        "loop.compile": loops.compiled(facts),
        **task.network(facts),
    }


def details(facts: Facts, values: Values) -> Rulings:
    """Return the values that the documents give to a recipe of these kinds and this batch."""
    return {path: ruling for rule in DETAILS for path, ruling in rule(facts, values).items()}


def _warmup(facts: Facts, values: Values) -> Rulings:
    return {"schedule.warmup_epochs": schedules.own_warmup(facts, values)}


def _power(facts: Facts, values: Values) -> Rulings:
    power = rules_of(facts.task).power
    return {"schedule.power": power} if power is not None and values["schedule.kind"] == "poly" else {}


def _layer_rates(facts: Facts, values: Values) -> Rulings:
    if values["model.layer_rates.kind"] != "backbone":
        return {}
    return {"model.layer_rates.factor": masks.backbone_factor()}


def _smoothing(facts: Facts, values: Values) -> Rulings:
    return {"regularisation.label_smoothing": rules_of(facts.task).label_smoothing(facts)}


def _corrections(facts: Facts, values: Values) -> Rulings:
    return rules_of(facts.task).corrections(facts)


def _averaging(facts: Facts, values: Values) -> Rulings:
    match kind := word_at(values, "regularisation.averaging.kind", AVERAGINGS):
        case "none":
            return {}
        case "ema":
            return {"regularisation.averaging.decay": regularisation.ema_decay(facts, values)}
        case _:
            assert_never(kind)


def _crop(facts: Facts, values: Values) -> Rulings:
    match kind := word_at(values, "augmentation.crop.kind", CROPS):
        case "none":
            return {}
        case "pad":
            return {"augmentation.crop.fraction": augmentations.crop_fraction(facts)}
        case "resized":
            return {"augmentation.crop.scale_min": augmentations.crop_scale(facts), **_ratios(facts)}
        case "scaled":
            return masks.scales()
        case _:
            assert_never(kind)


def _ratios(facts: Facts) -> Rulings:
    """Return the narrowest and the widest crop, reciprocals of each other;
    most nets use the recipe's default."""
    narrowest = augmentations.crop_ratio(facts)
    if narrowest is None:
        return {}
    widest = Ruling(1.0 / narrowest.what, narrowest.reason, narrowest.source)
    return {"augmentation.crop.ratio_min": narrowest, "augmentation.crop.ratio_max": widest}


def _flips(facts: Facts, values: Values) -> Rulings:
    return {"augmentation.flip_probability": augmentations.flip_probability(facts)}


def _masking(facts: Facts, values: Values) -> Rulings:
    match kind := word_at(values, "augmentation.masking.kind", MASKINGS):
        case "erasing":
            return {"augmentation.masking.probability": augmentations.erasing_probability(facts)}
        case "none" | "cutout" | "gridmask" | "hide_and_seek":
            return {}  # the papers' own values are the recipe's defaults
        case _:
            assert_never(kind)


def _losses(facts: Facts, values: Values) -> Rulings:
    return rules_of(facts.task).losses


DetailRule = Callable[[Facts, Values], Rulings]
# What follows from the kinds and the batch; each part reads its own values
DETAILS: tuple[DetailRule, ...] = (
    optimizers.details,
    _warmup,
    _power,
    _layer_rates,
    _smoothing,
    _corrections,
    _averaging,
    _crop,
    _flips,
    _masking,
    _losses,
    masks.output_stride,
)


# --- pins, and the values of other recipes ------------------------------------------------------------


def _with_pairs(pinned: Set[str]) -> Set[str]:
    return pinned | RATIOS if pinned & RATIOS else pinned


def _fixed(facts: Facts, pinned: Set[str]) -> Rulings:
    """Return the network, if nobody names one, and the kinds that are not pinned."""
    network = {} if "model.kind" in pinned else backbones.network(facts)
    kinds = {f"{path.rpartition('.')[0]}.kind" for path in pinned}
    # BatchNorm stays as it is where a person wrote the rate: the rate was written for that
    norm = {"model.freeze_norm"} if "optimizer.lr" in pinned else set()
    return network | _unpinned(kinds_and_batch(facts), pinned | kinds | norm)


def _unpinned(found: Rulings, pinned: Set[str]) -> Rulings:
    return {path: ruling for path, ruling in found.items() if path not in pinned}


def _conditional(path: str, table: Table[Rulings]) -> Iterator[RuleValue]:
    """Yield the values of one path, each with its own conditions alone."""
    for conditions, ruling in with_conditions(mapped(table, lambda found: found.get(path))):
        if ruling is not None:
            yield _rule_value(path, ruling, tuple(When(*each) for each in conditions))


def _rule_value(path: str, ruling: Ruling[Value], when: tuple[When, ...]) -> RuleValue:
    return RuleValue(path, ruling.what, ruling.reason, ruling.source, when, ruling.unswept)
