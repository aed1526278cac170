"""`tunebook shrink`: a trained network, pruned and fine-tuned, and what it lost and spared."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from search.commands.bundle import check_trained, find_trained
from search.commands.named import YAML_ENDINGS
from search.commands.options import ShrinkOptions
from search.study import STUDY_FILE, read_study
from spaces.domains import counted
from trainable.bench import Bench, Say, bench_on, silent
from trainable.collector import load_torch, paused
from trainable.errors import RunError, UserError
from trainable.files.folders import check_new, moved_to, temporary_folder
from trainable.models.network_names import read_named_recipe
from trainable.recipe import Recipe
from trainable.recipe.distillation import MODEL, SECTION, TEACHER
from trainable.recipe.trained_files import (
    METRICS_FILE,
    MODEL_FILE,
    PRUNED_FILE,
    RECIPE_FILE,
    TRAINING_FILE,
    of_pruned_network,
    teacher_files,
)
from trainable.recipe.yamlfile import parse_setting, write_whole
from trainable.stages import stage
from trainable.terminal import tell, tell_json

if TYPE_CHECKING:  # torch takes seconds to import
    from search.retraining.shrunk import ShrunkComparison
    from trainable.bundle.trained import Trained
    from trainable.data import DataSet
    from trainable.shrinking.shrink import Shrunk

# no setting changes these sections: the weights were trained with them
FIXED = ("version", "task", "data", "model", "provenance")
OF_THE_TEACHER = (SECTION, TEACHER, f"{SECTION}.{MODEL}")  # these say which network teaches


class ShrinkFailed(UserError):
    """A training has crashed or diverged."""

    exit_code = 1


def run_shrink(options: ShrinkOptions) -> None:
    """Print the comparison that `shrunk_network` makes, and where the pruned network is. Raises what that
    raises."""
    say = silent if options.as_json else tell
    found = shrunk_network(options, say)
    _show(found, as_json=options.as_json)
    if options.out is not None:
        say(
            f"the pruned network of seed {found.shrunk.best.seed}, the best on the validation part -> "
            f"{options.out}"
        )


def shrunk_network(options: ShrinkOptions, say: Say = silent) -> ShrunkComparison:
    """Prune and fine-tune a network, and return what that lost; write the pruned network to a new folder,
    whole or not at all, where that is asked for.

    A recipe is trained first, for this comparison alone. Raises UserError, ModelError, and ShrinkFailed where
    a training comes to nothing.
    """
    out = options.out
    _check_numbers(options)
    if out is not None:
        check_new(out, "the pruned network", PRUNED_FILE if options.force else None)
        if out.resolve() == options.source.resolve():
            raise UserError(f"-o {out}: is what is pruned; give another folder")
    _check_settings(options)
    if out is not None and options.distillation and _is_recipe(options.source):
        name = quote(str(options.source))
        raise UserError(
            f"--distillation -o {out}: the network that {options.source} gives would teach, and is not kept: "
            f"no recipe could name it; `tunebook train {name} --out DIR`, then `tunebook shrink DIR "
            f"--distillation -o {quote(str(out))}`"
        )
    if not _is_recipe(options.source):
        check_trained(options.source, options.trial)
    _check_fields(options)
    load_torch()
    bench = bench_on(options.device, may_fetch=options.download, say=say)
    with stage("loading torch-pruning"), paused():
        from search.results.teachers import teacher_folder
        from search.retraining.shrunk import compared
        from trainable.shrinking.dependencies import library
        from trainable.shrinking.shrink import shrink

        library()
    try:
        with _trained(options, bench) as (trained, folder):
            if trained.whole_training is None:
                bench.say(
                    f"{folder}: was pruned before, and has no {TRAINING_FILE}, the recipe that trained the "
                    f"whole network: epochs and rate are taken from the fine-tuning in {RECIPE_FILE}, of "
                    f"{counted(trained.epochs, 'epoch')}; --epochs and --lr-factor change them"
                )
            recipe = _recipe(options, trained.whole_training or trained.recipe)
            taught = None
            if options.distillation:
                # the unpruned network; that of a trial is written into its search's folder
                in_search = (folder / STUDY_FILE).exists()
                teacher = teacher_folder(str(folder), options.trial) if in_search else folder.absolute()
                taught = _taught(options, recipe, teacher)
            bench.say(_effort(options, recipe, trained))
            shrunk = shrink(
                trained,
                recipe,
                options.flops,
                taught=taught,
                seeds=options.seeds,
                test=options.test,
                scratch=options.scratch,
                bench=bench,
            )
            found = compared(shrunk, options.flops)
    except RunError as error:
        raise ShrinkFailed(str(error)) from error
    if out is not None:
        _write(shrunk, found, out, replaces=options.force)
    return found


def _values(options: ShrinkOptions) -> dict[str, Any]:
    """Return the settings by their paths."""
    return dict(map(parse_setting, options.settings or ()))


def _is_of_teaching(options: ShrinkOptions, path: str) -> bool:
    """Say whether a setting is of the second fine-tuning alone, which learns from the unpruned network."""
    return options.distillation and path.startswith(f"{SECTION}.")


@contextmanager
def _trained(options: ShrinkOptions, bench: Bench) -> Iterator[tuple[Trained, Path]]:
    """Yield the trained network that was named, and the folder that it is in; of a recipe, after it is
    trained."""
    source = options.source
    if not _is_recipe(source):
        yield find_trained(source, options.trial), source
        return
    if (source.parent / MODEL_FILE).is_file():
        raise UserError(f"{source}: lies beside trained weights; give its folder, {source.parent}")
    if options.trial is not None:
        raise UserError(f"--trial {options.trial}: {source} is one recipe, and no search")
    from search.results.teachers import recipe_with_teacher
    from trainable.bundle.trained import trained_in
    from trainable.train import train

    recipe = recipe_with_teacher(read_named_recipe(source))
    if (words := of_pruned_network(source, recipe)) is not None:
        bench.say(words)
    tuning = _recipe(options, recipe)
    if options.distillation:
        _taught(options, tuning, source)
    data = _check_prunable(recipe, options.flops, bench)
    bench.say(
        f"{source}: a recipe, which is trained first ({counted(recipe.loop.epochs, 'epoch')}), for this "
        "comparison alone; `tunebook train RECIPE --out DIR`, then `tunebook shrink DIR`, keeps the whole "
        "network"
    )
    with temporary_folder() as folder:
        if train(recipe, data=data, out=folder, bench=bench).diverged:
            raise ShrinkFailed(f"{source}: the training diverged: there is nothing to prune")
        yield trained_in(folder), folder


def _check_prunable(recipe: Recipe, share: float, bench: Bench) -> DataSet:
    """Prune the untrained network of a recipe, so that no training is in vain; return the recipe's images.

    Raises ModelError.
    """
    from trainable.models.libraries import title_of
    from trainable.shrinking.prune import prune
    from trainable.train import images_of
    from trainable.training.network import make_network

    data = images_of(recipe, None, bench, own_model=False)
    info = data.info
    network = make_network(recipe.model.model_copy(update={"weights": None}), info, bench=bench)
    shape = (info.channels, info.image_size, info.image_size)
    prune(network, shape, share, title=title_of(recipe.model))
    return data


def _is_recipe(source: Path) -> bool:
    return source.is_file() and source.suffix in YAML_ENDINGS


def _check_numbers(options: ShrinkOptions) -> None:
    """Raise UserError for numbers that no pruning and no fine-tuning can have, before anything is loaded."""
    if not 0.0 < options.flops < 1.0:
        raise UserError(f"--flops {options.flops:g}: expected a share of the operations above 0 and below 1")
    factor = 1.0 if options.lr_factor is None else options.lr_factor
    if not 0.0 < factor < math.inf:
        raise UserError(f"--lr-factor {factor:g}: expected a number above 0, such as 0.3")


def _check_settings(options: ShrinkOptions) -> None:
    for path in _values(options):
        if path.split(".")[0] in FIXED:
            raise UserError(
                f"--set {path}: expected a field of the fine-tuning, such as optimizer.lr; "
                f"{', '.join(FIXED[1:4])} are those of the trained network"
            )
        if options.distillation and path in OF_THE_TEACHER:
            raise UserError(
                f"--set {path}: --distillation says that the teacher is the unpruned network; set "
                f"{SECTION}.weight, for example, or leave --distillation out"
            )


def _check_fields(options: ShrinkOptions) -> None:
    """Raise RecipeError for a setting of a field that the trained network's recipe has not."""
    source, values = options.source, _values(options)
    if (source / STUDY_FILE).exists():
        training = read_study(source / STUDY_FILE).base_recipe()
    else:
        training = read_named_recipe(source if _is_recipe(source) else source / RECIPE_FILE)
    if any(path.endswith(".kind") for path in values):
        return  # another kind has other fields; the recipe of the fine-tuning is checked later
    for path in values:
        if path.split(".")[0] != SECTION:
            training.get(path)


