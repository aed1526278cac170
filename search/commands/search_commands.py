"""The commands for a search that exists: shown, compared, exported, refined."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from search.commands.options import (
    FAILED,
    IMPORTS,
    ClusterAddress,
    Download,
    ExportOptions,
    Folder,
    Json,
    ReportOptions,
    command,
    exit_with,
    on_this_machine,
)
from trainable.collector import paused
from trainable.stages import stage
from trainable.terminal import tell


def show(folder: Folder, json: Json = False) -> None:
    """Show a search: its trials, the best one, what pruning saved."""
    from search.learning.search import Search
    from search.reporting import terminal

    terminal.show(Search(folder), as_json=json)


def report(options: ReportOptions) -> None:
    """Write a search's report: one page, for any browser, that needs no network."""
    from search.commands.report import run_report

    run_report(options)


def ui(
    folder: Folder, port: Annotated[int, typer.Option(help="Port of the page.", min=1, max=65535)] = 5000
) -> None:
    """Open MLflow's pages on the search's runs, at http://127.0.0.1:PORT."""
    from search.commands.ui import serve

    raise typer.Exit(serve(folder, port))


def sync(folder: Folder) -> None:
    """Send to MLflow, and to an object store, what could not be sent while the search ran."""
    with paused():
        from search.commands.guests import sync as send

    raise typer.Exit(0 if send(folder) else FAILED)


def audit(folder: Folder) -> None:
    """Compare the journal with MLflow, optuna.db and the checkpoints: is every epoch in each, once?"""
    from search.followers.audit import audit as compare
    from search.learning.search import Search

    found = compare(Search(folder))
    tell(str(found))
    raise typer.Exit(FAILED if found.differences else 0)


def audit_pruning(
    folder: Folder,
    share: Annotated[
        float,
        typer.Option(help="The share of each rung's stopped trials to train to their end.", min=0, max=1),
    ] = 0.1,
    address: ClusterAddress = None,
    download: Download = False,
) -> None:
    """Train a sample of the stopped trials to their end: would a better one have been among them?"""
    with stage(IMPORTS), paused():
        from search.commands.guests import driver

    exit_with(driver(address=address, may_fetch=download).audit_pruning(folder, share))


def export(options: ExportOptions) -> None:
    """Write a trial's recipe with its provenance as YAML, or for another program, or for other hardware."""
    from search.commands.export import run_export

    run_export(options)


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
    from search.reporting.terminal import run_refine

    run_refine(folder, out, as_json=json)


def add_to(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    plain, with_options = app.command(), command(app)
    plain(show)
    with_options(report)
    plain(ui)
    plain(sync)
    plain(audit)
    plain(audit_pruning)
    with_options(export)
    plain(bundle)
    plain(refine)
