"""docs/cli.md: every command with its usage, options and an example, as the program declares them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from search.commands.options import EXAMPLE

KINDS = {"int": "N", "float": "X", "str": "TEXT"}  # a value of Typer's kinds, for people
HEAD = """# Every command

What each command takes, as `tunebook COMMAND --help` says it: both come from the same declarations. What the
commands do is told in [commands.md](commands.md). `tunebook --install-completion` has your shell complete
commands, options, the searches in ./searches, and the names of networks and metrics.
"""


def page(app: typer.Typer) -> str:
    """Return the page of a command line."""
    commands = commands_of(app)
    sections = (_section(name, command) for name, command in commands.items())
    return "\n".join((HEAD, *sections))


def commands_of(app: typer.Typer) -> dict[str, TyperCommand]:
    """Return the commands of a command line, by their names, in its order."""
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    return {name: each for name, each in group.commands.items() if isinstance(each, TyperCommand)}


def example_of(command: TyperCommand) -> str:
    """Return the example of a command, as a person types it."""
    return str(command.epilog).removeprefix(EXAMPLE)


def _section(name: str, command: TyperCommand) -> str:
    words = typer.Context(command, info_name=f"tunebook {name}")
    usage = " ".join((f"tunebook {name}", *command.collect_usage_pieces(words)))
    arguments = [each for each in command.params if isinstance(each, TyperArgument)]
    options = [each for each in command.params if isinstance(each, TyperOption)]
    help_text = " ".join(str(command.help).split())
    lines = [f"## {name}\n", f"{help_text}\n", f"    {usage}\n", f"    {example_of(command)}\n"]
    return "\n".join((*lines, *_table(arguments, options, words), ""))


def _table(
    arguments: Sequence[TyperArgument], options: Sequence[TyperOption], words: typer.Context
) -> Iterator[str]:
    yield "| | |"
    yield "|-|-|"
    for argument in arguments:
        yield _row(str(argument.metavar), getattr(argument, "help", None))
    for option in options:
        names, value = ", ".join(option.opts), "" if option.is_flag else f" {_value(option, words)}"
        default = option.default
        is_shown = default is not None and not option.is_flag and not isinstance(default, list | tuple)
        known = f" Default: {getattr(default, 'value', default)}." if is_shown else ""
        needed = " Required." if option.required else ""
        yield _row(f"{names}{value}", f"{option.help or ''}{known}{needed}")


def _value(option: TyperOption, words: typer.Context) -> str:
    kind = option.display_type(words).strip("<>")
    return str(option.metavar or KINDS.get(kind.removesuffix(" range"), kind))


def _row(name: str, words: str | None) -> str:
    escaped = name.replace("\\|", "|").replace("|", "\\|")
    return f"| `{escaped}` | {words or ''} |"
