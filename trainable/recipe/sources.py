"""The guides that source codes such as `003:26-40` cite; docs/sources.md lists these guides."""

from __future__ import annotations

import re
from collections.abc import Iterable

# The guides' short names, by the number that their lines are cited with
GUIDES = {
    "000": "training tricks notes",
    "001": "PyTorch tuning guide",
    "002": "PyTorch speed notes",
    "003": "PaddleClas guide",
    "004": "17 ways guide",
}
_LINES = re.compile(r"\b(00[0-4])(?=:\d)")


def with_guide_names(sources: Iterable[str]) -> list[str]:
    """Return the sources in order, with the name of each guide where it is cited first.

    `003:26-40` becomes `PaddleClas guide 003:26-40` in the first source that has it.
    """
    named: set[str] = set()

    def with_name(code: re.Match[str]) -> str:
        guide = code[1]
        if guide in named:
            return guide
        named.add(guide)
        return f"{GUIDES[guide]} {guide}"

    return [_LINES.sub(with_name, source) for source in sources]
