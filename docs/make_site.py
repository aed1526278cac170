"""Builds the site: `python docs/make_site.py [FOLDER]` writes FOLDER/site (build/site); it needs no network.

Its pages are the documents of docs/, and what they link: other documents and source files of the repository
are pages below repository/. Zensical makes HTML of them, as docs/site/mkdocs.yml says.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import TextLexer, get_lexer_for_filename
from pygments.util import ClassNotFound

import make_pages

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
NAVIGATION = DOCS / "site" / "mkdocs.yml"
REPOSITORY = Path("repository")  # where the site has files that are not below docs/
DECISIONS = "Decisions, each with its context, evidence and alternatives"
COPIED = {".png", ".json", ".html", ".js", ".css", ".txt"}  # as they are; other files are shown as code

# code is matched, too, so that what looks like a link in it stays
LINK = re.compile(r"^```.*?^```|``.+?``|`[^`\n]+`|\]\(([^)\s]+)\)", re.MULTILINE | re.DOTALL)
NAVIGATED = re.compile(r"^ +- (?:(?P<title>[^:{}\[\]]+): )?(?P<page>[\w/.-]+\.md)$", re.MULTILINE)

SOURCE_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{path}</title>
<style>body {{ margin: 1rem; font: 16px sans-serif }}
pre {{ font-size: 13px; line-height: 1.5; overflow-x: auto }}
{style}</style></head>
<body><p><a href="{home}">tunebook</a> / <code>{path}</code></p>
{code}</body></html>
"""


def build(folder: Path) -> Path:
    """Build the site in a folder, and return where its pages are; a dead link is a CalledProcessError."""
    shutil.rmtree(folder, ignore_errors=True)
    pages = folder / "pages"
    write_pages(pages)
    text = NAVIGATION.read_text("utf-8")
    (folder / "mkdocs.yml").write_text(text, encoding="utf-8")
    (pages / "llms.txt").write_text(llms(pages, text), encoding="utf-8")
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", "mkdocs.yml"]
    subprocess.run(command, cwd=folder, env={**os.environ, "NO_COLOR": "1"}, check=True)
    site = folder / "site"
    for page in site.rglob("*.html"):
        _lead_logo_home(page, os.path.relpath(site / "index.html", page.parent))
    return site


def _lead_logo_home(page: Path, home: str) -> None:
    """Let the logo lead to a page, as Zensical's leads to a folder, which a browser only lists."""
    text = page.read_text("utf-8")
    turned = re.sub(r'href="[^"]*"(?= title="tunebook" class="md-)', f'href="{home}"', text)
    if turned != text:
        page.write_text(turned, encoding="utf-8")


# --- pages --------------------------------------------------------------------------------------------


def write_pages(pages: Path) -> None:
    """Write everything that the site shows: documents with their links turned, made pages, source files."""
    made: dict[Path, Callable[[], str]] = {
        DOCS / "api.md": make_pages.api_page,
        DOCS / "decisions" / "index.md": lambda: _list(DECISIONS, DOCS / "decisions"),
    }
    for path, text in made.items():
        _write(pages / place(path), _turned(text(), path)[0])
    waiting = [path for path in sorted(DOCS.rglob("*")) if path.suffix in COPIED | {".md"}]
    waiting += [ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "benchmarks" / "results"]
    seen = {*waiting, *made}
    while waiting:
        path = waiting.pop()
        found = _write_page(path, pages / place(path))
        waiting += [each for each in found if each not in seen]
        seen |= {*found}


def place(path: Path) -> Path:
    """Return where the site has a file or folder of the repository."""
    shown = path.relative_to(DOCS) if path.is_relative_to(DOCS) else REPOSITORY / path.relative_to(ROOT)
    if path.is_dir():
        return shown / "index.md"
    return shown if path.suffix in COPIED | {".md"} else shown.with_name(f"{shown.name}.html")


