"""What the parts of a data set may be called."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Self

from trainable.errors import DataError, listed, quoted
from trainable.recipe.data import Data, Split
from trainable.recipe.yamlfile import parse_setting

NAMED = 20

USUAL_NAMES: dict[Split, tuple[str, ...]] = {
    "train": ("train", "training"),
    "validation": ("val", "valid", "validation"),
    "test": ("test", "testing"),
}


def part_named(name: str, named: Mapping[Split, str | None]) -> Split | None:
    """Return the part that a name means: one that a person gave it, else a usual one in any case of letters
    and with any spaces around it; None for any other."""
    for part, own in named.items():
        if own == name:
            return part
    for part, usual in USUAL_NAMES.items():
        if named.get(part) is None and name.strip().lower() in usual:
            return part
    return None


class PartChoice(NamedTuple):
    """What a recipe says of the parts that the data have."""

    named: Mapping[Split, str | None] = {}  # their names, where these are not the usual ones
    left_out: Container[Split] = ()  # by `none` in the place of the name
    excluded: Sequence[str] = ()  # by `data.exclude_parts`, as the data call them

    @classmethod
    def of(cls, spec: Data) -> Self:
        return cls(spec.named_parts, spec.parts_left_out, spec.exclude_parts)

    def used(self, names: Iterable[str], where: object) -> list[str]:
        """Return the names, of those that the data have, that are not left out. Raises DataError where
        `data.exclude_parts` names another."""
        there = list(dict.fromkeys(names))
        if odd := [quoted(name) for name in self.excluded if name not in there]:
            raise DataError(
                f"data.exclude_parts: {listed(odd)}: {where} has no part of this name; expected some of "
                f"{listed(list(map(quoted, there)), NAMED) or 'none'}"
            )
        return [
            name
            for name in there
            if name not in self.excluded and part_named(name, self.named) not in self.left_out
        ]


ALL_PARTS = PartChoice()  # with the usual names


def excluding(names: Sequence[str]) -> str:
    """Return the field that leaves out parts of these names."""
    written = [
        # YAML has other words that are no text, such as null and true
        name if name.isidentifier() and parse_setting(f"part={name}")[1] == name else quoted(name)
        for name in names
    ]
    return f"data.exclude_parts: [{listed(written, NAMED)}]"


def refuse_excluded(spec: Data, what: str) -> None:
    """Raise DataError for `data.exclude_parts` where parts have no names of their own, or others are not read
    anyway."""
    if spec.exclude_parts:
        raise DataError(
            f"data.exclude_parts: {what} has no parts but train, validation and test; take it out, or leave "
            "one of these out by data.validation: none or data.test: none"
        )


def none_leaves_out(part: Split) -> str:
    """Return what to do with a part that cannot be used, as far as that part can be left out."""
    return f"; data.{part}: none leaves the {part} part out" if part != "train" else ""


@contextmanager
def telling_how_to_leave_out(part: Split) -> Iterator[None]:
    """Add to every error about a part how that part is left out."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{error}{none_leaves_out(part)}") from error


def part_names(named: Mapping[Split, str | None] | None = None) -> dict[Split, str]:
    """Return the names that each part may have, as a text."""
    return {part: (named or {}).get(part) or "/".join(usual) for part, usual in USUAL_NAMES.items()}
