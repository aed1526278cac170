"""Tests MLflow's own pages of a search in a real browser: the table, the charts, the comparison, the note."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from search.followers.conclusions import Conclusion
from search.record.home import REPORT_FILE
from search.record.journal import EndEvent
from search.reporting.page import page as page_of
from tests.integration.browser import blank_page, chromium
from tests.integration.clusters import free_port
from tests.search.followers.small_tracking import (
    a_search,
    scored,
    search_event,
    study_in,
    tracker_of,
    trial,
    write,
)
from tests.search.reporting.small_reports import whole_report
from tests.search.reporting.test_terminal import INFO

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Return the addresses that `tunebook ui` prints of a search of six trials, while it serves them."""
    storage = tmp_path_factory.mktemp("searches")
    folder = storage / "digits"
    folder.mkdir()
    better = [*trial(4), scored(4, 1), scored(4, 2, val_accuracy=0.9), EndEvent(trial=4, state="finished")]
    write(folder, [*a_search(folder)[:-1], *better, *trial(5), search_event(folder, "finished")])
    study_in(storage).write(folder)
    (folder / REPORT_FILE).write_text(page_of(whole_report()))
    long = "\n\n".join(["**Best**: trial 4", *("**Spent**: 5 epochs" for _ in range(10))])  # MLflow folds it
    concluded = Conclusion(long, "", "{}")
    assert tracker_of(folder, info=lambda: INFO, conclude=lambda: concluded).sync().complete
    with served(folder) as lines:
        yield dict(line.split() for line in lines)


@contextmanager
def served(folder: Path) -> Iterator[list[str]]:
    """Run `tunebook ui` for the block, return the addresses that it prints, and end it as Ctrl-C does."""
    port = free_port()
    words = ["-m", "search", "ui", str(folder), "--port", str(port)]
    with (folder / "ui.errors").open("wb") as errors:
        ui = subprocess.Popen(
            [sys.executable, *words],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    try:
        assert ui.stdout is not None
        lines = list(takewhile(lambda line: line != "(Ctrl-C ends it)\n", ui.stdout))
        assert ui.poll() is None, (folder / "ui.errors").read_text()
        yield lines
        ui.send_signal(signal.SIGINT)
        assert ui.wait(60) == 0
        assert not listens(port), "the server has ended, too"
    finally:
        ui.kill()
        ui.communicate()


def listens(port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with blank_page(browser, viewport={"width": 1600, "height": 1000}) as page:
        yield page


def test_the_addresses_answer_as_soon_as_they_are_printed(addresses: dict[str, str]) -> None:
    assert list(addresses) == ["trials", "charts", "search", "report", "file"]
    assert listens(int(addresses["trials"].split("/")[2].partition(":")[2]))


@pytest.mark.smoke("MLflow's pages")
def test_the_table_has_the_trials_the_best_one_first_with_what_was_searched(
    page: Page, addresses: dict[str, str]
) -> None:
    page.goto(addresses["trials"])
    names = page.get_by_role("link", name=re.compile(r"^\d+(:|$)"))
    expect(names).to_have_count(6)
    assert names.first.inner_text().startswith("4")
    shown = page.locator(".ag-header-cell[col-id*='s.`']:not([col-id^='attributes'])")
    columns = {each.get_attribute("aria-colindex"): each.get_attribute("col-id") for each in shown.all()}
    assert [name for _, name in sorted(columns.items(), key=lambda item: int(item[0] or 0))] == [
        "tags.`tunebook.state`",
        "metrics.`val_accuracy`",
        "tags.`tunebook.epochs`",
        "params.`optimizer.lr`",
    ]
    expect(page.get_by_role("button", name="digits")).to_be_visible()
    expect(page.get_by_text("6 matching runs")).to_be_visible()


def test_the_charts_begin_with_the_objective_and_the_values(page: Page, addresses: dict[str, str]) -> None:
    page.goto(addresses["charts"])
    charts = page.get_by_test_id("experiment-view-compare-runs-chart-area")
    expect(charts.get_by_text("Parallel Coordinates")).to_be_visible()
    expect(charts.locator(".js-plotly-plot .scatterlayer path.js-line").first).to_be_attached()


def test_marked_trials_are_compared(page: Page, addresses: dict[str, str]) -> None:
    page.goto(addresses["trials"])
    expect(page.get_by_role("link", name=re.compile(r"^\d+(:|$)"))).to_have_count(6)
    for position in (1, 2):
        page.get_by_role("checkbox").nth(position).check(force=True)
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_text("Comparing 2 Runs from 1 Experiment")).to_be_visible()
    expect(page.locator(".parcoords, .js-plotly-plot").first).to_be_visible()


def test_the_searchs_page_says_what_was_planned_links_its_trials_and_names_its_images(
    page: Page, addresses: dict[str, str]
) -> None:
    page.goto(addresses["search"])
    expect(page.get_by_text("16 trials of up to 20 epochs on digits")).to_be_visible()
    expect(page.get_by_role("link", name="Trials", exact=True)).to_have_attribute(
        "href", f"#{addresses['trials'].partition('#')[2]}"
    )
    expect(page.get_by_text("digits (0123)")).to_be_visible()
    expect(page.get_by_text("best_val_accuracy")).to_be_visible()
    expect(page.get_by_text("budget.trials")).to_be_visible()


def test_the_searchs_note_opens_the_report_among_its_files_where_its_links_work(
    page: Page, addresses: dict[str, str]
) -> None:
    page.goto(addresses["search"])
    link = page.get_by_role("link", name="Report", exact=True)
    expect(link).to_have_attribute("href", f"#{addresses['report'].partition('#')[2]}")
    with page.context.expect_page() as tab:
        link.click()
    report = tab.value.frame_locator("iframe")
    beliefs = report.locator("#beliefs")
    expect(beliefs).not_to_be_in_viewport()
    report.get_by_role("link", name="Beliefs").press("Enter")
    expect(beliefs).to_be_in_viewport()
    expect(beliefs).to_be_focused()
    tab.value.close()