def _recipe(options: ShrinkOptions, training: Recipe) -> Recipe:
    """Return the recipe of the fine-tuning; with `--distillation` settings of its section are those of the
    second one. Raises RecipeError, and ModelError where the files of another teacher are missing."""
    from search.results.teachers import recipe_with_teacher
    from trainable.shrinking.fine_tuning import LR_FACTOR, fine_tuning

    factor = LR_FACTOR if options.lr_factor is None else options.lr_factor
    recipe = fine_tuning(training, epochs=options.epochs, lr_factor=factor)
    values = {path: value for path, value in _values(options).items() if not _is_of_teaching(options, path)}
    if not options.distillation and recipe.distillation is None and TEACHER not in values:
        for path in values:
            if path.startswith(f"{SECTION}."):
                raise UserError(
                    f"--set {path}: the fine-tuning learns from no teacher; with --distillation the unpruned "
                    f"network is its teacher, {TEACHER} names another one"
                )
    found = recipe_with_teacher(recipe.with_values(values))
    if found.distillation is not None:
        teacher_files(found.distillation)
    return found


def _taught(options: ShrinkOptions, recipe: Recipe, teacher: Path) -> Recipe:
    """Return the recipe of the fine-tuning that learns from a teacher, too. Raises RecipeError."""
    from trainable.shrinking.fine_tuning import taught_by

    values = {path: value for path, value in _values(options).items() if _is_of_teaching(options, path)}
    return taught_by(recipe, teacher).with_values(values)


