"""Turns the first trials that a person asks for into recipes on a search's data, at its length."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from search.study.first import FirstTrial
from search.study.space import recipe_faults
from search.study.study import FIXED_BY_THE_STUDY, WEIGHTS, Study, StudyError, absolute, is_recipe
from spaces.domains import Choice, Value, is_number, listed
from spaces.priors import Prior, likeliest
from spaces.space import Dimension, Space
from trainable.data import DataInfo
from trainable.errors import Fault, FaultyInput, UserError
from trainable.files.paths import without_tilde
from trainable.files.store import is_uri
from trainable.recipe import Recipe
from trainable.recipe.distillation import TEACHER
from trainable.recipe.models import MODEL_NAME, absolute_name, is_published
from trainable.recipe.trees import leaves
from trainable.recipe.yamlfile import read_tree

# in these fields, and in its data, a recipe's file does not count: the search's own values do. Trials are
# compared at one length, with one seed and one metric, and the machine decides how they are computed
OF_THE_SEARCH = (
    "loop.epochs",
    "loop.seed",
    "loop.micro_batch",
    "loop.workers",
    "loop.prefetch",
    "loop.compile",
    "loop.checkpoint_activations",
    "precision.kind",
    "precision.channels_last",
    "evaluation.batch_size",
    "evaluation.metrics",
)


# these fields of a segmentation are those of the search, too: they say what its images are scored by
OF_THE_DATA = ("task.masks.", "task.overlap")


def first_trials(
    study: Study, space: Space, info: DataInfo, teacher: Callable[[str], str] = absolute
) -> tuple[FirstTrial, ...]:
    """Return the first trials of a study, in its order, which come after the documented recipe.

    An entry is a recipe's file, or values by dotted path on top of the documented recipe; where these switch
    a kind, the fields of the new kind have the values that the space believes in. Files are read. `teacher`
    makes an absolute path of what `distillation.teacher` names. Raises StudyError with every fault, also of a
    file that holds no recipe.
    """
    found: list[FirstTrial] = []
    known = {space.recipe(space.own).digest(): "trial 0, the documented one"}
    faults: list[Fault] = []
    if 1 + len(study.first) > study.budget.trials:
        wanted = f"budget.trials of at least {1 + len(study.first)}, the documented recipe among them"
        faults.append(Fault("first", f"expected {wanted}, got {study.budget.trials}"))
    for at, entry in enumerate(study.first):
        where = f"first.{at}"
        try:
            trial = _first_trial(study, space, info, where, entry, teacher)
        except FaultyInput as error:
            file = f" (in {entry})" if isinstance(entry, str) else ""
            faults += [Fault(f"{where}.{path}".rstrip("."), message + file) for path, message in error.faults]
            continue
        except UserError as error:  # of a file; it names that
            faults.append(Fault(where, str(error)))
            continue
        digest = Recipe.from_tree(trial.recipe).digest()
        if digest in known:
            faults.append(Fault(where, f"is the recipe of {known[digest]}; leave it out"))
        known.setdefault(digest, where)
        found.append(trial)
    if faults:
        raise StudyError(faults)
    return tuple(found)


def _first_trial(
    study: Study,
    space: Space,
    info: DataInfo,
    where: str,
    entry: str | Mapping[str, Any],
    teacher: Callable[[str], str],
) -> FirstTrial:
    if isinstance(entry, str):
        recipe, source = _of_search(_read(entry), space), entry
    else:
        recipe, source = _changed(space, entry), f"{where} of the study"
    recipe = _with_absolute_paths(recipe, teacher)
    if faults := list(recipe_faults(recipe, study, info)):
        raise StudyError(faults)
    values = _varied(space, recipe)
    return FirstTrial(
        source=source, outside=_outside(space, values, recipe), values=values, recipe=recipe.tree()
    )


def _read(entry: str) -> Recipe:
    """Return the recipe in a file. Raises UserError (RecipeError) where there is none."""
    if is_uri(entry):
        raise UserError(f"{entry}: expected a file, got a URI; `tunebook export SEARCH -o FILE` writes one")
    tree = read_tree(without_tilde(entry))
    if "data" not in tree or not is_recipe(tree):
        got = listed(tree) if tree else "an empty file"
        raise UserError(f"{entry}: expected a recipe, which has data, model, optimizer and more, got {got}")
    return Recipe.from_tree(tree, where=entry)


def _of_search(written: Recipe, space: Space) -> Recipe:
    """Return the recipe of a file with the search's data and masks, and with its values of `OF_THE_SEARCH`,
    except for those that it varies. Raises StudyError for a recipe of another task."""
    if written.task.kind != space.base.task.kind:
        message = f"expected {space.base.task.kind}, which the search learns, got {written.task.kind}"
        raise StudyError([Fault("task.kind", message)])
    ours = {path: space.base.get(path) for path in _same_for_all(space)}
    ours |= {path: value for path, value in space.base.leaves() if path.startswith(OF_THE_DATA)}
    return _built(
        lambda: written.model_copy(update={"data": space.base.data, "provenance": None}).with_values(ours)
    )


def _same_for_all(space: Space) -> list[str]:
    """Return those fields of `OF_THE_SEARCH` that a search does not vary: its trials share them."""
    varied = {each.path for each in space.dimensions}
    return [path for path in OF_THE_SEARCH if path not in varied]


def _changed(space: Space, entry: Mapping[str, Any]) -> Recipe:
    """Return the documented recipe with other values."""
    written = list(leaves(entry))
    faults = list(_misplaced([path for path, _ in written], space))
    values = dict(written)

    def chosen(dimension: Dimension, prior: Prior) -> Value:
        if dimension.path not in values:
            return own[dimension.name] if dimension.name in own else likeliest(dimension.domain, prior)
        found: Value = values[dimension.path]
        if _is_placed(space, dimension, found):
            return found
        if isinstance(dimension.domain, Choice):  # the recipe is checked below for all others
            faults.append(_no_option(dimension, found))
        return likeliest(dimension.domain, prior)

    own = space.named(space.own)
    filled = space.define(chosen)
    if faults:
        raise StudyError(faults)
    return _built(lambda: space.recipe({**filled, **values}))


def _with_absolute_paths(recipe: Recipe, teacher: Callable[[str], str]) -> Recipe:
    """Return the recipe with the weights and the folder of its network, and with its teacher, as they are
    found from here: trials train elsewhere."""
    written, found = dict(recipe.leaves()), {}
    weights, name = written.get(WEIGHTS), written.get(MODEL_NAME)
    if isinstance(weights, str) and not is_published(weights):
        found[WEIGHTS] = str(without_tilde(weights).absolute())
    if isinstance(name, str):
        found[MODEL_NAME] = absolute_name(name)
    if recipe.distillation is not None:
        found[TEACHER] = teacher(recipe.distillation.teacher)
    return recipe.with_values(found)


def _misplaced(paths: list[str], space: Space) -> Iterator[Fault]:
    of_all = dict.fromkeys(
        (*_same_for_all(space), "task.kind", "task.masks", "task.overlap"),
        "all trials share it; write it in the study's `base`",
    )
    for path in dict.fromkeys(paths):
        if paths.count(path) > 1:
            yield Fault(path, "is written twice, nested and dotted; keep one")
        for field, instead in {**of_all, **FIXED_BY_THE_STUDY}.items():
            if path == field or path.startswith(f"{field}."):
                yield Fault(path, f"cannot differ in a first trial: {instead}")


def _varied(space: Space, recipe: Recipe) -> dict[str, Value]:
    """Return a recipe's values of what the space varies.

    Raises StudyError where the recipe lacks such a value, or has one that does not say which dimensions there
    are, or what is believed of them.
    """
    written, faults = dict(recipe.leaves()), list[Fault]()

    def value(dimension: Dimension, prior: Prior) -> Value:
        found: Value = written.get(dimension.path)
        if dimension.path in written and _is_placed(space, dimension, found):
            return found
        if dimension.path not in written:
            message = "the search varies it, and this recipe has none; is a kind in its section another one?"
            faults.append(Fault(dimension.path, message))
        elif isinstance(dimension.domain, Choice) or is_number(found):
            faults.append(_no_option(dimension, found))
        else:
            faults.append(Fault(dimension.path, f"expected a number, as the search varies it, got {found!r}"))
        return likeliest(dimension.domain, prior)

    values = space.define(value)
    if faults:
        raise StudyError(faults)
    return values


def _is_placed(space: Space, dimension: Dimension, value: object) -> bool:
    """Return whether a recipe may have the value in place of a drawn one: another number than the space has
    may stand where nothing else depends on it, such as a decay of averages that follows the length."""
    if value in dimension.domain:
        return True
    if not is_number(value) or not all(map(is_number, dimension.domain.extremes())):
        return False
    return value == space.own.get(dimension.path) or not space.decides(dimension.path)


def _no_option(dimension: Dimension, found: object) -> Fault:
    message = f"expected {dimension.domain}, got {found!r}; space.overrides.{dimension.name} says what varies"
    return Fault(dimension.path, message)


def _outside(space: Space, values: Mapping[str, Value], recipe: Recipe) -> tuple[str, ...]:
    """Return the fields by which a recipe is no point of the space, in the recipe's order."""
    nearest, written = dict(space.recipe(values).leaves()), dict(recipe.leaves())
    dimensions = {each.name: each for each in space.dimensions}
    drawn = [(dimensions[name], value) for name, value in space.named(values).items()]
    beyond = {dimension.path for dimension, value in drawn if value not in dimension.domain}
    paths = [*written, *(path for path in nearest if path not in written)]
    return tuple(
        path
        for path in paths
        if path in beyond or path not in nearest or path not in written or nearest[path] != written[path]
    )


def _built(make: Callable[[], Recipe]) -> Recipe:
    try:
        return make()
    except FaultyInput as error:
        raise StudyError(error.faults) from None
