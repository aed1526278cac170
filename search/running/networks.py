"""Makes the networks of a search before its first trial, so that a fault in one is named then."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, product
from pathlib import Path
from typing import TYPE_CHECKING

from search.facts.hardware import Hardware
from search.facts.measured import without_weights
from search.record.home import copies_of_stored
from search.record.trials import recipe_key
from search.study.first import FirstTrial
from spaces.domains import Choice, shown
from spaces.space import Space
from trainable.bench import HERE, ON_CPU, Bench
from trainable.data import DataInfo
from trainable.errors import ModelError
from trainable.recipe import Recipe
from trainable.recipe.distillation import SECTION, Distillation
from trainable.recipe.models import ENCODER, MODEL_NAME, OUTPUT_STRIDE, Model, SmpModel, network_name
from trainable.recipe.trained_files import teacher_files
from trainable.recipe.training import COMPILED

if TYPE_CHECKING:  # torch takes seconds to import
    from trainable.models.own import BuildModel


def check_networks(
    space: Space, info: DataInfo, build: BuildModel | None = None, bench: Bench = HERE
) -> None:
    """Make the networks that a fault of weights or of a person's own function would fail in trials.

    Weights are loaded once for each model that the space may choose; published ones are fetched if the bench
    may. A person's own function is called for the first trial, and for each end of each range of the model:
    it may fail at one of them alone. Raises ModelError.
    """
    from trainable.models.groups import head_parameters, rate_factors
    from trainable.training.network import make_network

    if build is None:
        for spec in _models_with_weights(space):
            make_network(spec, info, bench=bench)
        return
    tried: list[Model] = []
    for spec in _own_models(space):
        if spec not in tried:
            tried.append(spec)
            network = make_network(spec, info, build=build, bench=bench)
            rate_factors(spec.layer_rates, network)
            if spec.freeze_epochs:
                head_parameters(network)


def what_is_compiled(
    space: Space, info: DataInfo, build: BuildModel | None = None, bench: Bench = HERE
) -> Iterator[str]:
    """Yield in a line what trials compile, by the example of the documented recipe's network."""
    from trainable.training.compiling import compiled_parts

    chosen = [each for each in COMPILED if space.may_have("loop.compile", each)]
    if not chosen:
        return
    network = without_weights(space.recipe(space.own), info, build, bench=bench)
    for compiling in chosen:
        yield (
            f"loop.compile {shown(compiling)}: the first step of a trial compiles "
            f"{compiled_parts(network, compiling)}; what this machine has compiled before is read from its "
            "disk"
        )


def check_first_networks(
    first: Sequence[FirstTrial], info: DataInfo, build: BuildModel | None = None, bench: Bench = HERE
) -> None:
    """Make the networks that only a person's first trials have, and load the teachers that only they have.

    Raises ModelError, which says whose it is.
    """
    from trainable.training.network import make_network

    for each in first:
        recipe = Recipe.from_tree(each.recipe)
        try:
            if any(path.startswith("model.") for path in each.outside):
                make_network(recipe.model, info, build=build, bench=bench)
            if any(path.startswith(f"{SECTION}.") for path in each.outside):
                _load_teacher(recipe, info, build, bench=bench)
        except ModelError as error:
            raise ModelError(f"{each.source}: {error}") from None


def check_teacher(space: Space, info: DataInfo, build: BuildModel | None = None, bench: Bench = HERE) -> None:
    """Load the teacher as each kind of distillation that a trial may have asks for it, on this machine's
    processors. Raises ModelError."""
    if space.base.distillation is None:
        return
    path = f"{SECTION}.kind"
    kinds = [each.domain.options for each in space.dimensions if each.path == path]  # type: ignore[union-attr]
    for kind in dict.fromkeys((*chain(*kinds), space.base.distillation.kind)):
        _load_teacher(space.base.with_values({path: kind}), info, build, bench=bench)


def weights_of(space: Space, first: Sequence[FirstTrial] = ()) -> dict[str, str]:
    """Return the digest of the file of weights of each network that the space may choose, by its name, and
    of each teacher, that of a first trial too, by `distillation.teacher`, with that of the teacher's recipe;
    published weights have none.

    Raises ModelError for a teacher that is not there.
    """
    from trainable.models.weights import file_digest, weights_digest

    found = {network_name(spec): weights_digest(spec) for spec in _models_with_weights(space)}
    for path, each in teachers_of(space, first).items():
        files = teacher_files(each)
        found[path] = file_digest(files.weights)
        found[recipe_key(path)] = None if files.recipe is None else files.recipe.digest()
    return {name: digest for name, digest in found.items() if digest is not None}


def teachers_of(space: Space, first: Sequence[FirstTrial] = ()) -> dict[str, Distillation]:
    """Return what names the teacher of the space and those of first trials, by `distillation.teacher`."""
    recipes = (space.base, *(Recipe.from_tree(each.recipe) for each in first))
    return {each.distillation.teacher: each.distillation for each in recipes if each.distillation is not None}


def teachers_here_alone(teachers: Iterable[str], hardware: Hardware) -> list[str]:
    """Return those paths of teachers that other machines of a cluster cannot read, unless they share this
    user's home folder: trials of searches in object stores, which are copied to this machine."""
    if not hardware.cluster or len(hardware.nodes) < 2:
        return []
    return [each for each in teachers if Path(each).is_relative_to(copies_of_stored())]


def _load_teacher(recipe: Recipe, info: DataInfo, build: BuildModel | None, *, bench: Bench) -> None:
    """Load the teacher of a recipe, if it has one, on this machine's processors. Raises ModelError."""
    from trainable.tasks.distilled.teacher import load_teacher
    from trainable.training.pixels import resolved_for
    from trainable.training.precision import Compute

    if recipe.distillation is None:
        return
    resolved = resolved_for(recipe, info, bench=bench)
    load_teacher(recipe.distillation, resolved, info, Compute(ON_CPU.device, "fp32"), build)


def _models_with_weights(space: Space) -> Iterator[Model]:
    """Yield the models that the space may choose, if they start from weights: the first trial's first."""
    base = space.base
    if base.model.weights is None:
        return
    yield base.model
    drawn = {each.path: each.domain for each in space.dimensions if each.path in (MODEL_NAME, ENCODER)}
    choices = {path: domain.options for path, domain in drawn.items() if isinstance(domain, Choice)}
    plain = {OUTPUT_STRIDE: None} if isinstance(base.model, SmpModel) else {}  # not every decoder has one
    for chosen in product(*choices.values()):
        spec = base.with_values({**plain, **dict(zip(choices, chosen, strict=True))}).model
        if network_name(spec) != network_name(base.model):
            yield spec


def _own_models(space: Space) -> Iterator[Model]:
    """Yield the model of the first trial, and those with one value at an end of its range."""
    yield space.recipe(space.own).model
    for each in space.dimensions:
        if each.path.startswith("model.") and each.path in space.own:
            for end in each.domain.extremes():
                yield space.recipe({**space.own, each.path: end}).model
