"""Defines the commands for a search that exists: shown, compared, exported, refined."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from search.commands.options import (
    FAILED,
    IMPORTS,
    Address,
    Download,
    Folder,
    Json,
    SearchOrRecipe,
    exit_with,
    on_this_machine,
)
from trainable.collector import paused
from trainable.errors import UserError
from trainable.stages import stage
from trainable.terminal import tell


def show(folder: Folder, json: Json = False) -> None:
    """Show a search: its trials, the best one, what pruning saved."""
    from search.results import report
    from search.results.search import Search

    report.show(Search(folder), as_json=json)


def report(
    folder: Folder,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="FILE", help="FILE.html, or FILE.json; default: both, in DIR."),
    ] = None,
    compare: Annotated[
        list[str] | None,
        typer.Option("--compare", metavar="DIR", help="Another search, beside this one; may be repeated."),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Serve the page at 127.0.0.1, and follow the search.")
    ] = False,
    port: Annotated[int, typer.Option(help="Port of --watch.", min=1, max=65535)] = 5050,
    json: Json = False,
) -> None:
    """Write a search's report: one page, for any browser, that needs no network."""
    from search.commands import report as reports

    if watch and (json or out is not None):
        raise UserError("--watch serves the page; leave out --json and -o")
    compared = [on_this_machine(each) for each in compare or ()]
    if watch:
        reports.watch(folder, port, compared)
    else:
        reports.run_report(folder, out, compared, as_json=json)


def ui(
    folder: Folder, port: Annotated[int, typer.Option(help="Port of the page.", min=1, max=65535)] = 5000
) -> None:
    """Open MLflow's pages on the search's runs, at http://127.0.0.1:PORT."""
    from search.commands.ui import serve

    raise typer.Exit(serve(folder, port))


def sync(folder: Folder) -> None:
    """Send to MLflow, and to an object store, what could not be sent while the search ran."""
    with paused():
        from search.running import driver

    raise typer.Exit(0 if driver.sync(folder) else FAILED)


def audit(folder: Folder) -> None:
    """Compare the journal with MLflow, optuna.db and the checkpoints: is every epoch in each, once?"""
    from search.results.audit import audit as compare
    from search.results.search import Search

    found = compare(Search(folder))
    tell(str(found))
    raise typer.Exit(FAILED if found.differences else 0)


def audit_pruning(
    folder: Folder,
    share: Annotated[
        float,
        typer.Option(help="The share of each rung's stopped trials to train to their end.", min=0, max=1),
    ] = 0.1,
    address: Address = None,
    download: Download = False,
) -> None:
    """Train a sample of the stopped trials to their end: would a better one have been among them?"""
    with stage(IMPORTS), paused():
        from search.running import driver

    exit_with(driver.audit_pruning(folder, share, address=address, download=download))


class Format(StrEnum):
    """Names the formats that `export` writes."""

    TUNEBOOK = "tunebook"
    TIMM = "timm"
    TORCHVISION = "torchvision"
    PADDLECLAS = "paddleclas"
    SCRIPT = "script"


def export(
    source: SearchOrRecipe,
    out: Annotated[Path, typer.Option("-o", "--out", metavar="FILE", help="The file to write.")],
    trial: Annotated[int | None, typer.Option(help="A trial's id; default: the best one.")] = None,
    simplify: Annotated[
        bool, typer.Option("--simplify", help="Leave out what gains nothing: each technique off in turn.")
    ] = False,
    finalize: Annotated[
        bool,
        typer.Option("--finalize", help="Choose raw or averaged weights, and views at test, by validation."),
    ] = False,
    seeds: Annotated[
        int | None,
        typer.Option(help="Runs of each variant, for --simplify and --finalize; default: 3.", min=2),
    ] = None,
    verify: Annotated[
        int | None,
        typer.Option(metavar="N", help="Train it N times from the file alone; score the test part.", min=3),
    ] = None,
    form: Annotated[
        Format, typer.Option("--format", help="Another program's format, or one script in PyTorch.")
    ] = Format.TUNEBOOK,
    gpus: Annotated[int | None, typer.Option(help="Move the recipe to so many GPUs.", min=1)] = None,
    batch: Annotated[
        int | None, typer.Option(help="Move it to this effective batch, over all GPUs.", min=1)
    ] = None,
    images: Annotated[
        Path | None,
        typer.Option(metavar="NEW_DIR", help="Write the parts of the data there too, as class folders."),
    ] = None,
    download: Download = False,
) -> None:
    """Write a trial's recipe with its provenance as YAML, or for another program, or for other hardware."""
    from search.commands.export import run_export

    run_export(
        source,
        out,
        trial,
        seeds=seeds,
        simplified=simplify,
        finalized=finalize,
        verified=verify,
        form=form.value,
        gpus=gpus,
        batch=batch,
        images=images,
        download=download,
    )


def bundle(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            parser=on_this_machine,
            help="A search's folder or URI, or a folder that `train --out` left.",
        ),
    ],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="DIR", help="The new folder to write.")],
    trial: Annotated[int | None, typer.Option(help="A trial's id; default: the best one.")] = None,
) -> None:
    """Write a trained network, ready to ship: ONNX, torch.export, timm, a script and a model card."""
    from search.commands.bundle import run_bundle

    run_bundle(folder, out, trial)


def refine(
    folder: Folder,
    out: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--out",
            metavar="FILE",
            help="A new file for the next study; exit code 1, and no file, if nothing is to change.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Audit a search that has ended, and write the next study, with a reason for each change."""
    from search.refining.report import run_refine

    run_refine(folder, out, as_json=json)


def add_to(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    for command in (show, report, ui, sync, audit, audit_pruning, export, bundle, refine):
        app.command()(command)
