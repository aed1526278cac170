"""The commands as functions: they take what the commands' options take, and return what these print.

What a function calls its `target` is a Recipe, a Study, a mapping of a study's fields, or the path of a
recipe, a study, a search or images. Where one recipe is needed, all but a recipe stand for their first trial.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from search.commands.asked import as_typed
from search.commands.options import function_of_command, within_limits
from search.results.search import Search
from trainable.bench import DeviceChoice, bench_on
from trainable.collector import load_torch
from trainable.errors import UserError
from trainable.recipe import Recipe

if TYPE_CHECKING:  # torch and MLflow take seconds to import
    from torch import nn

    from search.commands.inputs import Target
    from search.commands.named import AnyInput
    from search.commands.options import InputOptions
    from search.facts.backbones import Candidate
    from search.followers.audit import Audit
    from search.followers.rename_delete import SearchExtent
    from search.jobs.client import Job
    from search.learning.refine import Refined
    from search.record.listing import ListedSearch
    from search.results.export import Exported
    from search.retraining.shrunk import ShrunkComparison
    from search.study import Study
    from spaces.catalog.explain import Row
    from spaces.rules.backbones import BackboneSize
    from trainable.checks.finding import Finding
    from trainable.data import DataSet
    from trainable.data.assembly import MakeData
    from trainable.models.own import BuildModel
    from trainable.outcome import Outcome
    from trainable.probes.batch_find import BatchFound
    from trainable.probes.lr_find import LrBand
    from trainable.training.extra_metrics import Own

Choice = TypeVar("Choice", bound=StrEnum)
DeviceName = Literal["auto", "cpu", "cuda"]
FormatName = Literal["tunebook", "timm", "torchvision", "paddleclas", "script"]
Settings = Mapping[str, Any]  # values by dotted path, as `--set` gives them: {"optimizer.lr": 0.1}


@function_of_command
def show(folder: str | Path) -> Search:
    """Return the search in a folder or at a URI, as it is now."""
    return Search(folder)


@function_of_command
def train(  # noqa: PLR0913 - a person types these by name
    recipe: Recipe | str | Path,
    *,
    data: str | Path | DataSet | MakeData | None = None,
    model: nn.Module | BuildModel | None = None,
    metrics: Own | None = None,
    settings: Settings | None = None,
    out: str | Path | None = None,
    force: bool = False,
    test: bool = False,
    predict: str | Path | None = None,
    device: DeviceName | None = None,
    download: bool = False,
    debug: str | Sequence[str] = (),
) -> Outcome:
    """Train a recipe, or that of a YAML file; return its epochs, scores and diagnosis.

    `data` is a path, a DataSet, or a function that returns images; `model` is a network, or a function that
    builds one; `out` is a folder for `model.safetensors`, `metrics.json` and `recipe.yaml`, whose earlier
    ones `force` replaces; `test` scores the test part. Each epoch is a line on the terminal. Raises UserError
    before training if the run is impossible, and RunError for a crash.
    """
    from trainable.__main__ import check_training
    from trainable.models.network_names import read_named_recipe
    from trainable.recipe.trained_files import of_pruned_network
    from trainable.terminal import tell
    from trainable.train_options import DataOptions, recipe_with_options

    written = recipe if isinstance(recipe, Recipe) else read_named_recipe(recipe)
    path, images = (str(data), None) if isinstance(data, str | Path) else (None, data)
    changed = recipe_with_options(written, DataOptions(data=path, settings=as_typed(settings)))
    tools, own_images = _listed(debug), images is not None
    folder, masks = _path(out), _path(predict)
    check_training(changed, tools, out=folder, force=force, predict=masks, own_images=own_images)
    if not isinstance(recipe, Recipe) and (words := of_pruned_network(Path(recipe), written)) is not None:
        tell(words)
    load_torch()
    from search.results.teachers import recipe_with_teacher
    from trainable.train import train as train_recipe

    return train_recipe(
        recipe_with_teacher(changed),
        data=images,
        model=model,
        out=out,
        test=test,
        predict=predict,
        bench=bench_on(_device(device), may_fetch=download, say=tell),
        metrics=metrics,
        debug=tools,
    )


@function_of_command
def check(  # noqa: PLR0913 - a person types these by name
    target: AnyInput,
    *,
    data: DataSet | None = None,
    model: nn.Module | None = None,
    settings: Settings | None = None,
    full: bool = False,
    seconds: float | None = None,
    debug: str | Sequence[str] = (),
    device: DeviceName | None = None,
    download: bool = False,
) -> list[Finding]:
    """Check a recipe, a study, a search or data before hours are spent on them; return what was found.

    A Recipe may come with images and a network of your own. What is found about all other images is kept for
    later searches of them, as by `tunebook check`. Raises UserError where the images cannot be read.
    """
    from search.commands.check import findings_of
    from search.commands.options import CheckOptions

    tools = _listed(debug)
    options = CheckOptions(**_of_all(settings, device, download), full=full, seconds=seconds, debug=tools)
    if data is None and model is None:
        return [*findings_of(_loaded(target, options), options)]
    if not isinstance(target, Recipe):
        raise UserError("check: data= and model= go with a Recipe; give one in place of what names images")
    from search.results.teachers import recipe_with_teacher
    from trainable.check import SECONDS
    from trainable.check import check as check_recipe
    from trainable.train_options import recipe_with_options

    return check_recipe(
        recipe_with_teacher(recipe_with_options(target, options)),
        data=data,
        model=model,
        bench=bench_on(options.device, may_fetch=download),
        full=full,
        debug=tools,
        seconds=SECONDS if seconds is None else seconds,
    )


@function_of_command
def explain(
    target: AnyInput,
    *,
    settings: Settings | None = None,
    everything: bool = False,
    device: DeviceName | None = None,
    download: bool = False,
) -> list[Row]:
    """Return every range of a study or a search, or every value of a recipe, with its reason and source.

    Data alone stand for their default study. `everything` adds the fixed fields of a study or a search.
    """
    from search.commands.explain import explained_rows
    from search.commands.inputs import with_teachers
    from search.commands.named import input_given
    from search.commands.options import InputOptions, bench_of

    options = InputOptions(**_of_all(settings, device, download))
    return explained_rows(with_teachers(input_given(target, options)), everything, bench_of(options))


@function_of_command
def export(  # noqa: PLR0913 - a person types these by name
    source: str | Path,
    out: str | Path | None = None,
    *,
    trial: int | None = None,
    simplify: bool = False,
    finalize: bool = False,
    seeds: int | None = None,
    verify: int | None = None,
    format: FormatName = "tunebook",
    bare: bool = False,
    gpus: int | None = None,
    batch: int | None = None,
    images: str | Path | None = None,
    force: bool = False,
    device: DeviceName | None = None,
    download: bool = False,
) -> Exported:
    """Return a search's best recipe, or a trial's, or that of a file, with its provenance and the reason of
    each value; write it to `out`, as YAML or in another program's `format`.

    `simplify` leaves out what gains nothing, `finalize` chooses weights and views, `verify` trains it so many
    times and scores the test part: `.recipe.provenance.verification` says what came out.
    """
    from search.commands.export import asked_export
    from search.commands.options import ExportFormat, ExportOptions, search_or_recipe

    options = ExportOptions(
        source=search_or_recipe(str(source)),
        out=_path(out),
        trial=trial,
        simplify=simplify,
        finalize=finalize,
        seeds=seeds,
        verify=verify,
        form=_choice(ExportFormat, "format", format),
        bare=bare,
        gpus=gpus,
        batch=batch,
        images=_path(images),
        force=force,
        device=_device(device),
        download=download,
    )
    return asked_export(within_limits(options))


@function_of_command
def bundle(  # noqa: PLR0913 - a person types these by name
    folder: str | Path,
    out: str | Path,
    *,
    trial: int | None = None,
    model: BuildModel | None = None,
    data: MakeData | None = None,
    force: bool = False,
) -> Path:
    """Write a trained network, a search's or one that `train` left, to a new folder, ready to ship; return
    the folder.

    `model` and `data` are the functions that a network and images of your own are made by.
    """
    from search.commands.bundle import written_bundle
    from search.commands.options import BundleOptions, on_this_machine

    options = BundleOptions(folder=on_this_machine(str(folder)), out=Path(out), trial=trial, force=force)
    return written_bundle(options, model=model, data=data)


@function_of_command
def shrink(  # noqa: PLR0913 - a person types these by name
    source: str | Path,
    out: str | Path | None = None,
    *,
    flops: float = 0.5,
    epochs: int | None = None,
    lr_factor: float | None = None,
    seeds: int = 3,
    trial: int | None = None,
    test: bool = False,
    scratch: bool = False,
    distillation: bool = False,
    settings: Settings | None = None,
    force: bool = False,
    device: DeviceName | None = None,
    download: bool = False,
) -> ShrunkComparison:
    """Prune a trained network's channels to a share of its operations and fine-tune it; return what that lost
    and spared. `out` is a new folder for the pruned network.

    `source` is a folder that `train` left, a search's, or a recipe, which is trained first.
    """
    from search.commands.options import ShrinkOptions, on_this_machine
    from search.commands.shrink import shrunk_network

    options = ShrinkOptions(
        source=on_this_machine(str(source)),
        flops=flops,
        epochs=epochs,
        lr_factor=lr_factor,
        seeds=seeds,
        out=_path(out),
        trial=trial,
        test=test,
        scratch=scratch,
        distillation=distillation,
        force=force,
        device=_device(device),
        settings=as_typed(settings),
        download=download,
    )
    return shrunk_network(within_limits(options))


@function_of_command
def backbones(  # noqa: PLR0913 - a person types these by name
    target: AnyInput,
    out: str | Path | None = None,
    *,
    models: str | Sequence[str] = (),
    size: BackboneSize | None = None,
    weights: str | Path | None = None,
    settings: Settings | None = None,
    force: bool = False,
    device: DeviceName | None = None,
    download: bool = False,
) -> list[Candidate]:
    """Compare pretrained networks on the images of a study, or on images, by linear heads on their frozen
    features; return what was measured of each, the best first. `out` is a new file for the study of the best
    three.

    `models` are timm's names, `size` one of its lists, `weights` a folder with NAME.safetensors of each.
    """
    from search.commands.backbones import compared_backbones, write_next_study
    from search.commands.named import input_given
    from search.commands.options import BackbonesOptions

    options = BackbonesOptions(
        **_of_all(settings, device, download),
        models=_listed(models),
        size=size,
        weights=None if weights is None else str(weights),
        out=_path(out),
        force=force,
    )
    study, found = compared_backbones(input_given(target, options), options)
    write_next_study(study, found, options)
    return found


@function_of_command
def refine(folder: str | Path, out: str | Path | None = None, *, force: bool = False) -> Refined:
    """Audit a search that has ended; return its findings and the next study, which is written to `out` where
    there is one."""
    from search.commands.options import RefineOptions, search_folder
    from search.commands.refine import refined_search

    return refined_search(RefineOptions(folder=search_folder(str(folder)), out=_path(out), force=force))


@function_of_command
def report(
    folder: str | Path,
    out: str | Path | None = None,
    *,
    compare: str | Path | Sequence[str | Path] = (),
    force: bool = False,
) -> Path:
    """Write a search's report, beside other searches, to FILE.html or FILE.json, or both to its folder;
    return the file."""
    from search.commands.options import ReportOptions, search_folder
    from search.commands.report import written_report

    where, out = search_folder(str(folder)), _path(out)
    return written_report(ReportOptions(folder=where, out=out, compare=_listed(compare), force=force))


@function_of_command
def audit(folder: str | Path) -> Audit:
    """Compare a search's journal with MLflow, optuna.db and the checkpoints; return where they differ."""
    from search.followers.audit import audit as compared

    return compared(Search(folder))


