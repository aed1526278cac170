"""Builds the space that a study's trials are drawn from, and finds what in it would fail in a trial."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from search.study.objective import Constraints, class_faults, shown_cost
from search.study.study import Study, StudyError
from spaces.catalog.catalog import make_space
from spaces.domains import is_number
from spaces.facts import Facts
from spaces.rules.backbones import network
from spaces.rules.heuristics import fixed_by_rule
from spaces.rules.optimizers import TIMM_NAMES, optimizer
from spaces.space import Space
from trainable.data import DataInfo, resolve
from trainable.errors import Fault, RecipeError
from trainable.recipe import Recipe
from trainable.recipe.models import network_fields, network_name
from trainable.recipe.optimizers import Timm


@dataclass(frozen=True)
class LearnedSpace:
    """A space, and what earlier searches have taught it."""

    space: Space
    lines: tuple[str, ...] = ()  # for each search that it learns from: what it taught, or why nothing


SpaceBuilder = Callable[[Facts, DataInfo], LearnedSpace]


def plain_space(study: Study) -> SpaceBuilder:
    """Return what builds a study's space without a look at earlier searches. Raises StudyError for a study
    that learns from some."""
    if study.space.learn_from:
        message = (
            "no guest of this driver reads earlier searches; give it one, as search.commands.guests does, or "
            "leave the field out"
        )
        raise StudyError([Fault("space.learn_from", message)])
    return lambda facts, info: LearnedSpace(build_space(study, facts, info))


def space_name(study: Study, facts: Facts) -> str:
    """Return the name of the study's space: if it names none, `finetune` where the rule of the start gives
    the network, and else `document`."""
    return study.space.name or ("finetune" if network(facts) else "document")


def build_space(study: Study, facts: Facts, info: DataInfo) -> Space:
    """Return the space around the study's base recipe.

    Pinned values come first, then the values that the heuristics fix, then the ranges.
    """
    pinned = study.pinned
    base = study.base_recipe().model_copy(update={"data": resolve(study.data, info)})
    base = study.with_rules(base, fixed_by_rule(facts, base, frozenset(pinned)))
    if base.loop.batch_size > facts.train_images:
        message = f"{base.loop.batch_size} is more than the {facts.train_images} training images"
        raise StudyError([Fault("base.loop.batch_size", message)])
    if faults := list(class_faults(study.objective, base, info.classes)):
        raise StudyError(faults)
    space = make_space(space_name(study, facts), base, frozenset(pinned), facts, study.space.overrides)
    if space.may_have("loop.compile", "auto"):
        message = "a trial cannot choose: expected false, true or blocks; auto is written in base"
        raise StudyError([Fault("space.overrides.loop.compile", message)])
    if faults := list(size_faults(study.objective.constraints, space, facts)):
        raise StudyError(faults)
    return space


def size_faults(constraints: Constraints, space: Space, facts: Facts) -> Iterator[Fault]:
    """Yield a fault where each network that a trial can have has more parameters than are allowed."""
    limit, varying = constraints.parameters, network_fields(each.path for each in space.dimensions)
    counted = {each.name: each.parameters for each in facts.networks if varying == {"name"}}
    if not varying:
        counted = {network_name(space.base.model): facts.parameters}
    if limit is not None and counted and min(counted.values()) > limit.max:
        smallest = min(counted, key=counted.__getitem__)
        message = (
            f"{shown_cost(limit.max)} is below the {counted[smallest]:,} parameters of the smallest network "
            f"that a trial can have, {smallest}; allow more, or let the space choose smaller ones"
        )
        yield Fault("objective.constraints.parameters.max", message)


def check_trials(study: Study, space: Space, facts: Facts) -> None:
    """Refuse what would fail in a trial, before any trial starts. Raises StudyError or UserError."""
    faults = list(_flip_faults(space, facts))
    batches = [
        end
        for each in space.dimensions
        if each.path == "loop.batch_size"
        for end in each.domain.extremes()
        if isinstance(end, int)
    ]
    if (largest := max(batches, default=0)) > facts.train_images:
        message = f"{largest} is more than the {facts.train_images} training images"
        faults.append(Fault("space.overrides.loop.batch_size", message))
    smallest = min(batches, default=space.base.loop.batch_size)
    if smallest < study.resources.workers:
        message = f"a batch of {smallest} images is too small for {study.resources.workers} workers"
        faults.append(Fault("resources.workers", message))
    if faults:
        raise StudyError(faults)
    from trainable.training.precision import check as check_precision

    check_precision(space.base.precision, "cuda" if facts.gpus else "cpu")
    _check_timm_optimizers(study, space)


def _check_timm_optimizers(study: Study, space: Space) -> None:
    """Raise StudyError for one of timm's optimizers that cannot train here, where it is written."""
    own = space.base.optimizer
    drawn = [each.domain.extremes() for each in space.dimensions if each.path == "optimizer.name"]
    names = [str(name) for ends in drawn for name in ends] or ([own.name] if isinstance(own, Timm) else [])
    first = own if isinstance(own, Timm) else Timm()
    if not first.options:
        names = [each for each in names if each not in TIMM_NAMES]
    if not names:
        return
    from trainable.training.timm_optimizers import check_timm_optimizer  # timm takes seconds to import

    for name in names:
        try:
            check_timm_optimizer(first.model_copy(update={"name": name}))
        except RecipeError as error:
            at = "space.overrides" if "optimizer.name" in study.space.overrides else "base"
            raise StudyError([Fault(f"{at}.{path}", message) for path, message in error.faults]) from None


