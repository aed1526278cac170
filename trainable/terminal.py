"""Prints for people. Names of classes and files, and errors, are somebody's text: a terminal may obey it."""

from __future__ import annotations

import json
import re
import sys
from io import TextIOWrapper
from typing import IO, TextIO

from trainable.errors import visible


def tell(text: str, to: TextIO | None = None) -> None:
    """Print lines to standard output, or `to` another stream, with escapes for what a terminal would obey."""
    stream = sys.stdout if to is None else to
    print(encodable(visible_lines(text), stream), file=stream, flush=True)


def tell_json(text: str) -> None:
    """Print a JSON text, in ASCII: so it stays JSON in every encoding."""
    print(re.sub(r"[^\n -~]", _as_json, text), flush=True)


def visible_lines(text: str) -> str:
    """Return a text in which all but line ends and tabs is escaped that a terminal would obey."""
    return re.sub(r"[^\n\t]+", lambda found: visible(found[0]), text)


def encodable(text: str, stream: IO[str]) -> str:
    """Replace each character that a stream's encoding has not by its escape."""
    encoding = getattr(stream, "encoding", None) or "utf-8"  # a StringIO has none
    return text.encode(encoding, "backslashreplace").decode(encoding)


def show_what_can_be_shown() -> None:
    """Have standard output and errors show an escape for each character that their encoding has not."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _as_json(found: re.Match[str]) -> str:
    return json.dumps(found[0])[1:-1] if found[0] != "\x7f" else "\\u007f"
