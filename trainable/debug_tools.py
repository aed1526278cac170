"""The tools that `--debug` switches on: those of a run, and those of a check."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeVar, get_args

from trainable.errors import UserError

Tool = Literal["profile", "anomaly"]
CheckTool = Literal["gradcheck"]
ToolName = TypeVar("ToolName", bound=str)


def tools_named(names: Sequence[str]) -> tuple[Tool, ...]:
    """Return the tools of a run with these names, each once. Raises UserError naming the known ones."""
    elsewhere = dict.fromkeys(get_args(CheckTool), "checks a layer, use `tunebook check`")
    return _chosen(names, get_args(Tool), elsewhere)


def check_tools_named(names: Sequence[str]) -> tuple[CheckTool, ...]:
    """Return the tools of a check with these names, each once. Raises UserError naming the known ones."""
    elsewhere = dict.fromkeys(get_args(Tool), "watches a run, use `tunebook train`")
    return _chosen(names, get_args(CheckTool), elsewhere)


def _chosen(
    names: Sequence[str], known: tuple[ToolName, ...], elsewhere: Mapping[str, str]
) -> tuple[ToolName, ...]:
    here = ", ".join(known)
    for name in names:
        if name in elsewhere:
            raise UserError(f"--debug {name}: {elsewhere[name]}; here: {here}")
        if name not in known:
            raise UserError(f"--debug {name}: no such tool; known: {here}")
    return tuple(tool for tool in known if tool in names)
