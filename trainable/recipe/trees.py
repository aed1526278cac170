"""Reads and edits trees of plain data by dotted path: `optimizer.lr` is the `lr` in the section `optimizer`.

A key may itself hold dots: `{"optimizer.lr": 0.1}` and `{"optimizer": {"lr": 0.1}}` have the same leaf. No
function here changes the tree that it is given.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

Tree = Mapping[str, Any]


class NotPlain(ValueError):
    """A tree holds what JSON cannot: `path` leads to it, or is empty."""

    def __init__(self, path: str, problem: str) -> None:
        self.path = path
        super().__init__(problem)


class NoSuchPath(LookupError):
    """A tree lacks a path: `section` is how far it leads, `name` is missing in `node`."""

    def __init__(self, section: str, name: str, node: Any) -> None:
        self.section, self.name, self.node = section, name, node
        super().__init__(f"no {name!r} in {section or 'the tree'}")


def leaves(tree: Tree, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields every dotted path of a tree, behind the prefix, with its value; a list is one value."""
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def as_json(tree: Tree) -> bytes:
    """Returns a tree as JSON. Raises NotPlain for what cannot be written, with its path if it is text."""
    try:
        return json.dumps(tree, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        odd = (path for path, value in leaves(tree) if not _is_utf8(f"{path}{value}"))
        raise NotPlain(next(odd, ""), "expected text in UTF-8, got other bytes") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise NotPlain("", f"not plain data: {error}") from None


def _is_utf8(text: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def value_at(tree: Tree, path: str) -> Any:
    """Returns the value or the section at a path. Raises NoSuchPath."""
    node: Any = tree
    for depth, name in enumerate(parts := path.split(".")):
        if not isinstance(node, Mapping) or name not in node:
            raise NoSuchPath(".".join(parts[:depth]), name, node)
        node = node[name]
    return node


def with_value(
    tree: Tree, names: Sequence[str], value: Any, may_add: Callable[[Tree], bool]
) -> dict[str, Any]:
    """Returns a copy with a value at the path that these names make.

    `may_add` says of a tree or a section of it whether a section that it has not may be added. Raises
    NoSuchPath where it may not, and where a section on the way is a single value.
    """
    return _with_value(tree, (), names, value, may_add)


def with_leaf(tree: Tree, path: str, value: Any, prefix: str = "") -> dict[str, Any]:
    """Returns a copy with another value at a leaf that is there, however nested and dotted its keys are."""
    copy: dict[str, Any] = {}
    for name, old in tree.items():
        if isinstance(old, Mapping):
            copy[name] = with_leaf(old, path, value, f"{prefix}{name}.")
        else:
            copy[name] = value if f"{prefix}{name}" == path else old
    return copy


def without(tree: Tree, path: str) -> dict[str, Any]:
    """Returns the leaves by dotted path, without the one at a path or those of the section there."""
    return {leaf: value for leaf, value in leaves(tree) if not f"{leaf}.".startswith(f"{path}.")}


def _with_value(
    tree: Tree, above: Sequence[str], names: Sequence[str], value: Any, may_add: Callable[[Tree], bool]
) -> dict[str, Any]:
    name, *below = names
    if not below:
        return {**tree, name: value}
    if name not in tree and not may_add(tree):
        raise NoSuchPath(".".join(above), name, tree)
    section = tree.get(name, {})
    if not isinstance(section, Mapping):
        raise NoSuchPath(".".join((*above, name)), below[0], section)
    return {**tree, name: _with_value(section, (*above, name), below, value, may_add)}
