"""Compares what commands print with whole pages in tests/golden, the only files that pin the words."""

from __future__ import annotations

import os
from pathlib import Path

PAGES = Path(__file__).parent / "golden"
WRITE = "TUNEBOOK_WRITE_PAGES"


def assert_page(name: str, printed: str) -> None:
    """Assert that the page was printed; with TUNEBOOK_WRITE_PAGES=1 writes it anew first, for `git diff`."""
    page = "".join(f"{line.rstrip()}\n" for line in printed.splitlines())
    if os.environ.get(WRITE):
        (PAGES / name).write_text(page)
    assert page == (PAGES / name).read_text(), f"{WRITE}=1 writes tests/golden/{name} anew"
