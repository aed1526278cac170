"""Opens pages in Debian's chromium, without a screen."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from tests.missing import stop_without

PAINTED = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
"""It is kept when two frames were painted."""


@contextmanager
def chromium() -> Iterator[Browser]:
    """Starts a browser for the block."""
    program = shutil.which("chromium")
    if program is None:
        stop_without("chromium", "chromium")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])  # root needs it
        yield browser
        browser.close()


@contextmanager
def opened(browser: Browser, address: str | Path, **asked: Any) -> Iterator[Page]:
    """Opens a file or an address, as `asked` of playwright's new_page.

    An error of the page's script fails the test, and so does anything that it asks of another machine.
    """
    with browser.new_page(**{"viewport": {"width": 1280, "height": 900}, **asked}) as page:
        faults: list[str] = []
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", lambda request: faults.extend(_outside(request.url)))
        page.goto(address.as_uri() if isinstance(address, Path) else address)
        yield page
        assert not faults


def _outside(url: str) -> list[str]:
    return [] if url.startswith(("file:", "data:", "blob:", "http://127.0.0.1:")) else [f"asked for {url}"]