def _effort(options: ShrinkOptions, recipe: Recipe, trained: Trained) -> str:
    runs = [f"{options.seeds} fine-tunings of {counted(recipe.loop.epochs, 'epoch')}"]
    if recipe.distillation is not None:
        runs[0] += f", taught by {recipe.distillation.teacher}"
    if options.distillation:
        runs.append("as many that learn from the unpruned network")
    if options.scratch:
        from trainable.shrinking.shrink import training_from_scratch

        epochs = training_from_scratch(trained).loop.epochs
        runs.append(f"{options.seeds} trainings of {counted(epochs, 'epoch')}")
    return ", and ".join(runs)


def _write(shrunk: Shrunk, found: ShrunkComparison, out: Path, *, replaces: bool) -> None:
    from trainable.shrinking.shrink import write_shrunk

    with moved_to(out, replaces=PRUNED_FILE if replaces else None) as folder:
        write_shrunk(shrunk, folder)
        write_whole(folder / METRICS_FILE, (_as_json(found) + "\n").encode())


def _show(found: ShrunkComparison, *, as_json: bool) -> None:
    if as_json:
        tell_json(_as_json(found))
        return
    from search.reporting.terminal import console

    console().print(found.scores_table())
    console().print(found.costs_table())
    tell(found.words())


def _as_json(found: ShrunkComparison) -> str:
    tree: dict[str, Any] = found.tree()
    return json.dumps(tree, indent=2, allow_nan=False)
