"""What is learnt, and from which images."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from trainable.files.store import without_credentials
from trainable.recipe.base import OpenFraction, Spec


class Classification(Spec):
    """One label an image, scored by cross-entropy."""

    kind: Literal["classification"] = "classification"


class Data(Spec):
    """Which images, how they are split, and what they are turned into before the model sees them.

    `None` means "as the data say": `Run` measures it, and `resolved` recipes carry the number.
    """

    path: Annotated[
        str,
        Field(
            min_length=1, description="`digits`, a folder or a file, or the URI of one (s3://bucket/flowers)"
        ),
        AfterValidator(without_credentials),
    ] = "digits"
    format: Literal["auto", "digits", "folder", "npz", "idx", "torchvision"] = "auto"
    name: str | None = Field(None, description="torchvision's class name, when format is torchvision")
    train: str | None = Field(None, description="name of the training folder, when it is not the usual one")
    validation: str | None = Field(None, description="name of the validation folder")
    test: str | None = Field(None, description="name of the test folder; never looked at during a search")
    validation_fraction: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.15
    test_fraction: OpenFraction = Field(0.15, description="only where the data bring no test part")
    split_seed: Annotated[int, Field(ge=0)] = Field(0, description="who is in which part")
    train_limit: Annotated[int, Field(ge=2)] | None = Field(None, description="at most so many of them")
    channels: Literal[1, 3] | None = None
    image_size: Annotated[int, Field(ge=4, le=4096)] | None = Field(None, description="side in pixels")
    flips: tuple[Literal["horizontal", "vertical"], ...] | None = Field(
        None, description="flips under which a label survives; none for folders unless said so"
    )
    in_memory: bool | None = Field(None, description="hold the decoded images in memory")

    @property
    def bundled(self) -> bool:
        """Whether these are scikit-learn's digits, which lie in no folder."""
        return self.path == "digits" and self.format in ("auto", "digits")