def _write_page(path: Path, page: Path) -> list[Path]:
    """Write the page of a file or folder; return what it links."""
    if path.is_dir() or path.suffix == ".md":
        text = _list(path.relative_to(ROOT), path) if path.is_dir() else path.read_text("utf-8")
        turned, found = _turned(text, path / "index.md" if path.is_dir() else path)
        _write(page, turned)
        return found
    page.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix in COPIED:
        shutil.copyfile(path, page)
    else:
        _write(page, _source(path))
    return []


def _turned(text: str, path: Path) -> tuple[str, list[Path]]:
    """Return a document whose links lead to the site's pages, and the files and folders that it links."""
    found: list[Path] = []

    def turn(match: re.Match[str]) -> str:
        target, hash_, anchor = (match[1] or "").partition("#")
        if match[0].startswith("`"):  # for a forge bars in a table are escaped; here the escapes would show
            return match[0].replace(r"\|", "|")
        if not target or re.match(r"[a-z]+:", target):
            return match[0]
        linked = (path.parent / target).resolve()
        if not linked.exists():  # a page that is made for the site
            return match[0]
        found.append(linked)
        way = os.path.relpath(place(linked), place(path).parent)
        return f"]({way}{hash_}{anchor})"

    return LINK.sub(turn, text), found


def _list(title: object, folder: Path) -> str:
    """Return a page that lists a folder's documents by their titles, and its other files by their names."""
    lines = [f"# {title}", "", "The files of this folder, by their titles.", ""]
    for path in sorted(folder.iterdir()):
        if path.suffix == ".md" and path.name != "index.md":
            lines.append(f"- [{title_of(path.read_text('utf-8'))}]({path.name})")
        elif path.is_file() and path.suffix == ".py":
            lines.append(f"- [{path.name}]({path.name})")
    return "\n".join([*lines, ""])


def _source(path: Path) -> str:
    """Return a source file as a page, with colours."""
    try:
        lexer = get_lexer_for_filename(path.name)
    except ClassNotFound:
        lexer = TextLexer()
    form = HtmlFormatter(lineanchors="line", wrapcode=True)
    code = highlight(path.read_text("utf-8"), lexer, form)
    home = os.path.relpath("index.html", place(path).parent)
    named = {"path": path.relative_to(ROOT), "home": home}
    return SOURCE_PAGE.format(code=code, style=form.get_style_defs(), **named)


def _write(page: Path, text: str) -> None:
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(text, encoding="utf-8")


# --- llms.txt -----------------------------------------------------------------------------------------


def llms(pages: Path, navigation: str) -> str:
    """Return what the site has, for programs that read: each page with its first sentence."""
    about = _paragraphs((pages / "index.md").read_text("utf-8"))
    return "\n".join(["# tunebook", "", f"> {next(about)}", "", *_sections(pages, navigation), ""])


def _sections(pages: Path, navigation: str) -> Iterator[str]:
    for line in navigation.partition("\nnav:\n")[2].splitlines():
        if section := re.fullmatch(r"  - (.+):", line):
            yield from ["", f"## {section[1]}", ""]
        elif entry := NAVIGATED.fullmatch(line):
            text = (pages / entry["page"]).read_text("utf-8")
            address = entry["page"].removesuffix(".md") + ".html"
            first = re.match(r".+?[.:](?= |$)|.+", next(_paragraphs(text), ""))
            yield f"- [{title_of(text)}]({address}): {first[0] if first else ''}"


def title_of(text: str) -> str:
    """Return a document's first heading."""
    found = re.search(r"^# (.+)$", text, re.MULTILINE)
    return found[1] if found else ""


def _paragraphs(text: str) -> Iterator[str]:
    """Yield the paragraphs of prose, each as one line without marks of Markdown."""
    for block in re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL).split("\n\n"):
        if block.strip() and not re.match(r"[#<|`!{]|[-*] | {4}|\d+\. ", block.lstrip("\n")):
            plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", block)
            yield " ".join(plain.replace("**", "").split())


def main() -> None:
    print(build(Path(*sys.argv[1:2]) if sys.argv[1:] else ROOT / "build") / "index.html")


if __name__ == "__main__":
    main()
