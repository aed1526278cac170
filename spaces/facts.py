"""What the heuristics need to know about the data, the model and the machine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from trainable.errors import Fault, FaultyInput, faults_of
from trainable.specs.base import Spec


class FactsError(FaultyInput):
    """Facts that cannot be."""

    subject = "facts"


class Facts(Spec):
    """Measured once before a search and kept beside it; the ranges of a Space are functions of them alone."""

    train_images: Annotated[int, Field(ge=1)]
    classes: Annotated[int, Field(ge=1)]
    class_balance: Annotated[float, Field(gt=0.0, le=1.0, description="smallest class over largest")]
    channels: Literal[1, 3]
    image_size: Annotated[int, Field(ge=4, description="side in pixels, as the model sees it")]
    flips: tuple[Literal["horizontal", "vertical"], ...] = ()
    parameters: Annotated[int, Field(ge=1, description="trainable numbers of the base recipe's model")]
    epochs: Annotated[int, Field(ge=1, description="length of the longest trial")]
    cpus: Annotated[int, Field(ge=1, description="of one trial")]
    gpus: Annotated[float, Field(ge=0.0, description="of one trial")]
    gpu_memory_bytes: Annotated[int, Field(ge=0)] | None = None
    pretrained: bool = False

    @classmethod
    def from_tree(cls, tree: Mapping[str, Any], where: str = "") -> Facts:
        """The facts in plain data, as `tree` gives them. Raises FactsError with every fault."""
        try:
            return cls.model_validate_json(json.dumps(tree))
        except (TypeError, ValueError) as error:
            faults = (
                faults_of(error, tree, cls)
                if isinstance(error, ValidationError)
                else [Fault("", f"not plain data: {error}")]
            )
            raise FactsError(faults, where) from None

    def tree(self) -> dict[str, Any]:
        """The facts as plain data, ready for JSON."""
        return self.model_dump(mode="json")
