"""Defines options that commands have in common."""

from __future__ import annotations

from typing import Annotated

import typer

from search.running.cluster_token import send_token


def _with_token(address: str | None) -> str | None:
    """Set Ray's token variable now: Ray, which is imported later, reads its settings only once."""
    if address is not None:
        send_token()
    return address


Address = Annotated[
    str | None, typer.Option(callback=_with_token, help="A running Ray cluster: auto or HOST:PORT.")
]
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="PATH=VALUE", help="Set a field; may be repeated.")
]
Download = Annotated[
    bool, typer.Option("--download", help="Let torchvision and timm fetch data sets and published weights.")
]
