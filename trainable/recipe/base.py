"""What every section of a Recipe is: typed, frozen data with its ranges, defaults and sources.

Sources such as `003:26-40` cite guides, which docs/sources.md lists.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, GetJsonSchemaHandler

from trainable.errors import quoted
from trainable.files.paths import usable_path

Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
OpenFraction = Annotated[float, Field(ge=0.0, lt=1.0)]

YOURS = "yours to say"  # the source of what no rule can know


LONGEST_ARGUMENT = 100


def _argument(name: str) -> str:
    if name == "kind":
        raise ValueError(f"an argument cannot be called {name!r}: it is a section's kind")
    plain = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) and len(name) <= LONGEST_ARGUMENT
    if not plain or name.startswith("__") or keyword.iskeyword(name):
        raise ValueError(
            f"expected the name of an argument: letters, digits and underscores, got {quoted(name)}"
        )
    return name


# A key that a function receives as a name of one of its arguments: exported scripts have it as code
ArgumentName = Annotated[str, AfterValidator(_argument)]


def usable_if_any(path: str | None) -> str | None:
    """Return the path, or None, unchanged. Raises ValueError for what no file can be called."""
    return None if path is None else usable_path(path)


def check_ordered(**bounds: float) -> None:
    """Raise ValueError if the first of two numbers, each given by its field's name, is above the second."""
    (low, least), (high, most) = bounds.items()
    if least > most:
        raise ValueError(f"{low} {least} is above {high} {most}")


def check_distinct(what: str, names: Sequence[str]) -> None:
    """Raise ValueError if a name is there more than once; `what` says what it names."""
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"{what} {', '.join(twice)} is there more than once")


class Purpose(NamedTuple):
    """What a field is for, whatever its value, and who says so; the field's `Annotated` type holds it.

    A source is a paper by its arXiv number, or lines of a guide as `GUIDE:LINES` (docs/sources.md); `ours`
    marks what neither asks for. The purpose of a union of kinds is that of the field `kind` in it.
    """

    reason: str
    source: str

    def __get_pydantic_json_schema__(self, schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Return the field's JSON Schema, which editors show, with the purpose as its description."""
        return {**handler(schema), "description": f"{self.reason} ({self.source})"}


class Spec(BaseModel):
    """A frozen section: unknown keys and non-finite numbers are refused, nothing is coerced."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)


# The guides' short names, by the number that their lines are cited with
GUIDES = {
    "000": "training tricks notes",
    "001": "PyTorch tuning guide",
    "002": "PyTorch speed notes",
    "003": "PaddleClas guide",
    "004": "17 ways guide",
}
_LINES = re.compile(r"\b(00[0-4])(?=:\d)")
_CITED = re.compile(r"\b(00[0-4]):(\d+)(-\d+)?")
_PAPER = re.compile(r"(?:\barXiv )?\b(\d{4}\.\d{5}|\d{4}\.\d{4})\b")


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


def is_citation(source: str) -> bool:
    """Return whether a source names something to read; "ours" and "yours to say" name nothing."""
    return any(letter.isdigit() for letter in source)


def spelled_out(source: str) -> str:
    """Return a source as it can be looked up: `003:26-40` is "lines 26-40 of the PaddleClas guide", and a
    paper has its address."""

    def in_words(code: re.Match[str]) -> str:
        guide, first, last = code.groups(default="")
        return f"{'lines' if last else 'line'} {first}{last} of the {GUIDES[guide]}"

    return _PAPER.sub(r"https://arxiv.org/abs/\1", _CITED.sub(in_words, source))
