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

import argparse
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from trainable.bench import DeviceChoice, bench_on
from trainable.errors import RunError, UserError
from trainable.models.network_names import read_named_recipe
from trainable.processes import ended_by_signals, ending_at_once
from trainable.recipe import Recipe
from trainable.recipe.trained_files import of_pruned_network, refuse_trained
from trainable.recipe.yamlfile import with_settings
from trainable.summary import summary
from trainable.terminal import show_what_can_be_shown, tell, tell_json
from trainable.train import train
from trainable.train_options import TrainOptions, recipe_values


def main(arguments: Sequence[str] | None = None) -> int:
    """Train as the command line says, and return the exit code."""
    options = TrainOptions(**vars(_parser().parse_args(arguments)))
    try:
        with ended_by_signals():
            written, settings = read_named_recipe(options.recipe), options.settings or ()
            recipe = with_settings(written, settings, recipe_values(options, written.task))
            if options.out is not None and not options.force:
                refuse_trained("--out", options.out)
            return train_recipe(recipe, options)
    except UserError as error:
        tell(f"error: {error}", sys.stderr)
        return 2
    except KeyboardInterrupt:
        tell("interrupted", sys.stderr)
        return 130


def train_recipe(recipe: Recipe, options: TrainOptions) -> int:
    """Train the recipe of a file, as options have changed it, and print the result. Return 0 if it is done,
    1 if it crashed or diverged. Raises UserError."""
    progress = partial(tell, to=sys.stderr if options.as_json else None)
    if (words := of_pruned_network(options.recipe, read_named_recipe(options.recipe))) is not None:
        progress(words)
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m trainable", description="Train one recipe.")
    parser.add_argument("recipe", type=Path, metavar="RECIPE.yaml")
    parser.add_argument("--data", metavar="PATH", help="the images, in place of the recipe's data.path")
    parser.add_argument("--model", metavar="NAME", help="the network, in place of the recipe's")
    parser.add_argument("--weights", metavar="PATH", help="its pretrained weights, or none")
    parser.add_argument("--image-size", type=int, metavar="N", help="scale images to N times N pixels")
    parser.add_argument("--seed", type=int, metavar="N", help="in place of the recipe's loop.seed")
    parser.add_argument("--device", type=DeviceChoice, choices=list(DeviceChoice), help="where to train")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="leave model.safetensors, metrics.json and recipe.yaml here"
    )
    parser.add_argument("--force", action="store_true", help="overwrite an earlier result in --out")
    parser.add_argument("--test", action="store_true", help="score the test part, with a confusion matrix")
    parser.add_argument(
        "--predict",
        type=Path,
        metavar="DIR",
        help="write the masks that a segmentation predicts for the test images (or validation's) here",
    )
    parser.add_argument(
        "--download",
        action="store_true",
        help="let torchvision and timm fetch data sets and published weights",
    )
    parser.add_argument(
        "--json", dest="as_json", action="store_true", help="print one line of JSON at the end"
    )
    parser.add_argument(
        "--debug",
        action="append",
        metavar="TOOL",
        help="profile: record some steps; anomaly: stop at the first nan in a gradient; may be repeated",
    )
    parser.add_argument(
        "--set",
        dest="settings",
        action="append",
        metavar="PATH=VALUE",
        help="set a recipe's field",
    )
    return parser


if __name__ == "__main__":
    show_what_can_be_shown()
    ending_at_once(lambda: sys.exit(main()))
