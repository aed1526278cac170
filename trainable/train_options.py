"""What the command `train` is asked for, with the options of it that other commands have, too."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

DataPath = Annotated[str | None, typer.Option("--data", help="`digits`, a folder of images or a file.")]
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="PATH=VALUE", help="Set a field; may be repeated.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Download = Annotated[
    bool, typer.Option("--download", help="Let torchvision and timm fetch data sets and published weights.")
]


@dataclass(frozen=True)
class TrainOptions:
    """What a run of one recipe is asked for, by `tunebook train` or `python -m trainable`."""

    recipe: Annotated[Path, typer.Argument(metavar="RECIPE.yaml", help="A recipe.")]
    data: DataPath = None
    out: Annotated[Path | None, typer.Option(help="Folder for the model, metrics and recipe.")] = None
    test: Annotated[
        bool, typer.Option("--test", help="Evaluate on the test images, with a confusion matrix.")
    ] = False
    predict: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="New folder for the masks of a segmentation: of the test images, or validation's.",
        ),
    ] = None
    settings: Set = None
    as_json: Json = False
    download: Download = False
    debug: Annotated[
        list[str] | None,
        typer.Option(
            "--debug",
            metavar="TOOL",
            help="profile: record some steps; anomaly: stop at the first nan in a gradient; may be repeated.",
        ),
    ] = None