def far_rates(study: Study, space: Space, facts: Facts) -> str | None:
    """Return a warning where a written range of rates lies wholly outside a sweep's band, or else None."""
    if facts.lr_band is None:
        return None
    low, high = facts.lr_band
    swept = facts.lr_band_kind or optimizer(facts).what
    for each in space.dimensions:
        written = {each.name, each.path} & study.space.overrides.keys()
        if each.path == "optimizer.lr" and written and (each.variant or space.base.optimizer.kind) == swept:
            rates = [end for end in each.domain.extremes() if is_number(end)]
            if rates and (max(rates) < low or min(rates) > high):
                found = f"warning: space.overrides.{written.pop()}: {each.domain}"
                wanted = f"{low:.3g} to {high:.3g} that a sweep recommends for {swept}"
                return f"{found} lies outside of the {wanted}"
    return None


def recipe_faults(recipe: Recipe, study: Study, info: DataInfo) -> Iterator[Fault]:
    """Yield what of a whole recipe would fail in a trial of this study, by the recipe's paths."""
    from trainable.ranks import ALONE  # these take seconds to import, with torch
    from trainable.training.network import check_recipe
    from trainable.training.timm_optimizers import check_timm_optimizer

    batch = recipe.loop.batch_size
    if batch > info.train_images:
        yield Fault("loop.batch_size", f"{batch} is more than the {info.train_images} training images")
        return
    if batch < study.resources.workers:
        message = f"a batch of {batch} images is too small for {study.resources.workers} workers"
        yield Fault("loop.batch_size", message)
    try:
        check_recipe(recipe, info, ALONE)
        if isinstance(recipe.optimizer, Timm):
            check_timm_optimizer(recipe.optimizer)
    except RecipeError as error:
        yield from error.faults


def _flip_faults(space: Space, facts: Facts) -> Iterator[Fault]:
    """Yield a fault where mirror images are averaged although labels do not stay true in the mirror."""
    if "horizontal" in facts.flips:
        return
    allowed = ", ".join(facts.flips) or "none"
    message = (
        f"needs data.flips to hold horizontal: mirror images keep their label; these data have {allowed}"
    )
    if space.base.evaluation.flip:
        yield Fault("base.evaluation.flip", message)
    for dimension in space.dimensions:
        if dimension.path == "evaluation.flip" and True in dimension.domain:
            yield Fault("space.overrides.evaluation.flip", message)
