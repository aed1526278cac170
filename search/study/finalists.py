"""Describes how the best trials of a search are trained again, before one of them is called the best."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from trainable.errors import UNION
from trainable.recipe.base import Spec


class Finalists(Spec):
    """How many of the best trials are trained again, and how often.

    A winner is lucky: it is the best of many scores, each partly chance. Its runs with fresh seeds are not.
    """

    top: Annotated[int, Field(ge=1, le=100)] = Field(3, description="how many of the best trials")
    seeds: Annotated[int, Field(ge=2, le=100)] = Field(3, description="runs of each, with fresh seeds")
    splits: Literal["same", "fresh"] = Field(
        "same", description="fresh: each run draws training and validation anew; the test part stays"
    )


def _form_of(finalists: object) -> str:
    return NUMBERS if isinstance(finalists, dict | Finalists) else WORD


WORD, NUMBERS = f"{UNION}word", f"{UNION}numbers"
# a word, or how many are trained how often
FinalistsChoice = Annotated[
    Annotated[Literal["auto", "none"], Tag(WORD)] | Annotated[Finalists, Tag(NUMBERS)],
    Discriminator(_form_of),
]
