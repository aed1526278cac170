"""What the tests of deploy/ share: where its files are, and what they ask of tunebook."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"


def read(path: str) -> dict[str, Any]:
    """Return a file of deploy/ as plain data; refuses a key that is written twice."""
    tree = YAML(typ="safe", pure=True).load((DEPLOY / path).read_text())
    assert isinstance(tree, dict)
    return tree


def asked_of_search(words: list[str]) -> dict[str, Any]:
    """Return what `tunebook WORDS` asks of a search, as the command line reads it."""
    import typer

    from search.__main__ import app

    command = typer.main.get_command(app).commands["search"]  # type: ignore[attr-defined]
    assert words[0] == "search"
    asked = command.make_context("search", words[1:], resilient_parsing=True).params
    return {name: value for name, value in asked.items() if value not in (None, False, ())}