@function_of_command
def sync(folder: str | Path) -> bool:
    """Send to MLflow, and to an object store, what could not be sent; return whether nothing is left."""
    from search.commands.guests import sync as send
    from search.commands.options import search_folder

    return send(search_folder(str(folder)))


@function_of_command
def ui(folder: str | Path, *, port: int = 5000) -> None:
    """Serve MLflow's pages on a search's runs at http://127.0.0.1:PORT, until Ctrl-C; print their addresses.

    Where a server holds the runs, its addresses are printed, and nothing is served.
    """
    from search.commands.options import UiOptions, search_folder
    from search.commands.ui import serve

    options = within_limits(UiOptions(folder=search_folder(str(folder)), port=port))
    serve(options.folder, options.port)


@function_of_command
def lr_find(  # noqa: PLR0913 - a person types these by name
    target: AnyInput,
    out: str | Path | None = None,
    *,
    settings: Settings | None = None,
    steps: int = 100,
    sweeps: int = 3,
    force: bool = False,
    device: DeviceName | None = None,
    download: bool = False,
) -> LrBand:
    """Return the band of learning rates at which the first steps of a recipe train well; write it
    to `out`, whose name ends with .png, .html or .json."""
    from search.commands.options import LrFindOptions
    from search.commands.probes import rates_of

    options = LrFindOptions(
        **_of_all(settings, device, download),
        steps=steps,
        sweeps=sweeps,
        out=_path(out),
        force=force,
    )
    return rates_of(_loaded(target, options), options).found


