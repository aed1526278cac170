"""What a network learns from another one, its teacher, beside the labels.

A recipe without a teacher has no such section. No guide speaks of this: the sources are papers.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from trainable.files.paths import usable_path
from trainable.recipe.base import YOURS, Fraction, Purpose, Spec
from trainable.recipe.models import Model

SECTION = "distillation"
TEACHER = f"{SECTION}.teacher"
MODEL = "model"  # the part of the section that names the network of bare weights
DEFAULT_KIND = "logits"
# Fields that stay where the kind changes: there is one teacher, whatever is learnt from it
OF_ANY_KIND = ("teacher", MODEL)

# Between 2.5 and 4 was best for small students, and every one above 8 much the same for larger ones (arXiv
# 1503.02531, section 3); 4 is that of arXiv 2203.08679, section 4
Temperature = Annotated[
    float,
    Field(ge=0.1, le=100.0),
    Purpose(
        "divides the logits of both networks: higher ones show more of the classes that the teacher "
        "holds unlikely",
        "arXiv 1503.02531, section 2",
    ),
]

# Half of the loss is that of arXiv 1503.02531, section 4.1; all of it is that of 2106.05237, section 3
LessonWeight = Annotated[
    Fraction,
    Purpose(
        "share of the teacher in the loss; what is left to 1 is that of the labels",
        "arXiv 1503.02531, section 4; 2106.05237",
    ),
]


class Taught(Spec):
    """The network that teaches, whatever is learnt from it."""

    kind: str
    teacher: Annotated[
        str,
        Field(min_length=1),
        AfterValidator(usable_path),
        Purpose(
            "what teaches: a folder that `train --out` left, a recipe beside its weights, or a file of "
            "weights; in a study also the folder of a search, SEARCH, or one of its trials, SEARCH#NUMBER",
            YOURS,
        ),
    ]
    model: Annotated[
        Model | None, Purpose("the teacher's network, where no recipe stands beside its weights", YOURS)
    ] = None

    @model_validator(mode="after")
    def has_one_file_of_weights(self) -> Self:
        if self.model is not None and self.model.weights is not None:
            raise ValueError(f"{SECTION}.{MODEL}.weights: {TEACHER} names the weights; leave these out")
        return self

    @model_serializer(mode="wrap")
    def without_no_model(self, dump: SerializerFunctionWrapHandler) -> dict[str, object]:
        """Return the section as data, without `model` where nothing is written there."""
        found: dict[str, object] = dump(self)
        return {name: value for name, value in found.items() if name != MODEL or value is not None}


class LogitsTaught(Taught):
    """The teacher's probabilities: (1 - weight) * task + weight * T^2 * KL(teacher || student), both
    at the temperature T (arXiv 1503.02531, section 2)."""

    kind: Literal["logits"] = "logits"
    temperature: Temperature = 4.0
    weight: LessonWeight = 0.5

    def guessing(self, of_label: float) -> float:
        """Return the most that the teacher's part is for who guesses, before its weight: a sure teacher's
        divergence is what a label costs, ln K."""
        return self.temperature**2 * of_label


class DecoupledTaught(Taught):
    """The teacher's probability of the true class, and those of the others among themselves, with a factor
    for each: (1 - weight) * task + weight * T^2 * (alpha * TCKD + beta * NCKD) (arXiv 2203.08679,
    equation 8). Factors of 1 and 1 - p, the teacher's doubt, are those of `logits` (equation 7).
    """

    kind: Literal["dkd"] = "dkd"
    temperature: Temperature = 4.0
    weight: LessonWeight = 0.5
    alpha: Annotated[
        float,
        Field(ge=0.0, le=100.0),
        Purpose("factor of how sure the teacher is of the true class", "arXiv 2203.08679, section 4.1"),
    ] = 1.0
    beta: Annotated[
        float,
        Field(ge=0.0, le=100.0),
        Purpose("factor of how the teacher ranks the other classes", "arXiv 2203.08679, section 4.1"),
    ] = 8.0

    def guessing(self, of_label: float) -> float:
        """Return the most that the teacher's part is for who guesses, before its weight: ln K for the true
        class, less for the others."""
        return self.temperature**2 * (self.alpha + self.beta) * of_label


class FeaturesTaught(Taught):
    """What the teacher's head is given, through a learnt linear map: (1 - weight) * task + weight *
    |hint - map(features)|^2 / |hint|^2 (arXiv 1412.6550, equation 3, relative to the hint's length: so a
    weight means the same for every teacher). Teacher and student may have other classes. The head learns from
    the labels alone, so the weight is less than 1.
    """

    kind: Literal["features"] = "features"
    weight: LessonWeight = 0.5

    @field_validator("weight")
    @classmethod
    def labels_have_a_share(cls, weight: float) -> float:
        """Return the weight. Raises ValueError for 1: features teach what is below the head alone."""
        if weight == 1.0:
            raise ValueError(
                "expected less than 1 with kind features: the head learns from the labels alone, and would "
                "stay as it began; kinds logits and dkd need no labels"
            )
        return weight

    def guessing(self, of_label: float) -> float:
        """Return what the teacher's part is for features of zeros, before its weight; it has no limit."""
        return 1.0


Distillation = Annotated[LogitsTaught | DecoupledTaught | FeaturesTaught, Field(discriminator="kind")]
