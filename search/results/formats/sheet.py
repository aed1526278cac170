"""What a format says of a recipe, and a list of what it cannot say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from trainable.errors import one_line
from trainable.recipe import Recipe
from trainable.recipe.base import Spec
from trainable.recipe.trees import leaves

NO_RESULT = (  # fields that change how fast a run is, or whether it starts, and none of its results
    "data.cache",
    "data.in_memory",
    "data.leaks",
    "data.unscored",
    "evaluation.batch_size",
    "loop.prefetch",
    "loop.workers",
)
PARTS = (  # fields of `data` that decide which images there are, and which is in which part
    *("path", "format", "name", "columns", "root", "group", "train", "validation", "test"),
    *("exclude", "exclude_parts", "min_images"),
    *("validation_fraction", "test_fraction", "split_seed", "validation_seed", "train_limit"),
)


class Unsaid(NamedTuple):
    """A field or a section that a format cannot say, with its value in the recipe, and why."""

    path: str
    value: Any
    why: str

    def __str__(self) -> str:
        return on_one_line(f"{self.path}: {shown(self.value)}: {self.why}")


@dataclass
class Sheet:
    """A format's arguments, and what it cannot say, in the order of the recipe."""

    recipe: Recipe
    arguments: dict[str, Any] = field(default_factory=dict)
    unsaid: list[Unsaid] = field(default_factory=list)

    def say(self, arguments: Mapping[str, Any]) -> None:
        """Add arguments: a dot in a name leads into a mapping, a `+` behind it adds to a list.

        An argument that is there already keeps its place.
        """
        for name, value in arguments.items():
            *sections, last = name.removesuffix("+").split(".")
            inside = self.arguments
            for section in sections:
                inside = inside[section]
            inside[last] = [*inside[last], *value] if name.endswith("+") else value

    def cannot(self, path: str, why: str) -> None:
        """List a field, or a whole section, with its value."""
        self.unsaid.append(Unsaid(path, _shown_of(self.recipe, path), why))

    def lines(self) -> Iterator[str]:
        """Yield what the format cannot say, a line each."""
        order = [path for path, _ in self.recipe.leaves()]

        def place(lost: Unsaid) -> int:
            return next(number for number, path in enumerate(order) if f"{path}.".startswith(f"{lost.path}."))

        yield from map(str, sorted(self.unsaid, key=place))


def header(title: str, sheet: Sheet, usage: str, notes: tuple[str, ...]) -> str:
    """Return the head of an exported file as comment lines, each beginning with `# `."""
    listed = [f"  {line}" for line in sheet.lines()]
    said = (
        [f"What this format cannot say of the recipe ({len(listed)}):", *listed]
        if listed
        else ["It says all of the recipe."]
    )
    alone = f"Not looked at, since no result depends on them: {', '.join(NO_RESULT)}."
    lines = [title, usage, *notes, *said, alone]
    return "".join(f"# {on_one_line(line)}\n" for line in lines)


def on_one_line(text: str) -> str:
    """Return a text as one line behind its indent: a value that somebody wrote must not end a comment."""
    indent = text[: len(text) - len(text.lstrip(" "))]
    return indent + one_line(text)


def _shown_of(recipe: Recipe, path: str) -> Any:
    """Return a field's value; of a section its kind, and what differs from the kind's own values."""
    if path == "data":
        data, defaults = recipe.tree()["data"], Recipe().tree()["data"]
        return {name: data[name] for name in PARTS if name == "path" or data[name] != defaults[name]}
    node: Any = recipe
    for name in path.split("."):
        node = getattr(node, name)
    return _named(node) if isinstance(node, Spec) else recipe.get(path)


def _named(section: Spec) -> dict[str, Any]:
    """Return a section's kind, and its fields that differ from the kind's own values."""
    plain = section.model_dump(mode="json")
    differing = {"kind": section.kind} if hasattr(section, "kind") else {}
    for name, info in type(section).model_fields.items():
        value = getattr(section, name)
        if name != "kind" and value != info.get_default(call_default_factory=True):
            differing[name] = _named(value) if isinstance(value, Spec) else plain[name]
    return differing


def shown(value: Any) -> str:
    """Return a value as a line of text has it."""
    if isinstance(value, Mapping):
        return ", ".join(f"{path} {shown(inner)}" for path, inner in leaves(value))
    if isinstance(value, float):
        return f"{value:.6g}"
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
