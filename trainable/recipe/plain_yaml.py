"""Reads a YAML text as plain data: mappings with text as keys, lists, text, numbers, true, false and null.

YAML 1.2 is read, so `1e-3` is a number, and `no` and `2026-11-22` are text. A text that would
keep its reader busy is refused: too long, nested too deeply, or with aliases that stand for too many values.
"""

from __future__ import annotations

from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.constructor import ConstructorError, SafeConstructor
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.scanner import Scanner

from trainable.recipe.trees import DEEPEST, LARGEST_INTEGER

LARGEST_TEXT = 2**17  # characters that are read: about a second for the parser; a recipe has about 5,000
MOST_VALUES = 20_000  # of a text, where each alias counts all that it stands for

_CORE = "tag:yaml.org,2002:"
_TAGS = {f"{_CORE}{name}" for name in ("null", "bool", "int", "float", "str", "seq", "map", "timestamp")}


class TooMuch(ValueError):
    """The bound that a text exceeds."""


class _BoundedScanner(Scanner):
    """A scanner that refuses deep nesting at its beginning: it takes seconds for 2,000 brackets."""

    def fetch_flow_collection_start(self, TokenClass: Any, to_push: str) -> None:  # noqa: N803
        if len(self.flow_context) >= DEEPEST:
            raise TooMuch(f"is nested deeper than {DEEPEST} levels")
        super().fetch_flow_collection_start(TokenClass, to_push)


class _PlainConstructor(SafeConstructor):
    """A constructor of plain data from nodes that are all checked first. Every other tag is refused."""

    def construct_document(self, node: Node) -> Any:
        _check(node)
        return super().construct_document(node)

    def construct_object(self, node: Node, deep: bool = False) -> Any:
        try:
            value = super().construct_object(node, deep)
        except (ValueError, LookupError):  # as of `!!int x`, and of a number of 5,000 digits
            raise _fault(node, f"is no {str(node.tag).removeprefix(_CORE)}: {node.value[:40]}") from None
        if isinstance(value, int) and abs(value) >= LARGEST_INTEGER:
            raise _fault(node, "the number has more than 64 bits")
        return value


_PlainConstructor.yaml_constructors = {
    **{tag: make for tag, make in SafeConstructor.yaml_constructors.items() if tag in _TAGS or tag is None},
    f"{_CORE}timestamp": SafeConstructor.construct_yaml_str,  # YAML 1.2's core schema has no dates
}


def load_plain(text: str) -> Any:
    """Return the data in a YAML text. Raises YAMLError for what is not YAML, ValueError for what exceeds a
    bound."""
    if len(text) > LARGEST_TEXT:
        raise TooMuch(f"has more than {LARGEST_TEXT:,} characters")
    yaml = YAML(typ="safe", pure=True)
    yaml.Scanner, yaml.Constructor = _BoundedScanner, _PlainConstructor
    yaml.composer.warn_double_anchors = False  # YAML lets a name be used again
    try:
        return yaml.load(text)
    except RecursionError:
        raise TooMuch(f"is nested deeper than {DEEPEST} levels") from None


def _check(root: Node) -> None:
    """Raise TooMuch or a MarkedYAMLError unless the nodes below are plain data within the bounds."""
    waiting, count = [(root, 1)], 0
    while waiting:
        node, depth = waiting.pop()
        count += 1
        if count > MOST_VALUES:
            raise TooMuch(f"has more than {MOST_VALUES:,} values, counting each alias as what it stands for")
        if depth > DEEPEST:
            raise _fault(node, f"is nested deeper than {DEEPEST} levels, or holds itself")
        waiting += [(each, depth + 1) for each in _below(node)]


def _below(node: Node) -> list[Node]:
    match node:
        case MappingNode():
            for key, _ in node.value:
                _check_key(key)
            return [each for pair in node.value for each in pair]
        case SequenceNode():
            return list(node.value)
        case _:
            _check_text(node)
            return []


def _check_key(key: Node) -> None:
    if not isinstance(key, ScalarNode):
        raise _fault(key, "a key must be text, got a list or a mapping")
    if key.tag not in (f"{_CORE}str", f"{_CORE}merge", f"{_CORE}timestamp"):
        raise _fault(key, f"a key must be text, got {key.value[:40]}; put it in quotes")


def _check_text(node: Node) -> None:
    if "\0" in node.value:
        raise _fault(node, "text must not hold the character NUL")
    if any("\ud800" <= letter <= "\udfff" for letter in node.value):
        raise _fault(node, "text must not hold half of a surrogate pair")


def _fault(node: Node, problem: str) -> MarkedYAMLError:
    return ConstructorError(None, None, problem, node.start_mark)
