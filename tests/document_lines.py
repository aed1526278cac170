"""Finds the calls of the program in documents."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

FENCE = re.compile(r"^```([\w-]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?:^(?:    .*)?\n)+", re.MULTILINE)


class Line(NamedTuple):
    """A line of a block of code that calls the program."""

    text: str
    number: int

    @property
    def is_synopsis(self) -> bool:
        """Whether it says what may be written, with brackets and bars, and not what is written."""
        return bool(re.search(r"\[[-A-Z]| \| |\.\.\.| [A-Z]\b", self.text))


def lines(document: Path) -> Iterator[Line]:
    """Yield the calls in blocks of code, without prompt and comment; lines that go on are joined."""
    text = document.read_text(encoding="utf-8")
    fenced = [(found[2], found.start(2)) for found in FENCE.finditer(text)]
    rest = FENCE.sub(lambda found: re.sub(r"[^\n]", "", found[0]), text)
    plain = [(found[0], found.start()) for found in INDENTED.finditer(rest) if found[0].strip()]
    for block, start in [*fenced, *plain]:
        first = (rest if (block, start) in plain else text).count("\n", 0, start) + 1
        joined = re.sub(r" *\\\n\s*", " ", re.sub(r"\n +(?=\[-)", " ", block))
        for number, line in enumerate(joined.splitlines()):
            if called := re.match(r"\s*(?:\$ )?(?:\.venv/bin/)?tunebook (.+)", line):
                yield Line(re.split(r"\s+#|\s{3,}|\s+->|\s+\|\s*$", called[1])[0], first + number)
