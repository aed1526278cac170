"""What source codes such as `003:26-40` stand for: lines of the guides that docs/sources.md lists."""

from __future__ import annotations

import re
from collections.abc import Iterable

GUIDES = {
    "000": "training tricks notes",
    "001": "PyTorch tuning guide",
    "002": "PyTorch speed notes",
    "003": "PaddleClas guide",
    "004": "17 ways guide",
}
"""The guides' short names, by the number that their lines are cited with."""
_LINES = re.compile(r"\b(00[0-4])(?=:\d)")


def with_guide_names(sources: Iterable[str]) -> list[str]:
    """The sources in order; where one of them is the first to cite a guide, the guide's name stands there.

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
