"""Opens pages in Debian's chromium, without a screen."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.missing import stop_without
from tests.waiting import PATIENCE_SECONDS

# Kept when two frames were painted
PAINTED = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
PATIENCE = 1000 * PATIENCE_SECONDS  # playwright counts milliseconds


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start a browser for the block."""
    program = shutil.which("chromium")
    if program is None:
        stop_without("chromium", "chromium")
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as driver:
        as_root = ["--no-sandbox"]
        browser = driver.chromium.launch(executable_path=program, args=as_root, timeout=PATIENCE)
        yield browser
        browser.close()


@contextmanager
def blank_page(browser: Browser, **asked: Any) -> Iterator[Page]:
    """Give a page, as `asked` of playwright's new_page, that is waited for on the busiest machine."""
    with browser.new_page(**asked) as page:
        page.set_default_timeout(PATIENCE)
        yield page


@contextmanager
def opened(browser: Browser, address: str | Path, **asked: Any) -> Iterator[Page]:
    """Open a file or an address, as `asked` of playwright's new_page.

    An error of the page's script fails the test, and so does anything that it asks of another machine.
    """
    with blank_page(browser, **{"viewport": {"width": 1280, "height": 900}, **asked}) as page:
        faults: list[str] = []
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", lambda request: faults.extend(_outside(request.url)))
        page.goto(address.as_uri() if isinstance(address, Path) else address)
        yield page
        assert not faults


def _outside(url: str) -> list[str]:
    return [] if url.startswith(("file:", "data:", "blob:", "http://127.0.0.1:")) else [f"asked for {url}"]
