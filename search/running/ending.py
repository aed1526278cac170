"""Ends a search: says how it ended, and writes its best recipe, its picture and its report."""

from __future__ import annotations

import logging
from pathlib import Path
from shlex import quote
from typing import Literal

from search.deciding.ledger import Ledger
from search.record.home import BEST_FILE, PICTURE_FILE
from search.record.trials import HOURS_SPENT
from search.results.export import export_recipe
from search.results.picture import draw
from search.results.report import say
from search.results.search import Search
from search.running.prepare import Prepared
from search.running.switch import StopSwitch
from search.running.trial_checkpoints import stored_history
from trainable.files.store import ATTEMPTS

State = Literal["finished", "interrupted", "failed"]
logger = logging.getLogger(__name__)


def how_it_ended(ledger: Ledger, switch: StopSwitch, prepared: Prepared) -> tuple[State, str | None]:
    """Return how the search ended, and why, once no trial runs any more."""
    if switch.interrupted or switch.fault is not None:
        return "interrupted", switch.fault or "stopped by a signal"
    reason = None
    if switch.out_of_time and not ledger.is_complete:
        reason = HOURS_SPENT
        with switch.stopped_by_disk():
            for trial in ledger.open_trials:  # Ray drops results when it ends; the checkpoints have them
                if trial not in ledger.paused_trials:
                    ledger.recover(trial, stored_history(prepared, trial, ATTEMPTS) or ())
            reason = why_out_of_time(ledger)
            ledger.cut_short()
    if not ledger.has_finished_trial:
        if reason is not None:
            return "failed", f"{HOURS_SPENT} before a trial has finished"
        return "failed", Search(prepared.home.folder).progress.why_none_finished
    return "finished", reason


def why_out_of_time(ledger: Ledger) -> str:
    """Return in words what a search lacks whose hours have ended."""
    lacks = " before the best trials were trained again as planned" if ledger.lacks_final else ""
    return f"{HOURS_SPENT}{lacks}"


def write_results(folder: Path, state: State) -> None:
    """Write `best.yaml`, if any trial has finished, and the picture, of a search that ends in this state."""
    search = Search(folder).ended_as(state)
    if search.best is not None:
        export_recipe(search, folder / BEST_FILE)
    draw(search.progress, folder / PICTURE_FILE)


def leave_report(folder: Path) -> None:
    """Write the report of a search that is over, and print where; it takes seconds.

    What fails in it is printed: all that it shows can be had without it.
    """
    from search.reporting.gather import report_of
    from search.reporting.write import write_report

    search = Search(folder)
    try:
        say(f"report: {write_report(search, report_of(search))}")
    except Exception as error:
        logger.exception("the report was not written")
        say(f"the report was not written: {error}; try `tunebook report {quote(search.home.address)}`")