@function_of_command
def batch_find(
    target: AnyInput,
    *,
    settings: Settings | None = None,
    limit_gib: float | None = None,
    device: DeviceName | None = None,
    download: bool = False,
) -> BatchFound:
    """Return the largest micro-batch of a recipe that fits into memory, and the smallest that is as fast."""
    from search.commands.options import BatchFindOptions
    from search.commands.probes import sizes_of

    options = BatchFindOptions(**_of_all(settings, device, download), limit_gib=limit_gib)
    return sizes_of(_loaded(target, options), options).found


@function_of_command
def list_searches(storage: str | Path = "searches") -> list[ListedSearch]:
    """Return the searches of a storage, a folder or a URI, the latest first."""
    from search.record.listing import searches_in

    return searches_in(str(storage))


@function_of_command
def rename(folder: str | Path, name: str) -> Path:
    """Give a search another name, in its storage and in MLflow; return its new folder."""
    from search.commands.options import search_folder
    from search.followers.rename_delete import rename_search

    return rename_search(search_folder(str(folder)), name)


@function_of_command
def delete(folder: str | Path) -> SearchExtent:
    """Delete a search with its runs in MLflow, unasked; return what it consisted of."""
    from search.commands.options import search_folder
    from search.followers.rename_delete import delete_search, extent_of

    searched = search_folder(str(folder))
    extent = extent_of(searched)
    delete_search(searched)
    return extent


