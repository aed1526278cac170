"""What a run may measure of a part of the data, beside loss and accuracies.

Each metric is named by its kind, after the part that it was measured on: `val_macro_f1`, `test_macro_f1`.
A task's class says which of them it has.
"One against rest" means that each class in turn is the positive one, scored by its probability; the result is
the mean over the classes. Classes of which a part has no image are left out of every mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal, NamedTuple, Self, get_args

from pydantic import BeforeValidator, Field, model_validator

from trainable.recipe.base import YOURS, Purpose, Spec, check_distinct

MOST_NAMES = 10  # of classes in an error's line
NO_SPREAD = 1e-9  # scores, and the ends of their intervals, are nearer only where rounding alone parts them
Mode = Literal["max", "min"]  # whether a higher or a lower value is better


class ScoreFacts(NamedTuple):
    """What is known of a score by which trials may be compared."""

    mode: Mode = "max"
    is_share: bool = True  # it lies in [0, 1]
    counts_classes_alike: bool = False  # each class has the same part in it, however many images it has


class _MeanOfClasses(Spec):
    """A metric in [0, 1] that is better when it is higher, and a mean over the classes."""

    score: ClassVar[ScoreFacts] = ScoreFacts(counts_classes_alike=True)
    needs_probabilities: ClassVar[bool] = False  # of every class, for a curve over all thresholds

    @property
    def worst(self) -> float:
        """The worst finite value, which a run that diverged is given."""
        return 0.0


class MacroF1(_MeanOfClasses):
    """The mean over classes of F1: the harmonic mean of precision and recall of the predicted class."""

    kind: Literal["macro_f1"] = "macro_f1"


class AUROC(_MeanOfClasses):
    """The area under the ROC curve, one against rest: the chance that an image of the class has a higher
    probability of it than another image has; a tie counts half. 0.5 is guessing, also for a part that has
    images of one class alone."""

    kind: Literal["auroc"] = "auroc"
    needs_probabilities: ClassVar[bool] = True


class AveragePrecision(_MeanOfClasses):
    """The mean precision over the thresholds of a class, weighted by the rise of recall; one against
    rest."""

    kind: Literal["average_precision"] = "average_precision"
    needs_probabilities: ClassVar[bool] = True


class RecallAtPrecision(_MeanOfClasses):
    """The highest recall of a class at any threshold where precision is high enough, one against rest.

    It is 0 for a class whose precision is too low at every threshold.
    """

    kind: Literal["recall_at_precision"] = "recall_at_precision"
    needs_probabilities: ClassVar[bool] = True
    precision: Annotated[
        float, Field(gt=0.0, le=1.0), Purpose("the lowest precision that is good enough", YOURS)
    ]


class Cost(Spec):
    """The mean cost an image of the predicted class: `costs[true][predicted]`, in the order of `classes`.

    Without `classes` it is the order of the data's own classes.
    """

    kind: Literal["cost"] = "cost"
    score: ClassVar[ScoreFacts] = ScoreFacts("min", is_share=False)
    needs_probabilities: ClassVar[bool] = False
    costs: Annotated[
        tuple[tuple[float, ...], ...],
        Field(min_length=2),
        Purpose("what an image of each class (row) costs if it is taken for each (column)", YOURS),
    ]
    classes: Annotated[tuple[str, ...] | None, Purpose("the classes of rows and columns, by name", YOURS)] = (
        None
    )

    @property
    def worst(self) -> float:
        return max(cost for row in self.costs for cost in row)

    @model_validator(mode="after")
    def is_square(self) -> Self:
        rows = len(self.costs)
        if wrong := [len(row) for row in self.costs if len(row) != rows]:
            raise ValueError(f"costs must have as many columns as rows: {rows} rows, a row of {wrong[0]}")
        if self.classes is not None:
            check_distinct("class", self.classes)
            if len(self.classes) != rows:
                raise ValueError(f"{len(self.classes)} classes for {rows} rows of costs")
        return self


class CalibrationError(Spec):
    """The expected calibration error: how far accuracy is from the probability of the predicted class.

    It is the mean distance over bins of equal width, weighted by their images (arXiv 1706.04599, section 2).
    """

    kind: Literal["calibration_error"] = "calibration_error"
    score: ClassVar[ScoreFacts] = ScoreFacts("min")
    needs_probabilities: ClassVar[bool] = False
    bins: Annotated[
        int,
        Field(ge=1, le=10_000),
        Purpose("bins of the probability, of equal width", "arXiv 1706.04599, section 5"),
    ] = 15

    @property
    def worst(self) -> float:
        return 1.0


class BoundaryF1(_MeanOfClasses):
    """The mean over classes of the boundary F1 score of masks (Csurka et al., What is a good evaluation
    measure for semantic segmentation?, BMVC 2013, section 3).

    Precision is the share of predicted boundary pixels that are near a true one of their class, recall the
    share of true ones that are near a predicted one. F1 is computed for each class of each image, then the
    mean over the images in which the class is, or is predicted.
    """

    kind: Literal["boundary_f1"] = "boundary_f1"
    tolerance: Annotated[
        float,
        Field(gt=0.0, le=0.05),
        Purpose("how near: a share of the image's diagonal, but a pixel at least", "Csurka, BMVC 2013, 3"),
    ] = 0.0075


OfLabels = MacroF1 | AUROC | AveragePrecision | RecallAtPrecision | Cost | CalibrationError
MetricKind = OfLabels | BoundaryF1

KINDS = get_args(MetricKind)
SCORE_OF_KIND: dict[str, ScoreFacts] = {each.model_fields["kind"].default: each.score for each in KINDS}


def _as_section(written: object) -> object:
    if isinstance(written, str):
        return {"kind": written}
    return {name: _frozen(value) for name, value in written.items()} if isinstance(written, dict) else written


def _frozen(value: object) -> object:
    """Return lists as tuples: a validator hides from pydantic that they were written as JSON."""
    return tuple(_frozen(each) for each in value) if isinstance(value, list) else value


# A kind alone, such as `macro_f1`, stands for the section with its defaults
AnyMetric = Annotated[Annotated[MetricKind, Field(discriminator="kind")], BeforeValidator(_as_section)]


def cost_faults(specs: Sequence[MetricKind], classes: Sequence[str]) -> list[str]:
    """Return what is wrong with matrices of costs for data of these classes."""
    faults = []
    for spec in specs:
        if isinstance(spec, Cost) and spec.classes is not None and set(spec.classes) != set(classes):
            faults.append(f"cost: classes {_listed(spec.classes)}, the data have {_listed(classes)}")
        elif isinstance(spec, Cost) and len(spec.costs) != len(classes):
            faults.append(
                f"cost: {len(spec.costs)} rows of costs, the data have {len(classes)} classes: "
                f"{_listed(classes)}"
            )
    return faults


def _listed(names: Sequence[str]) -> str:
    """Return names as a line, shortened where there are many."""
    more = f", and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f"{', '.join(names[:MOST_NAMES])}{more}"
