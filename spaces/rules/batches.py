"""Varies the batch, moves a recipe to another one, and says at which batches each rule was seen.

Sources such as `003:23` are lines of the guides in docs/sources.md: 000 is the training tricks notes, 002 the
PyTorch speed notes, 003 the PaddleClas guide and 004 the 17 ways guide.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from spaces.domains import Value, Values
from spaces.facts import Facts
from spaces.rules.loops import BATCH_SOURCE, STEPS_A_RUN, STEPS_AN_EPOCH, channels_last, precision
from spaces.rules.rulings import (
    Distribution,
    Ruling,
    Rulings,
    heuristic,
    number_at,
    rounded,
    weighted_choice,
    word_at,
)
from spaces.rules.schedules import WARMED, longest_warmup, warmup_epochs
from spaces.rules.tasks import rules_of
from trainable.recipe import REFERENCE_BATCH
from trainable.recipe.base import YOURS
from trainable.recipe.optimizers import Scaling, batch_factor

SCALINGS: tuple[Scaling, ...] = ("linear", "sqrt", "none")
FEWEST_NORMALISED = 8  # BatchNorm over fewer images has poor statistics: the number of `model.freeze_norm`
FEW_PARTS = 4  # micro-batches that a batch may have: a few cost little more than one, as gradients are summed


@heuristic(
    "Batches range from a quarter to four times the rule's; each doubling or halving halves the probability.",
    page="batch.md",
    silent="where no other batch fits",
)
def batch_sizes(facts: Facts, values: Values) -> Distribution | None:
    own = rules_of(facts.task).batch_size(facts).what
    at_once = facts.largest_micro_batch * facts.workers if facts.largest_micro_batch else None
    fitting = FEW_PARTS * at_once if at_once else 4 * own
    most = max(own, min(facts.train_images // STEPS_AN_EPOCH, fitting))
    steps = [each for each in range(-2, 3) if own * 2.0**each >= min(own, 8) and own * 2.0**each <= most]
    if len(steps) < 2:
        return None
    domain, prior = weighted_choice({int(own * 2.0**each): 2.0 ** -abs(each) for each in steps})
    where = f", of which {at_once} fit at once" if at_once else ""
    return Distribution(domain, prior, f"powers of two around the rule's {own}{where}", BATCH_SOURCE)


class SeenAt(NamedTuple):
    """The batches at which a rule was seen to work, and where; without a source nobody has said it."""

    rule: str
    least: int = 0
    most: int = 0
    source: str = ""

    def about(self, *ends: int) -> str | None:
        """Return what to know of the rule between these batches; None where it was seen at both."""
        if not self.source:
            return f"{self.rule}: no source says at which batches it holds"
        outside = [f"{batch:,}" for batch in ends if not self.least <= batch <= self.most]
        if not outside:
            return None
        where = f"{self.least:,} to {self.most:,} ({self.source})"
        return f"{self.rule}: seen at batches of {where}, not at {' or '.join(outside)}"


LINEAR = SeenAt("a rate linear in the batch", 64, 8_192, "ResNet50 on ImageNet, arXiv 1706.02677, figure 1")
LARS = SeenAt("a rate linear in the batch, with LARS", 256, 32_768, "ResNet50 on ImageNet, arXiv 1708.03888")
LAMB = SeenAt("a rate with the root of the batch, with LAMB", 512, 32_768, "ResNet50, arXiv 1904.00962")
SQRT = SeenAt(
    "a rate with the root of the batch",
    256,
    4_096,
    "256 in arXiv 2205.10287, 4,096 in 2201.03545, table 5",
)
WARMUP = SeenAt("the warm-up", 256, 8_192, "ResNet50 on ImageNet, arXiv 1706.02677, section 2.2")
AVERAGE = SeenAt("an average with the same half-life in epochs")


def moved(facts: Facts, values: Values, *, batch: int, gpus: int, fitted: int | None) -> Rulings:
    """Return what changes in a recipe with these values at another effective batch, with reason and source.

    Args:
        facts: of the search, with its own GPUs.
        gpus: on which the recipe is to train; 0 for a CPU.
        fitted: the most images that fit into one device's memory at once, if that is known.
    """
    old = int(number_at(values, "loop.batch_size"))
    changed: Rulings = {"loop.batch_size": Ruling(batch, f"asked for; it was {old:,}", YOURS)}
    changed |= _rates(values, old, batch)
    changed |= _warmup(facts, values, old, batch)
    changed |= _averaging(values, old, batch)
    changed |= _parts(values, math.ceil(batch / max(gpus, 1)), gpus, fitted)
    if gpus and not facts.gpus:
        untimed = facts.model_copy(update={"speeds": ()})
        changed |= {"precision.kind": precision(untimed), "precision.channels_last": channels_last(untimed)}
    return changed


def warnings(facts: Facts, values: Values, batch: int) -> list[str]:
    """Return a line for each rule that was not seen at the recipe's batch or at this one, one for the search
    itself, and one where the batch leaves a run fewer steps than the rule for it wants."""
    old = int(number_at(values, "loop.batch_size"))
    if batch == old:
        return []
    rules = [_of_rate(values)]
    rules += [WARMUP] if values["schedule.kind"] in WARMED else []
    rules += [AVERAGE] if values["regularisation.averaging.kind"] == "ema" else []
    found = [each.about(old, batch) for each in rules if each is not None]
    own = f"the recipe itself was trained at a batch of {old:,} alone; at {batch:,} it has no score"
    few = _few_steps(facts.train_images, int(number_at(values, "loop.epochs")), batch)
    return [own, *(each for each in (*found, few) if each is not None)]


def _few_steps(images: int, epochs: int, batch: int) -> str | None:
    epoch = images // batch
    if epoch >= STEPS_AN_EPOCH and epoch * epochs >= STEPS_A_RUN:
        return None
    largest = min(images // STEPS_AN_EPOCH, images * epochs // STEPS_A_RUN)
    return (
        f"a run of {epoch * epochs:,} steps, {epoch:,} an epoch: the rule for the batch leaves {STEPS_A_RUN} "
        f"and {STEPS_AN_EPOCH}, with these images at batches up to {largest:,}"
    )


def _of_rate(values: Values) -> SeenAt | None:
    match word_at(values, "optimizer.scaling", SCALINGS), values["optimizer.kind"]:
        case "none", _:
            return None
        case "linear", "lars":
            return LARS
        case "linear", _:
            return LINEAR
        case _, "lamb":
            return LAMB
        case _:
            return SQRT


def _rates(values: Values, old: int, batch: int) -> Rulings:
    """Return the rates, which stay as they are at batch 256, with what is applied in the reason."""
    scaling = word_at(values, "optimizer.scaling", SCALINGS)
    found: Rulings = {}
    for path in ("optimizer.lr", "optimizer.sgd_lr"):
        if path in values:
            own = "none" if scaling == "none" else "linear" if path == "optimizer.sgd_lr" else scaling
            rate = number_at(values, path)
            was, now = (rate * batch_factor(own, each / REFERENCE_BATCH) for each in (old, batch))
            reason = (
                f"at batch {REFERENCE_BATCH}; {now:.4g} is applied at {batch:,}, {was:.4g} was at {old:,}"
            )
            found[path] = Ruling(rate, reason, "000:25, 003:23; arXiv 1706.02677, 2205.10287")
    return found


def _warmup(facts: Facts, values: Values, old: int, batch: int) -> Rulings:
    """Return a warm-up that is as much longer or shorter as the rule's own is at the two batches."""
    if values["schedule.kind"] not in WARMED:
        return {}
    epochs = facts.model_copy(update={"epochs": int(number_at(values, "loop.epochs"))})
    before, after = (warmup_epochs(epochs, each) for each in (old, batch))
    own = number_at(values, "schedule.warmup_epochs")
    new = min(max(own + after.what - before.what, 0.0), max(own, longest_warmup(epochs)))
    reason = f"{own:g} and what the rule adds: {before.what:g} at batch {old:,}, {after.what:g} at {batch:,}"
    return {
        "schedule.warmup_epochs": Ruling(rounded(new), f"{reason}; at most a tenth of the run", after.source)
    }


