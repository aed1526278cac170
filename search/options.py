"""Options that commands have in common."""

from __future__ import annotations

from typing import Annotated

import typer

Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="PATH=VALUE", help="Set a field; may be repeated.")
]
Download = Annotated[
    bool, typer.Option("--download", help="Let torchvision and timm fetch data sets and published weights.")
]
