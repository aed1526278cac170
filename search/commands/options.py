"""Defines options that commands have in common."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from search.running.cluster_token import send_token
from trainable.files.store import is_uri

FAILED, HUNG_UP, INTERRUPTED, TERMINATED = 1, 129, 130, 143
IMPORTS = "loading torch and Ray"  # a stage of commands that train
EXIT_CODES = {
    "finished": 0,
    "failed": FAILED,
    "broken off": FAILED,
    "interrupted": INTERRUPTED,
    "terminated": TERMINATED,
    "hung up": HUNG_UP,
}
"""The exit code of a command that drives a search, by how that ended."""


def _with_token(address: str | None) -> str | None:
    """Set Ray's token variable now: Ray, which is imported later, reads its settings only once."""
    if address is not None:
        send_token(address)
    return address


def on_this_machine(address: str) -> Path:
    """Return a search's folder on this machine; for a search in an object store, its copy."""
    if not is_uri(address):
        return Path(address)
    from search.record.storage import local_folder

    return local_folder(address)


Folder = Annotated[
    Path,
    typer.Argument(metavar="DIR", parser=on_this_machine, help="A search's folder or URI: STORAGE/NAME."),
]
SearchOrRecipe = Annotated[
    Path,
    typer.Argument(
        metavar="DIR|RECIPE",
        parser=on_this_machine,
        help="A search's folder or URI: STORAGE/NAME; or a recipe's file.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Address = Annotated[
    str | None, typer.Option(callback=_with_token, help="A running Ray cluster: auto or HOST:PORT.")
]
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="PATH=VALUE", help="Set a field; may be repeated.")
]
Weights = Annotated[
    str | None,
    typer.Option(metavar="PATH", help="Pretrained weights: a file, a folder of NAME.safetensors, or none."),
]
Download = Annotated[
    bool, typer.Option("--download", help="Let torchvision and timm fetch data sets and published weights.")
]


def refuse_with_address(options: Mapping[str, object]) -> None:
    """Refuse options, by their names, that mean nothing where a cluster is looked at."""
    if given := [name for name, value in options.items() if value]:
        raise typer.BadParameter(f"{' and '.join(given)}: not with --address, which checks machines alone")


def with_weights(settings: Sequence[str] | None, weights: str | None) -> list[str]:
    """Return settings with one for weights, if they are given."""
    return [*(settings or ()), *([] if weights is None else [f"model.weights={json.dumps(weights)}"])]


def exit_with(state: str) -> None:
    """End the command with the exit code of how a search ended."""
    raise typer.Exit(EXIT_CODES[state])
