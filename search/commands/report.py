"""Implements `tunebook report`: the page of a search, its data, and the page that follows its journal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from search.reporting.content import Report
from search.reporting.gather import report_of
from search.reporting.live import serve
from search.reporting.page import live_page
from search.reporting.write import write_as, write_report
from search.results.report import say
from search.results.search import Search
from trainable.errors import UserError
from trainable.terminal import tell_json

WRITTEN = (".html", ".json")
"""A report is written as a page, or as data."""


def run_report(folder: Path, out: Path | None, compared: Sequence[Path], *, as_json: bool) -> None:
    """Write a search's report to `out`, or else both its files to the search's folder, and print where; with
    `as_json` print its data.

    Raises UserError where there is no search, where nothing can be written, and for an `out` of another kind.
    """
    _check(out, as_json=as_json)
    search, report = Search(folder), _report_of(folder, compared)
    if as_json:
        tell_json(report.model_dump_json())
    else:
        say(str(write_report(search, report) if out is None else write_as(out, report)))


def _check(out: Path | None, *, as_json: bool) -> None:
    if out is not None and as_json:
        raise UserError("--json prints the data; to write them to a file, give -o FILE.json alone")
    if out is not None and out.suffix not in WRITTEN:
        raise UserError(f"-o {out}: expected a name that ends in {' or '.join(WRITTEN)}")


def watch(folder: Path, port: int, compared: Sequence[Path]) -> None:
    """Serve the report at http://127.0.0.1:PORT until Ctrl-C; the page follows the journal.

    Raises UserError where there is no search, or the port cannot be used.
    """
    _report_of(folder, compared)  # what is no search is refused now, and not by a page
    try:
        serve(folder, lambda: live_page(_report_of(folder, compared)), port, say)
    except OSError as error:
        raise UserError(f"--port {port}: cannot be used: {error.strerror}; give another one") from None


def _report_of(folder: Path, compared: Sequence[Path]) -> Report:
    return report_of(Search(folder), [Search(each) for each in compared])
