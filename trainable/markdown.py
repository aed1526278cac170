"""Writes the parts of a Markdown page."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from trainable.errors import one_line


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table with a row of heads; a bar in a cell does not end it."""
    lines = [head, ["-"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(_without_bars, line)) + " |" for line in lines)


def _without_bars(cell: str) -> str:
    # some readers of Markdown look at one backslash before a bar, some count them: an odd number suits both
    return re.sub(r"(?<!\\)((?:\\\\)*)(\\?)\|", r"\1\2\2\\|", cell)


def code(text: str) -> str:
    """Return a text as code within a line; line ends and tabs become spaces."""
    line = one_line(text)
    longest = max(map(len, re.findall("`+", line)), default=0)
    fence, space = "`" * (longest + 1), " " if longest else ""
    return f"{fence}{space}{line}{space}{fence}"


def plain(text: str) -> str:
    """Return a text as one line in which nothing is a link, an image, markup or HTML."""
    return re.sub(r"[\\`*\[\]<>&]|:(?=//)", lambda found: f"\\{found[0]}", one_line(text))


def code_block(language: str, text: str) -> str:
    """Return a block of code."""
    return f"```{language}\n{text}\n```"


def between(bounds: tuple[float, float] | None) -> str:
    """Return an interval in words; nothing for none."""
    return "" if bounds is None else f"{bounds[0]:.4f} to {bounds[1]:.4f}"


def numbers(values: Sequence[float]) -> str:
    """Return numbers with four digits each, and commas between."""
    return ", ".join(f"{value:.4g}" for value in values)
