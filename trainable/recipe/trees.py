"""Reads and edits trees of plain data by dotted path: `optimizer.lr` is the `lr` in the section `optimizer`.

A key may itself hold dots: `{"optimizer.lr": 0.1}` and `{"optimizer": {"lr": 0.1}}` have the same leaf. No
function here changes the tree that it is given.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import is_
from typing import Any

Tree = Mapping[str, Any]


LARGEST_INTEGER = 2**63
DEEPEST = 32  # levels; the deepest study has seven


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
    """Yield every dotted path of a tree, behind the prefix, with its value; a list is one value."""
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def sharing(node: Any, like: Any) -> Any:
    """Return what equals `node`, also in the types of numbers, and shares with `like` all that both have.

    Recipes of one search differ in a few values: sharing the rest takes a fifth of the memory.
    """
    match node:
        case dict() if isinstance(like, dict):
            shared = {name: sharing(value, like.get(name)) for name, value in node.items()}
            same = list(shared) == list(like) and all(shared[name] is like[name] for name in like)
            return like if same else shared
        case list() if isinstance(like, list) and len(like) == len(node):
            items = list(map(sharing, node, like))
            return like if all(map(is_, items, like)) else items
        case dict() | list():
            return node
        case _:
            return like if type(node) is type(like) and repr(node) == repr(like) else node


def as_json(tree: Tree) -> bytes:
    """Return a tree as JSON. Raises NotPlain for what cannot be written, with its path if it is text."""
    for path, scalar in _scalars(tree):
        if isinstance(scalar, int) and abs(scalar) >= LARGEST_INTEGER:
            raise NotPlain(path, "expected a number of 64 bits at most")
        if isinstance(scalar, str) and any("\ud800" <= letter <= "\udfff" for letter in scalar):
            raise NotPlain(path, "expected text in UTF-8, got other bytes")
    try:
        return json.dumps(tree, ensure_ascii=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise NotPlain("", f"not plain data: {error}") from None


def _scalars(tree: Tree) -> Iterator[tuple[str, Any]]:
    """Yield every key and every value that holds no others, with its path. Raises NotPlain."""
    waiting: list[tuple[str, int, Any]] = [("", 0, tree)]
    while waiting:
        path, depth, node = waiting.pop()
        if depth > DEEPEST:
            raise NotPlain(path.partition(".")[0], f"is nested deeper than {DEEPEST} levels, or holds itself")
        match node:
            case Mapping():
                yield from ((path, name) for name in node)
                waiting += [(f"{path}.{name}".strip("."), depth + 1, each) for name, each in node.items()]
            case list() | tuple():
                waiting += [(f"{path}.{number}", depth + 1, each) for number, each in enumerate(node)]
            case _:
                yield path, node


def value_at(tree: Tree, path: str) -> Any:
    """Return the value or the section at a path. Raises NoSuchPath."""
    node: Any = tree
    for depth, name in enumerate(parts := path.split(".")):
        if not isinstance(node, Mapping) or name not in node:
            raise NoSuchPath(".".join(parts[:depth]), name, node)
        node = node[name]
    return node


def with_value(
    tree: Tree, names: Sequence[str], value: Any, may_add: Callable[[Tree], bool]
) -> dict[str, Any]:
    """Return a copy with a value at the path that these names make.

    `may_add` says of a tree or a section of it whether a section that it has not may be added. Raises
    NoSuchPath where it may not, and where a section on the way is a single value.
    """
    return _with_value(tree, (), names, value, may_add)


def with_leaf(tree: Tree, path: str, value: Any, prefix: str = "") -> dict[str, Any]:
    """Return a copy with another value at a leaf that is there, however nested and dotted its keys are."""
    copy: dict[str, Any] = {}
    for name, old in tree.items():
        if isinstance(old, Mapping):
            copy[name] = with_leaf(old, path, value, f"{prefix}{name}.")
        else:
            copy[name] = value if f"{prefix}{name}" == path else old
    return copy


def without(tree: Tree, path: str) -> dict[str, Any]:
    """Return the leaves by dotted path, without the one at a path or those of the section there."""
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
