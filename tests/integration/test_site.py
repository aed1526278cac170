"""Builds the site of the documents, and follows every link of it; in a browser it works from files, alone."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import make_site
from tests.integration.browser import chromium, opened
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow("makes hundreds of pages"),
    pytest.mark.skipif(sys.platform != "linux", reason="the lock is of Linux"),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site; a proxy that nobody answers stands for the network."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
            patch.setenv(name, "http://127.0.0.1:9")
        return make_site.build(tmp_path_factory.mktemp("build"))


class Page(HTMLParser):
    """What a page can be linked by, what it links, and what it loads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = {""}
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag == "link" and given.get("rel") in ("stylesheet", "icon", "preload", "preconnect"):
            self.loads.append(given["href"])
        if "src" in given:
            self.loads.append(given["src"])


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in site.rglob("*.html") if path.name != "404.html"}


def dead(pages: dict[Path, Page]) -> Iterator[str]:
    """Yield each link, and each file to load, that leads nowhere in the site."""
    for path, page in pages.items():
        for address in [*page.links, *page.loads]:
            parts = urlsplit(address)
            if parts.scheme:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            missing = not target.is_file()
            lost = target in pages and unquote(parts.fragment) not in pages[target].anchors
            if missing or lost:
                yield f"{path}: {address}"


def test_every_link_and_anchor_of_every_page_leads_somewhere(pages: dict[Path, Page]) -> None:
    assert len(pages) > 200
    assert [*dead(pages)] == []


def test_a_dead_link_and_a_lost_anchor_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<a href="b.html#here">b</a> <a href="b.html#gone">b</a> <img src="c.png">'
    )
    (tmp_path / "b.html").write_text('<p id="here">')
    found = dead({path: Page(path) for path in tmp_path.glob("*.html")})
    assert [each.rpartition(": ")[2] for each in found] == ["b.html#gone", "c.png"]


def test_no_page_loads_anything_from_elsewhere(pages: dict[Path, Page]) -> None:
    assert {
        each for page in pages.values() for each in page.loads if urlsplit(each).scheme not in ("", "data")
    } == set()


def test_programs_that_read_have_a_list_of_the_pages(site: Path) -> None:
    lines = (site / "llms.txt").read_text().splitlines()
    assert lines[0] == "# tunebook"
    entries = [line for line in lines if line.startswith("- [")]
    assert len(entries) > 30
    assert all((site / line.partition("](")[2].partition("): ")[0]).is_file() for line in entries)
    assert [line for line in entries if not line.partition("): ")[2]] == []


def test_a_page_opened_as_a_file_finds_words_and_asks_no_other_machine(site: Path) -> None:
    with chromium() as browser, opened(browser, site / "index.html") as page:

        def opens_the_first_result() -> bool:
            page.reload()
            page.locator("iframe").wait_for(state="attached")  # what searches, which the page's script made
            page.keyboard.press("Control+k")
            page.keyboard.type("near-duplicates")
            page.wait_for_timeout(2000)
            page.keyboard.press("Enter")  # nothing happens before there is a result
            page.wait_for_timeout(1000)
            page.keyboard.press("Escape")
            return "/checks.html" in page.url and page.url.endswith("#near-duplicates")

        wait_until(opens_the_first_result)
