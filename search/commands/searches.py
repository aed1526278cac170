"""`tunebook list`, `rename` and `delete`: the searches of a storage."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import typer

from search.commands.options import FAILED, DeleteOptions, aside, tell_fields
from search.record.listing import ListedSearch, searches_in
from spaces.domains import counted, disk_size
from trainable.errors import UserError
from trainable.stages import stage
from trainable.terminal import program_name, tell

COLUMNS = ("name", "data", "state", "trials", "best", "95 % interval", "began")


def run_list(storage: str, *, as_json: bool) -> None:
    """Print the searches of a storage, the latest first. Raises UserError where there is no such folder."""
    found = searches_in(storage)
    if as_json:
        tell_fields({"searches": [each.tree() for each in found]})
        return
    if not found:
        tell(f"{storage}: holds no search; `{program_name()} search --data PATH` makes one in ./searches")
        return
    tell(_table([COLUMNS, *(_row(each) for each in found if each.fault is None)]))
    for each in found:
        if each.fault is not None:
            tell(f"{each.name}: cannot be read: {each.fault}", sys.stderr)


def _row(found: ListedSearch) -> tuple[str, ...]:
    low_high = "" if found.interval is None else "{:.4f} to {:.4f}".format(*found.interval)
    best = "" if found.best is None else f"{found.best:.4f} {found.metric}"
    began = "" if found.began is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(found.began))
    trials = f"{found.trials} of {found.planned}"
    return found.name, str(found.data), str(found.state), trials, best, low_high, began


def _table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def run_rename(folder: Path, name: str, *, as_json: bool) -> None:
    """Rename a search, and print where it is now. Raises UserError."""
    from search.followers.rename_delete import rename_search

    with aside(as_json), stage("renaming the search"):
        now = rename_search(folder, name, tell)
    if as_json:
        tell_fields({"folder": str(now)})
    else:
        tell(f"{folder} -> {now}")


def run_delete(options: DeleteOptions) -> None:
    """Delete a search once a person has agreed, and print what it consisted of. Raises UserError."""
    from search.followers.rename_delete import delete_search, extent_of

    folder = options.folder
    with aside(options.as_json):
        extent = extent_of(folder)
        runs = f"; {counted(extent.runs, 'run')} in MLflow ({extent.tracking})" if extent.runs else ""
        tell(f"{extent.address}: {counted(extent.trials, 'trial')}, {disk_size(extent.bytes)}{runs}")
        if not options.yes:
            if not sys.stdin.isatty():
                raise UserError(
                    "standard input is no terminal, so nobody can be asked; give --yes to delete it"
                )
            if not typer.confirm("Delete all of this?"):
                tell("nothing was deleted")
                raise typer.Exit(FAILED)
        with stage("deleting the search"):
            delete_search(folder, tell)
        kept = "; MLflow keeps deleted runs until `mlflow gc`" if extent.runs else ""
        tell(f"deleted{kept}")
    if options.as_json:
        tell_fields(asdict(extent))
