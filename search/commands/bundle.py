"""`tunebook bundle`: a trained network, a search's or one that `train --out` left, ready to ship."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from search.commands.options import BundleOptions, aside, tell_fields
from search.study import STUDY_FILE
from trainable.bench import Say, silent
from trainable.collector import loading_torch
from trainable.errors import UserError
from trainable.files.folders import check_new
from trainable.recipe.trained_files import MODEL_FILE, ONNX_FILE, RECIPE_FILE
from trainable.terminal import tell

if TYPE_CHECKING:  # torch takes seconds to import
    from trainable.bundle.trained import Trained
    from trainable.data.assembly import MakeData
    from trainable.models.own import BuildModel


def check_trained(folder: Path, trial: int | None) -> None:
    """Raise UserError for what is neither a search's folder nor one that `train --out` left."""
    if (folder / STUDY_FILE).exists():
        return
    if not (folder / RECIPE_FILE).exists():
        raise UserError(f"{folder}: {_expected(folder)}")
    if trial is not None:
        raise UserError(f"--trial {trial}: {folder} holds one trained recipe, and no search")


def find_trained(
    folder: Path, trial: int | None, *, model: BuildModel | None = None, data: MakeData | None = None
) -> Trained:
    """Return a trained network; of a search that of a trial, by default the best.

    `model` and `data` are the functions that a network and images of a person's own are made by. Raises
    UserError for anything else.
    """
    check_trained(folder, trial)
    if (folder / STUDY_FILE).exists():
        from search.learning.search import Search
        from search.results.trained_trial import trained_trial

        return trained_trial(Search(folder), trial, model=model, data=data)
    from trainable.bundle.trained import trained_in

    return trained_in(folder, model=model, data=data)


def _expected(path: Path) -> str:
    """Return in words what a path is that holds nothing trained, and what to do."""
    if path.is_file() and path.name in (MODEL_FILE, RECIPE_FILE):
        return f"is one file of several; give its folder, {quote(str(path.parent))}"
    if path.is_file():
        name = quote(str(path))
        return (
            "is a file, and a bundle is made of trained weights; for a recipe `tunebook train "
            f"{name} --out DIR`, then `tunebook bundle DIR -o OUT`"
        )
    wanted = (
        f"expected a search's folder (with {STUDY_FILE}), or one that `tunebook train --out` left (with "
        f"{RECIPE_FILE})"
    )
    if not path.exists():
        return f"no such folder; {wanted}"
    searches = sorted(each.name for each in path.iterdir() if (each / STUDY_FILE).exists())
    return f"{wanted}; in it are the searches {', '.join(searches)}" if searches else wanted


def run_bundle(options: BundleOptions) -> None:
    """Write the bundle to a new folder, and print what was checked. Raises UserError, ExportError among
    them."""
    out = options.out
    with aside(options.as_json):
        written_bundle(options, tell)
    if options.as_json:
        tell_fields({"bundle": str(out), "files": sorted(each.name for each in out.iterdir())})
    else:
        tell(f"bundle -> {out}")


def written_bundle(
    options: BundleOptions,
    say: Say = silent,
    *,
    model: BuildModel | None = None,
    data: MakeData | None = None,
) -> Path:
    """Write the bundle to a new folder, and return the folder; `model` and `data` are as in `find_trained`.
    Raises UserError, ExportError among them."""
    out = options.out
    check_new(out, "the bundle", ONNX_FILE if options.force else None)
    check_trained(options.folder, options.trial)
    with loading_torch():
        from trainable.bundle.write import write_bundle

    trained = find_trained(options.folder, options.trial, model=model, data=data)
    write_bundle(trained, out, say=say, replaces=options.force)
    return out
