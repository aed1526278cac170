"""The commands as functions: they take what the commands' options take, and return what these print."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from search.results.search import Search
from trainable.bench import Bench
from trainable.errors import UserError
from trainable.extras import needing_run
from trainable.recipe import Recipe
from trainable.terminal import GIB

if TYPE_CHECKING:  # torch and MLflow take seconds to import
    from torch import nn

    from search.commands.inputs import Target
    from search.commands.options import InputOptions
    from search.followers.audit import Audit
    from search.followers.rename_delete import SearchExtent
    from search.learning.refine import Refined
    from search.record.listing import ListedSearch
    from search.results.export import Exported
    from search.study import Study
    from spaces.catalog.explain import Row
    from trainable.checks.finding import Finding
    from trainable.data import DataSet
    from trainable.data.assembly import MakeData
    from trainable.models.own import BuildModel
    from trainable.outcome import Outcome
    from trainable.probes.batch_find import BatchFound
    from trainable.probes.lr_find import LrBand
    from trainable.training.extra_metrics import Own

Settings = Mapping[str, Any]  # values by dotted path, as `--set` gives them: {"optimizer.lr": 0.1}


@needing_run("tunebook.show")
def show(folder: str | Path) -> Search:
    """Return the search in a folder or at a URI, as it is now."""
    return Search(folder)


@needing_run("tunebook.train")
def train(  # noqa: PLR0913 - a person types these by name
    recipe: Recipe | str | Path,
    *,
    data: str | DataSet | MakeData | None = None,
    model: nn.Module | BuildModel | None = None,
    metrics: Own | None = None,
    settings: Settings | None = None,
    out: str | Path | None = None,
    test: bool = False,
    predict: str | Path | None = None,
    download: bool = False,
    debug: Sequence[str] = (),
) -> Outcome:
    """Train a recipe, or that of a YAML file; return its epochs, scores and diagnosis.

    `data` and `model` are a path, images or a network, or functions that make them; `out` is a folder for
    `model.safetensors`, `metrics.json` and `recipe.yaml`; `test` scores the test part. Each epoch is a line
    on the terminal. Raises UserError before training if the run is impossible, and RunError for a crash.
    """
    from search.results.teachers import recipe_with_teacher
    from trainable.models.network_names import read_named_recipe
    from trainable.recipe.yamlfile import with_settings
    from trainable.terminal import tell
    from trainable.train import train as train_recipe

    whole = recipe if isinstance(recipe, Recipe) else read_named_recipe(recipe)
    path = {"data.path": data} if isinstance(data, str) else {}
    return train_recipe(
        recipe_with_teacher(with_settings(whole, _texts(settings), path)),
        data=None if isinstance(data, str) else data,
        model=model,
        out=out,
        test=test,
        predict=predict,
        bench=Bench(may_fetch=download, say=tell),
        metrics=metrics,
        debug=debug,
    )


@needing_run("tunebook.check")
def check(  # noqa: PLR0913 - a person types these by name
    target: Recipe | str | Path,
    *,
    data: DataSet | None = None,
    model: nn.Module | None = None,
    settings: Settings | None = None,
    full: bool = False,
    seconds: float | None = None,
    debug: Sequence[str] = (),
    download: bool = False,
) -> list[Finding]:
    """Check a recipe, a study, a search or data before hours are spent on them; return what was found.

    A Recipe may come with images and a network of your own. Raises UserError where the images cannot be read.
    """
    from trainable.check import SECONDS
    from trainable.check import check as check_recipe
    from trainable.training.devices import threads

    limit, bench = SECONDS if seconds is None else seconds, Bench(may_fetch=download)
    if isinstance(target, Recipe):
        changed = target.with_values(settings or {})
        return check_recipe(
            changed, data=data, model=model, bench=bench, full=full, debug=debug, seconds=limit
        )
    if data is not None or model is not None:
        raise UserError("check: data= and model= go with a Recipe; give one in place of a path")
    found = _loaded(target, settings, bench)
    with threads(found.threads) as cpus:
        return check_recipe(
            found.recipe, data=found.data, bench=found.bench, full=full, debug=debug, seconds=limit, cpus=cpus
        )


@needing_run("tunebook.explain")
def explain(
    target: Recipe | Study | str | Path,
    *,
    settings: Settings | None = None,
    everything: bool = False,
    download: bool = False,
) -> list[Row]:
    """Return every range of a study or a search, or every value of a recipe, with its reason and source.

    Data alone stand for their default study. `everything` adds the fixed fields of a study or a search.
    """
    from search.commands.explain import explained_rows
    from search.commands.named import named_input

    if isinstance(target, str | Path):
        named = named_input(_input(target, settings))
    elif settings:
        named = target.with_values(settings)
    else:
        named = target
    return explained_rows(named, everything, Bench(may_fetch=download))


@needing_run("tunebook.export")
def export(source: str | Path, out: str | Path | None = None, *, trial: int | None = None) -> Exported:
    """Return a search's best recipe, or a trial's, or that of a file, with its provenance and the reason of
    each value; write it as YAML to `out`."""
    from search.commands.options import on_this_machine
    from search.results.export import exported, exported_file

    path = on_this_machine(str(source))
    if path.is_file() and trial is not None:
        raise UserError(f"export: trial={trial}: {source} is a recipe; only a search has trials")
    found = exported_file(path) if path.is_file() else exported(Search(path), trial)
    if out is not None:
        found.write(Path(out))
    return found


@needing_run("tunebook.bundle")
def bundle(
    folder: str | Path,
    out: str | Path,
    *,
    trial: int | None = None,
    model: BuildModel | None = None,
    data: MakeData | None = None,
) -> Path:
    """Write a trained network, a search's or one that `train` left, to a new folder, ready to ship; return
    the folder.

    `model` and `data` are the functions that a network and images of your own are made by.
    """
    from search.commands.bundle import find_trained
    from search.commands.options import on_this_machine
    from trainable.bundle.write import write_bundle
    from trainable.files.folders import check_new

    path, new = on_this_machine(str(folder)), Path(out)
    check_new(new, "the bundle")
    write_bundle(find_trained(path, trial, model=model, data=data), new)
    return new


@needing_run("tunebook.refine")
def refine(folder: str | Path, out: str | Path | None = None) -> Refined:
    """Audit a search that has ended; return its findings and the next study, which is written to `out` where
    there is one."""
    from search.learning.refine import refine as refined
    from search.learning.refine import write_next

    if out is not None and Path(out).exists():
        raise UserError(f"{out}: exists; give the next study another name, or remove it first")
    found = refined(Search(folder))
    if out is not None:
        write_next(found, Path(out))
    return found


@needing_run("tunebook.report")
def report(folder: str | Path, out: str | Path | None = None, *, compare: Sequence[str | Path] = ()) -> Path:
    """Write a search's report, beside other searches, to FILE.html or FILE.json, or both to its folder;
    return the file."""
    from search.reporting.gather import report_of
    from search.reporting.page import write_as, write_report

    found = Search(folder)
    written = report_of(found, [Search(each) for each in compare])
    return write_report(found, written) if out is None else write_as(Path(out), written)


@needing_run("tunebook.audit")
def audit(folder: str | Path) -> Audit:
    """Compare a search's journal with MLflow, optuna.db and the checkpoints; return where they differ."""
    from search.followers.audit import audit as compared

    return compared(Search(folder))


