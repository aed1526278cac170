"""A page of results stays as long as something cites it, with its figures and the way to them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "benchmarks" / "results").glob("*.md"))
CITING = [
    *(ROOT / "docs").rglob("*.md"),
    *(path for room in ("trainable", "spaces", "search") for path in (ROOT / room).rglob("*.py")),
    ROOT / "README.md",
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_has_its_figures_and_a_script_that_is_here_or_the_commit_that_has_it(page: Path) -> None:
    text = page.read_text()
    assert page.with_suffix(".json").is_file()
    gone = r"no longer here; it stands at commit [0-9a-f]{8}\."
    scripts = re.findall(r"benchmarks/\w+\.py", text)
    assert scripts
    assert re.search(gone, text) or all((ROOT / script).is_file() for script in scripts)


def test_every_page_is_cited() -> None:
    cited = "\n".join(path.read_text() for path in CITING)
    assert not [page.name for page in PAGES if f"results/{page.name}" not in cited]
