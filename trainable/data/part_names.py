"""Says what the parts of a data set may be called."""

from __future__ import annotations

from collections.abc import Mapping

from trainable.data.source import Split

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


def none_leaves_out(part: Split) -> str:
    """Return what to do with a part that cannot be used, as far as that part can be left out."""
    return f"; data.{part}: none leaves the {part} part out" if part != "train" else ""


def part_names(named: Mapping[Split, str | None] | None = None) -> dict[Split, str]:
    """Returns the names that each part may have, as a text."""
    return {part: (named or {}).get(part) or "/".join(usual) for part, usual in USUAL_NAMES.items()}