@needing_run("tunebook.sync")
def sync(folder: str | Path) -> bool:
    """Send to MLflow, and to an object store, what could not be sent; return whether nothing is left."""
    from search.commands.guests import sync as send
    from search.record.storage import local_folder

    return send(local_folder(str(folder)))


@needing_run("tunebook.lr_find")
def lr_find(
    target: str | Path,
    *,
    settings: Settings | None = None,
    steps: int = 100,
    sweeps: int = 3,
    download: bool = False,
) -> LrBand:
    """Return the band of learning rates at which the first steps of a recipe, or of data, train well."""
    from search.commands.probes import run_of
    from trainable.probes.lr_find import lr_find as swept

    found = _loaded(target, settings, Bench(may_fetch=download))
    with run_of(found) as (run, _):
        return swept(run, steps=steps, sweeps=sweeps)


@needing_run("tunebook.batch_find")
def batch_find(
    target: str | Path,
    *,
    settings: Settings | None = None,
    limit_gib: float | None = None,
    download: bool = False,
) -> BatchFound:
    """Return the largest micro-batch of a recipe, or of data, that fits into memory, and what is as fast."""
    from search.commands.probes import run_of
    from trainable.probes.batch_find import batch_find as fitted

    found = _loaded(target, settings, Bench(may_fetch=download))
    with run_of(found) as (run, _):
        return fitted(run, limit_bytes=None if limit_gib is None else round(limit_gib * GIB))


@needing_run("tunebook.list_searches")
def list_searches(storage: str | Path = "searches") -> list[ListedSearch]:
    """Return the searches of a storage, a folder or a URI, the latest first."""
    from search.record.listing import searches_in

    return searches_in(str(storage))


@needing_run("tunebook.rename")
def rename(folder: str | Path, name: str) -> Path:
    """Give a search another name, in its storage and in MLflow; return its new folder."""
    from search.followers.rename_delete import rename_search

    return rename_search(Path(folder), name)


@needing_run("tunebook.delete")
def delete(folder: str | Path) -> SearchExtent:
    """Delete a search with its runs in MLflow, unasked; return what it consisted of."""
    from search.commands.options import on_this_machine
    from search.followers.rename_delete import delete_search

    return delete_search(on_this_machine(str(folder)))


@needing_run("tunebook.open_report")
def open_report(folder: str | Path) -> None:
    """Open a search's report in the browser; it is written first where it is missing or old."""
    from search.commands.options import on_this_machine
    from search.commands.report import open_report as opened

    opened(on_this_machine(str(folder)))


def _input(target: str | Path, settings: Settings | None) -> InputOptions:
    from search.commands.options import InputOptions

    return InputOptions(file=str(target), settings=_texts(settings))


def _loaded(target: str | Path, settings: Settings | None, bench: Bench) -> Target:
    """Return what a path names, with its images loaded."""
    from search.commands.inputs import load_target
    from search.commands.named import input_with_images

    options = _input(target, settings)
    return load_target(input_with_images(options), options.file, bench=bench)


def _texts(settings: Settings | None) -> list[str]:
    """Return settings as a command line has them."""
    return [f"{path}={json.dumps(value)}" for path, value in (settings or {}).items()]
