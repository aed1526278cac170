"""`tunebook report`: the page of a search, its data, and the page that follows its journal."""

from __future__ import annotations

import webbrowser
from collections.abc import Sequence
from pathlib import Path

from search.commands.options import ReportOptions, search_folder
from search.learning.search import Search
from search.record.home import REPORT_FILE, REPORTED
from search.reporting.content import Report
from search.reporting.gather import report_of
from search.reporting.page import live_page, write_as, write_report
from search.reporting.terminal import say
from trainable.bench import Say, silent
from trainable.errors import UserError
from trainable.files.folders import new_file
from trainable.terminal import tell_json

WRITTEN = (".html", ".json")  # a report is written as a page, or as data


def run_report(options: ReportOptions) -> None:
    """Write a search's report to a file, or else both its files to the search's folder, and print where; or
    print its data; or serve it at http://127.0.0.1:PORT until Ctrl-C, as a page that follows the journal.

    Raises UserError where there is no search, where nothing can be written, for a file of another kind, and
    where the port cannot be used.
    """
    folder, out = options.folder, options.out
    if options.watch and (options.as_json or out is not None):
        raise UserError("--watch serves the page; leave out --json and -o")
    if options.watch:
        _watch(folder, options.port, _compared(options))
        return
    if out is not None and options.as_json:
        raise UserError("--json prints the data; to write them to a file, give -o FILE.json alone")
    if options.as_json:
        tell_json(_report_of(folder, _compared(options)).model_dump_json())
    else:
        say(str(written_report(options)))


def written_report(options: ReportOptions) -> Path:
    """Write a search's report to a file, or else both its files to the search's folder; return the file, or
    the page's. Raises UserError."""
    out = options.out
    if out is not None:
        out = new_file("-o", out, force=options.force, endings=WRITTEN)
    report = _report_of(options.folder, _compared(options))
    return write_report(Search(options.folder), report) if out is None else write_as(out, report)


def open_report(folder: Path, say: Say = silent) -> Path:
    """Open a search's report in the browser, and return its path; it is written first where it is missing or
    older than what it shows. Raises UserError where there is no search, or it cannot be written."""
    file = current_report(folder)
    say(str(file))
    if not webbrowser.open(file.absolute().as_uri()):
        say("no browser was found here; open this file in one")
    return file


def current_report(folder: Path) -> Path:
    """Return the page of a search's report; written anew where it is missing or older than what it shows."""
    file, shown = folder / REPORT_FILE, (folder / name for name in REPORTED)
    newest = max((each.stat().st_mtime for each in shown if each.exists()), default=0.0)
    if file.exists() and file.stat().st_mtime >= newest:
        return file
    search = Search(folder)
    return write_report(search, report_of(search))


def _watch(folder: Path, port: int, compared: Sequence[Path]) -> None:
    from search.reporting.live import serve  # aiohttp takes a while to import

    _report_of(folder, compared)  # what is no search is refused now, and not by a page
    try:
        serve(folder, lambda: live_page(_report_of(folder, compared)), port, say)
    except OSError as error:
        raise UserError(f"--port {port}: cannot be used: {error.strerror}; give another one") from None


def _compared(options: ReportOptions) -> list[Path]:
    return [search_folder(each) for each in options.compare or ()]


def _report_of(folder: Path, compared: Sequence[Path]) -> Report:
    return report_of(Search(folder), [Search(each) for each in compared])
