"""Writes the report of a search to its folder, or elsewhere."""

from __future__ import annotations

from pathlib import Path

from search.learning.search import Search
from search.record.home import REPORT_DATA_FILE, REPORT_FILE
from search.reporting.content import Report
from search.reporting.page import page
from trainable.errors import UserError
from trainable.recipe.yamlfile import write_whole


def write_report(search: Search, report: Report) -> Path:
    """Write `report.html` and `report.json` to a search's folder; return the page's file.

    Raises UserError where they cannot be written.
    """
    write_as(search.folder / REPORT_DATA_FILE, report)
    return write_as(search.folder / REPORT_FILE, report)


def write_as(file: Path, report: Report) -> Path:
    """Write a report as a page or, where the name ends in .json, as data; return the file.

    Raises UserError where it cannot be written.
    """
    try:
        write_whole(file, (report.model_dump_json() if file.suffix == ".json" else page(report)).encode())
    except OSError as error:
        raise UserError(f"{file}: cannot be written: {error.strerror}; -o FILE names another one") from None
    return file
