"""What every section of a Recipe is: typed, frozen data with its ranges, defaults and sources."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
OpenFraction = Annotated[float, Field(ge=0.0, lt=1.0)]


class Spec(BaseModel):
    """A frozen section: unknown keys and non-finite numbers are refused, nothing is coerced."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)