@function_of_command
def open_report(folder: str | Path) -> Path:
    """Open a search's report in the browser, and return its file; it is written first where it is missing or
    old."""
    from search.commands.options import search_folder
    from search.commands.report import open_report as opened

    return opened(search_folder(str(folder)))


@function_of_command
def submit(
    study: Study | Mapping[str, Any] | str | Path,
    *,
    address: str,
    settings: Settings | None = None,
    env: str | Sequence[str] = (),
    download: bool = False,
) -> str:
    """Search on a Ray cluster, as a job that needs this machine no more; return the job's name.

    `address` is the dashboard of the cluster's head, http://HEAD:8265; `env` are environment variables to
    pass on, NAME or NAME=VALUE. Submitted again, the same study goes on where it stopped.
    """
    from search.commands.asked import settings_of, study_asked, study_given
    from search.jobs import commands

    values = settings_of(as_typed(settings))
    asked = study_asked(Path(study), values) if isinstance(study, str | Path) else study_given(study, values)
    return commands.submit(asked, address, environment=_listed(env), may_fetch=download)


@function_of_command
def status(job: str | None = None, *, address: str) -> list[Job]:
    """Return the searches that were submitted to a cluster, the latest first, or one of them."""
    from search.jobs import commands

    return commands.submitted(address, job)


@function_of_command
def stop(job: str, *, address: str) -> str:
    """Stop a submitted search cleanly, and wait for it; return its state, such as STOPPED."""
    from search.jobs import commands

    return commands.stop(address, job)


@function_of_command
def logs(job: str, *, address: str) -> str:
    """Return what a submitted search has printed so far."""
    from search.jobs import commands

    return commands.printed(address, job)


@function_of_command
def fetch(job: str, out: str | Path | None = None, *, address: str, folder: str | None = None) -> Path:
    """Copy the best recipe, the report and the journal of a submitted search to a new folder, by default
    ./NAME; return it.

    `folder` is the search's on the cluster, for a job that `submit` did not start.
    """
    from search.jobs import commands

    return commands.fetch(address, job, _path(out), folder)


def _of_all(settings: Settings | None, device: DeviceName | None, download: bool) -> dict[str, Any]:
    """Return the options of all commands that read images."""
    return {"settings": as_typed(settings), "device": _device(device), "download": download}


def _loaded(target: AnyInput, options: InputOptions) -> Target:
    """Return what is given, with its images loaded. Raises UserError, also for a number out of its limits."""
    from search.commands.inputs import load_target
    from search.commands.named import input_given, needing_images
    from search.commands.options import bench_of

    within_limits(options)
    named, file = input_given(target, options), str(target) if isinstance(target, str | Path) else None
    return load_target(needing_images(named), file, bench=bench_of(options))


def _device(name: DeviceName | None) -> DeviceChoice | None:
    return None if name is None else _choice(DeviceChoice, "device", name)


def _choice(kind: type[Choice], name: str, value: str) -> Choice:
    if value not in (known := [str(each) for each in kind]):
        raise UserError(f"{name}={value!r}: expected {', '.join(known[:-1])} or {known[-1]}")
    return kind(value)


def _listed(given: str | Path | Sequence[str | Path]) -> list[str]:
    """Return what may be given alone or in a list: a text alone is not a list of its letters."""
    return [str(each) for each in ([given] if isinstance(given, str | Path) else given)]


def _path(path: str | Path | None) -> Path | None:
    return None if path is None else Path(path)