def _averaging(values: Values, old: int, batch: int) -> Rulings:
    """Return the decay with which the average still forgets half in as many images."""
    if values["regularisation.averaging.kind"] != "ema":
        return {}
    decay = number_at(values, "regularisation.averaging.decay") ** (batch / old)
    reason = f"the same half-life in images: the decay of a step to the power of {batch:,} / {old:,}"
    return {"regularisation.averaging.decay": Ruling(float(f"{decay:.6g}"), reason, "ours")}


def _parts(values: Values, share: int, gpus: int, fitted: int | None) -> Rulings:
    """Return how a device's share of the batch is cut, and whether BatchNorm sees all devices."""
    at_once = min(share, fitted) if fitted else share
    most = f"at most {fitted:,} fit into its memory" if fitted else "tunebook batch-find says how many fit"
    reason = f"{share:,} images on each device; {most}"
    found: dict[str, Ruling[Value]] = {"loop.micro_batch": Ruling(at_once, reason, "002:24, 004:113")}
    if gpus > 1 and at_once < FEWEST_NORMALISED and values["model.freeze_norm"] is not True:
        why = f"BatchNorm sees {at_once} images on a device, and fewer than {FEWEST_NORMALISED} are too few"
        found["loop.sync_norm"] = Ruling(True, why, "004:135; the number is ours")
    return found
