"""Tests `tunebook report --watch`: the page in a browser follows a search that goes on."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import expect

from search.record.home import EVENTS_FILE
from tests.integration.browser import chromium, opened
from tests.integration.clusters import free_port
from tests.search.planted_searches import planted
from tests.search.reporting.small_reports import BELIEVED, hill
from tests.search.small_events import replace_journal

pytestmark = pytest.mark.integration


@contextmanager
def watched(folder: Path) -> Iterator[str]:
    """Serve a search in a process of its own; gives the address when it answers."""
    port = free_port()
    command = [sys.executable, "-m", "search", "report", str(folder), "--watch", "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(f"http://127.0.0.1:{port}")
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            assert "Traceback" not in process.stderr.read()


def test_the_page_follows_the_journal_and_keeps_what_a_person_did(tmp_path: Path) -> None:
    folder = planted(tmp_path, hill, trials=24, sampler__kind="random", **BELIEVED)
    journal = (folder / EVENTS_FILE).read_bytes()
    lines = journal.splitlines(keepends=True)
    third = next(at for at, line in enumerate(lines) if b'"event":"trial"' in line and b'"trial":3,' in line)
    replace_journal(folder, b"".join(lines[:third]))
    with chromium() as browser, watched(folder) as address, opened(browser, address) as page:
        expect(page.locator("#table tbody tr")).to_have_count(3)
        page.locator("#table").get_by_role("button", name="trial 1", exact=True).click()
        page.get_by_text("What was fixed").click()
        page.locator("#filter").fill("finished")
        page.evaluate("scrollTo(0, 1500)")
        (folder / EVENTS_FILE).open("ab").write(b"".join(lines[third:]))
        expect(page.locator("#table tbody tr")).to_have_count(24, timeout=60_000)
        expect(page.get_by_role("dialog").get_by_role("heading", name="Trial 1")).to_be_visible()
        expect(page.get_by_role("group", name="Fields that were fixed")).to_be_visible()
        assert page.evaluate("scrollY") == 1500
        expect(page.locator("#filter-values")).to_have_value("finished")
        finished = page.locator("#table tbody tr", has=page.get_by_text("finished"))
        assert 0 < finished.count() < 24
        expect(page.locator("#table tbody tr:visible")).to_have_count(finished.count())
        expect(page.locator("#answer")).to_contain_text(", the best")
        (folder / EVENTS_FILE).write_bytes(journal.replace(b'"trial":3,', b'"trial":9,', 1))
        (folder / EVENTS_FILE).open("ab").write(b"{}\n")
        expect(page.get_by_role("alert")).to_contain_text("This page is not up to date: ", timeout=60_000)
        expect(page.locator("#table tbody tr")).to_have_count(24)
        page.reload()
        expect(page.locator("body")).to_contain_text("events.jsonl", timeout=60_000)
    shutil.rmtree(folder)
