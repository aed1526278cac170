"""Reads recipes and studies from YAML files strictly, and writes them with comments.

What is plain data is said in `plain_yaml`. A key that stands twice is refused.
"""

from __future__ import annotations

import io
import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from textwrap import wrap
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.constructor import DuplicateKeyError
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from trainable.errors import UserError, one_line
from trainable.files.regular import read_regular, why
from trainable.recipe import Recipe
from trainable.recipe.plain_yaml import LARGEST_TEXT, load_plain

COMMENT_COLUMN = 40
HEAD_WIDTH = 108
LINE_WIDTH = 4096  # lines are never folded: a value and the comment beside it stay together


def read_recipe(path: str | Path) -> Recipe:
    """Return the recipe in a YAML file. Raises UserError for unreadable YAML, RecipeError for faults."""
    return Recipe.from_tree(read_tree(path), where=str(path))


def write_recipe(
    path: str | Path, recipe: Recipe, reasons: Mapping[str, str] | None = None, head: Sequence[str] = ()
) -> None:
    """Write every field, with the `reasons` (by dotted path) as comments beside the values, below comments
    with the lines of `head`."""
    lines = [part for line in head for part in wrap(one_line(line), HEAD_WIDTH, subsequent_indent="  ")]
    comments = "".join(f"# {line}\n" for line in lines)
    write_whole(Path(path), (comments + to_yaml(recipe.tree(), reasons or {})).encode())


def read_tree(path: str | Path) -> dict[str, Any]:
    """Return the mapping in a YAML file, as plain data. Raises UserError with the file, line and column."""
    try:
        text = read_regular(Path(path), most=LARGEST_TEXT * 4).decode()  # a character has four bytes at most
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: not a text file in UTF-8") from None
    except IsADirectoryError:
        raise UserError(f"{path}: is a folder; give a YAML file") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read: {why(error)}") from None
    return parse_tree(text, str(path))


def parse_tree(text: str, where: str) -> dict[str, Any]:
    """Return the mapping in a YAML text; `where` names it in errors."""
    try:
        tree = load_plain(text)
    except DuplicateKeyError as error:
        problem = _first_line(error.problem)
        raise UserError(f"{where}: {_position(error)}{problem}; write each key once") from None
    except MarkedYAMLError as error:
        raise UserError(f"{where}: {_position(error)}not valid YAML: {_first_line(error.problem)}") from None
    except (YAMLError, ValueError) as error:
        raise UserError(f"{where}: not valid YAML: {_first_line(str(error))}") from None
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise UserError(f"{where}: expected a mapping of sections, got {type(tree).__name__}")
    return tree


def parse_setting(text: str, example: str = "optimizer.lr=0.1") -> tuple[str, Any]:
    """Return the dotted path and the value of a `path=value`; the value is YAML, so [a, b] is a list."""
    path, equals, value = text.partition("=")
    if not equals or not path.strip():
        raise UserError(f"--set {text}: expected PATH=VALUE, such as {example}")
    return path.strip(), parse_tree(f"value: {value}", f"--set {path.strip()}")["value"]


def with_settings(recipe: Recipe, settings: Sequence[str], flags: Mapping[str, Any] | None = None) -> Recipe:
    """Return the recipe after a command's flags, by dotted path, and its `path=value` settings are applied.

    Another `data.path` among the flags is read with `data.format: auto`, unless a setting says otherwise. If
    anything else changes the recipe, the provenance no longer describes it and is dropped. Raises
    RecipeError, UserError.
    """
    flags = dict(flags or {})
    path = flags.pop("data.path", None)
    values = {**flags, **dict(map(parse_setting, settings))}
    changed = recipe.with_values(values)
    if changed.digest() != recipe.digest():
        changed = changed.model_copy(update={"provenance": None})
    if path is None:
        return changed
    source = {"data.path": path, "data.format": "auto", "data.name": None, "data.root": None}
    return changed.with_values({path: value for path, value in source.items() if path not in values})


def to_yaml(tree: Mapping[str, Any], comments: Mapping[str, str]) -> str:
    """Return nested plain data as YAML, with a comment beside each value whose dotted path has one.

    Names are words, and values what JSON has.
    """
    return "".join(_entries(tree, comments, ())) or "{}\n"


def _entries(tree: Mapping[str, Any], comments: Mapping[str, str], above: tuple[str, ...]) -> Iterator[str]:
    for name, value in tree.items():
        below = value if isinstance(value, Mapping) and value else None
        written = json.dumps(value if below is None else {"": 0})
        entry = _entry(len(above), name, written, comments.get(".".join((*above, name))))
        if below is None:
            yield entry
        else:
            yield entry[: entry.rindex("\n", 0, -1) + 1]
            yield from _entries(below, comments, (*above, name))


@lru_cache(maxsize=4096)
def _entry(depth: int, name: str, value: str, comment: str | None) -> str:
    """Return one name with its value, which is JSON, so deep in a document.

    A trial of a search differs from another in a few of a recipe's hundred entries; ruamel takes 0.3 ms each.
    """
    node = CommentedMap({name: json.loads(value)})
    if comment is not None:
        node.yaml_add_eol_comment(one_line(comment), name, column=COMMENT_COLUMN)
    for _ in range(depth):
        node = CommentedMap({"_": node})
    yaml = YAML()
    yaml.width = LINE_WIDTH
    yaml.representer.ignore_aliases = lambda _: True  # ruamel would write &id001 for repeated lists
    out = io.StringIO()
    yaml.dump(node, out)
    return out.getvalue().split("\n", depth)[depth]


def write_whole(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Write a file whole or not at all: a temporary name beside it, fsync, rename."""
    refuse_folder(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror}") from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, mode)  # mkstemp makes it private
        os.replace(temporary, path)
    except BaseException as error:
        Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)  # a disk that takes no more does not say of which file
        raise


def refuse_folder(path: Path) -> None:
    """Raise UserError where a file is to be written and there is a folder."""
    if path.is_dir():
        raise UserError(f"{path}: is a folder; give a file")


def _position(error: MarkedYAMLError) -> str:
    mark = error.problem_mark
    return f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""


def _first_line(text: str | None) -> str:
    return (text or "unreadable").strip().splitlines()[0]
