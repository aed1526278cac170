"""Whole pages that commands print, in tests/golden: their words are read there, and pinned nowhere else."""

from __future__ import annotations

import os
from pathlib import Path

PAGES = Path(__file__).parent / "golden"
WRITE = "TUNEBOOK_WRITE_PAGES"


def assert_page(name: str, printed: str) -> None:
    """What was printed is the page; TUNEBOOK_WRITE_PAGES=1 makes it the page, for `git diff` to show."""
    page = "".join(f"{line.rstrip()}\n" for line in printed.splitlines())
    if os.environ.get(WRITE):
        (PAGES / name).write_text(page)
    assert page == (PAGES / name).read_text(), f"{WRITE}=1 writes tests/golden/{name} anew"
