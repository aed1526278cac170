"""Trains one recipe, without a search: `python -m trainable RECIPE.yaml`.

Exit codes: 0 done, 1 the run crashed or diverged, 2 the recipe, the data or the usage is wrong, 130 Ctrl-C.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    if not sys.flags.safe_path:
        del sys.path[0]  # the folder where it runs: what follows is imported from what is installed
    from trainable.imports import import_installed_alone

    import_installed_alone()

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import typer

from trainable.bench import bench_on
from trainable.collector import loading_torch
from trainable.debug_tools import tools_named
from trainable.errors import RunError, UserError
from trainable.files.folders import check_can_be_made
from trainable.models.network_names import read_named_recipe
from trainable.processes import ended_by_signals, ending_at_once
from trainable.recipe import Recipe
from trainable.recipe.data import refuse_missing
from trainable.recipe.trained_files import of_pruned_network, refuse_trained
from trainable.stages import shown_by
from trainable.terminal import StageLines, show_what_can_be_shown, tell, tell_json
from trainable.train_options import TrainOptions, recipe_with_options, taking_fields


def main(arguments: Sequence[str] | None = None) -> int:
    """Train as the command line says, and return the exit code."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(taking_fields(_train, TrainOptions))
    try:
        app(arguments, prog_name="python -m trainable")
    except SystemExit as ended:  # Typer ends with it at once, whatever was asked
        return int(ended.code or 0)
    return 0


def _train(options: TrainOptions) -> None:
    """Train one recipe, without a search."""
    try:
        with ended_by_signals(), StageLines() as lines, shown_by(lines):
            code = train_recipe(asked_recipe(options), options)
    except UserError as error:
        tell(f"error: {error}", sys.stderr)
        code = 2
    except KeyboardInterrupt:
        tell("interrupted", sys.stderr)
        code = 130
    raise typer.Exit(code)


def asked_recipe(options: TrainOptions) -> Recipe:
    """Return the recipe of a file, as options have changed it. Raises UserError for what can be known to be
    wrong before torch is imported."""
    written = read_named_recipe(options.recipe)
    recipe, debug = recipe_with_options(written, options), options.debug or ()
    check_training(recipe, debug, out=options.out, force=options.force, predict=options.predict)
    if (words := of_pruned_network(options.recipe, written)) is not None:
        tell(words, sys.stderr if options.as_json else None)
    return recipe


def check_training(
    recipe: Recipe,
    debug: Sequence[str] = (),
    *,
    out: Path | None = None,
    force: bool = False,
    predict: Path | None = None,
    own_images: bool = False,
) -> None:
    """Raise UserError for what can be known to be wrong with a training before torch is imported. Images of
    a person's own are not those of the recipe."""
    tools_named(debug)
    if not own_images:
        refuse_missing(recipe.data)
        from trainable.data.reading import refuse_no_images  # NumPy takes a while to import

        refuse_no_images(recipe.data, recipe.task)
    for option, folder in (("--out", out), ("--predict", predict)):
        if folder is not None:
            check_can_be_made(folder, option)
    if out is not None and not force:
        refuse_trained("--out", out)


def train_recipe(recipe: Recipe, options: TrainOptions) -> int:
    """Train the recipe of a file, as options have changed it, and print the result. Return 0 if it is done,
    1 if it crashed or diverged. Raises UserError."""
    with loading_torch():
        from trainable.summary import summary
        from trainable.train import train

    progress = partial(tell, to=sys.stderr if options.as_json else None)
    try:
        outcome = train(
            recipe,
            out=options.out,
            test=options.test,
            predict=options.predict,
            bench=bench_on(options.device, may_fetch=options.download, say=progress),
            debug=options.debug or (),
        )
    except RunError as error:
        tell(f"error: {error}", sys.stderr)
        return 1
    if options.as_json:
        tell_json(json.dumps(outcome.tree(), allow_nan=False))
    else:
        tell(summary(outcome))
    return 1 if outcome.diverged else 0


if __name__ == "__main__":
    show_what_can_be_shown()
    ending_at_once(lambda: sys.exit(main()))
