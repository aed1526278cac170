"""The guests of a driver: all that the command line, and `search` from Python, plug into one."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from search.commands.forecast import keep_beside, plan_lines
from search.followers import following
from search.followers.database import deleted_experiment
from search.learning.cautions import recorded
from search.learning.learned_space import learning_space
from search.learning.search import Search
from search.record.folder import Caution, home_to_write
from search.record.home import BEST_FILE, PICTURE_FILE
from search.record.storage import driving
from search.reporting import terminal
from search.reporting.gather import report_of
from search.reporting.live_view import LiveView
from search.reporting.page import write_report
from search.reporting.picture import draw
from search.results.export import exported
from search.results.teachers import teacher_path
from search.running.driver import Driver
from search.running.guests import EndState, Guests
from search.study import Study
from search.study.code import NO_CODE, Code
from trainable.bench import Bench
from trainable.checks.finding import kept
from trainable.data import DataSet
from trainable.recipe import Recipe
from trainable.stages import stage

if TYPE_CHECKING:  # torch takes seconds to import
    from trainable.checks.finding import Finding

COMPARED = 10_000  # a search compares the parts of its data if they have at most so many images, in memory

logger = logging.getLogger(__name__)


def driver(*, address: str | None = None, may_fetch: bool = False, code: Code = NO_CODE) -> Driver:
    """Return a driver with all its guests, for a cluster at `address` or this machine alone.

    With `may_fetch` published weights and data sets may be fetched; `code` is what a study uses of a person's
    own.
    """
    return Driver(Bench(may_fetch=may_fetch, say=terminal.say), ALL, address, code, plan_lines, keep_beside)


def findings(data: DataSet, study: Study, base: Recipe) -> tuple[Caution, ...] | None:
    """Return what is found about a study's images, by a look at them now and by `tunebook check` before; None
    where neither was made.

    It looks where that takes a second or two: in sets of at most COMPARED images in memory. `tunebook check`
    looks at others too.
    """
    is_small = data.info.in_memory and sum(map(len, data.parts.values())) <= COMPARED
    if not is_small and kept(data.info) is None:
        return None
    seen = [*_looked_at(data, base)] if is_small else []
    return recorded(seen, base, data.info, study.objective.metric)


def _looked_at(data: DataSet, base: Recipe) -> Iterator[Finding]:
    from trainable.check import check_images, checks_of
    from trainable.checks.duplicates import Fingerprints
    from trainable.checks.parts_alike import some_of_each

    checks = checks_of(base.task)
    yield from checks.of_targets(data, base)
    for each in check_images(Fingerprints(data), checks, lambda: (some_of_each(data), None)):
        # contradictions are those of the test part's labels, too, which no search looks at
        if each.check != "contradictions":
            yield each


def write_results(folder: Path, state: EndState, reason: str | None = None) -> None:
    """Write `best.yaml`, if any trial has finished, and the picture, of a search that ends so."""
    with stage("writing the best recipe, and the picture of the search"):
        search = Search(folder).ended_as(state, reason)
        if search.best is not None:
            exported(search).write(folder / BEST_FILE)
        draw(search.progress, folder / PICTURE_FILE)


def conclude(folder: Path, state: EndState, fault: str | None, data: DataSet, code: Code) -> None:
    """Print how a search has ended, and write its report if it is over, which takes seconds.

    The report is the only one that can ask a network of a person's own about the images: no file names its
    `code`. What fails in the report is printed: all that it shows can be had without it.
    """
    terminal.closing(Search(folder), folder / BEST_FILE, fault)
    if state == "interrupted":
        return
    with stage("writing the report"):
        search = Search(folder)
        try:
            report = report_of(search, images=lambda: data, code=code)
            terminal.say(f"report: {write_report(search, report)}")
        except Exception as error:
            logger.exception("the report was not written")
            again = f"try `tunebook report {quote(search.home.address)}`"
            terminal.say(f"the report was not written: {error}; {again}")


def sync(folder: Path) -> bool:
    """Send the followers of a search what they lack; return whether nothing is left to send."""
    home = home_to_write(folder.absolute())
    with driving(home, terminal.say) as lease:
        return following.sync(home, lease, terminal.say)


ALL = Guests(
    space=learning_space,
    teacher=teacher_path,
    findings=findings,
    refusal=deleted_experiment,
    followers=partial(following.Deliveries, say=terminal.say),
    view=LiveView,
    results=write_results,
    conclusion=conclude,
    sync=partial(following.sync, say=terminal.say),
)
