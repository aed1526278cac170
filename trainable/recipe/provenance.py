"""Where a recipe comes from, what it scored, and how far that holds when it is trained again."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from pydantic import Field

from trainable.recipe.base import Spec
from trainable.recipe.metrics import NO_SPREAD

AGREE = "the seeds agree, which tells nothing of other images"


@dataclass(frozen=True)
class ExplainedGap:
    """That test scores are others than validation scores by more than chance allows, and why."""

    what: str  # by how much
    # What was found of how the parts compare; None where that is said already: above it on a page, or in
    # `what` of earlier versions
    causes: tuple[str, ...] | None

    @property
    def means(self) -> str:
        """What was found about the parts, or else what the cause may be."""
        if self.causes is None:
            return ""
        if self.causes:
            return f"{'; '.join(self.causes)} (found in these images)"
        return (
            "perhaps the test images are of another kind, have other shares of classes, or the recipe suits "
            "the validation images by luck"
        )

    @property
    def do(self) -> str:
        """What to do about it."""
        if self.causes is None:
            return ""
        if self.causes:
            return "`tunebook check DATA` says more, and what to do"
        return (
            "`tunebook check DATA` compares the parts; keep what was taken together in one part "
            "(data.group), and take validation images from the test's kind"
        )

    def __str__(self) -> str:
        """The gap in one line."""
        seen = f"{self.what}: {self.means}" if self.means else self.what
        return f"{seen}; {self.do}" if self.do else seen

    def without(self, said: Collection[str]) -> ExplainedGap:
        """Return the gap without the causes that are said already."""
        if not said:
            return self
        return replace(self, causes=tuple(each for each in self.causes or () if each not in said) or None)


def sureness(low: float | None, high: float | None) -> str:
    """Return the 95 % interval of runs with several seeds in words; one without a width claims too much."""
    if low is None or high is None or high - low <= NO_SPREAD:
        return AGREE
    return f"95 % interval {low:.4f} to {high:.4f}"


class FreshRuns(Spec):
    """What a recipe scored when the final of its search trained it again with fresh seeds."""

    metric: str
    seeds: tuple[int, ...]
    scores: tuple[float, ...]
    mean: float
    deviation: Annotated[float, Field(ge=0.0)]  # of a run
    estimate: float  # the mean, drawn towards that of all finalists
    low: float | None = None  # the 95 % interval of the estimate, None where these seeds agree
    high: float | None = None
    gap: float  # of the search's own figure above the estimate
    fresh_splits: bool  # training and validation were drawn anew for each run

    @property
    def sureness(self) -> str:
        """The interval in words, or that there is none."""
        return sureness(self.low, self.high)


class Verification(Spec):
    """What a recipe scored when it was trained again, from its file alone, and whether its figure holds.

    The numbers are None where fewer than two runs finished.
    """

    verified: bool
    metric: str
    part: Literal["test", "validation"]  # that `scores` are of; validation where there is no test part
    seeds: tuple[int, ...]
    scores: tuple[float, ...]
    validation_scores: tuple[float, ...]
    mean: float | None = None
    deviation: float | None = None  # of a run
    claimed: float
    short: float | None = None  # by how much the mean is worse than the claimed score
    allowed: float | None = None  # by how much it may be worse
    # By how much the mean test score differs from the mean validation score of the same runs, in words; None
    # where chance allows the difference
    parts_differ: str | None = None
    # What was found of how the parts compare; None in files of earlier versions, whose `parts_differ` says it
    causes: tuple[str, ...] | None = None
    faults: tuple[str, ...] = ()  # why runs came to nothing
    rule: str

    @property
    def gap(self) -> ExplainedGap | None:
        """That the test scores of these runs are others than their validation scores, if they are."""
        return None if self.parts_differ is None else ExplainedGap(self.parts_differ, self.causes)

    def words(self) -> str:
        """Return in a sentence whether the figure holds, and the numbers that say so."""
        name = self.metric.replace("val_", "test_") if self.part == "test" else self.metric
        verdict = "verified" if self.verified else "not verified"
        if self.mean is None or self.deviation is None or self.short is None or self.allowed is None:
            return f"{verdict}: {'; '.join(self.faults)}"
        faults = f"; {'; '.join(self.faults)}" if self.faults else ""
        side = "worse" if self.short >= 0.0 else "better"
        allowed = f"where {self.allowed:.4f} worse is allowed"
        if self.allowed <= NO_SPREAD:
            allowed = AGREE
            verdict = verdict if self.verified or self.faults else "not known whether it holds"
        elif self.deviation <= NO_SPREAD:
            allowed = f"{AGREE}; {self.allowed:.4f} worse is allowed"
        return (
            f"{verdict}: {name} {self.mean:.4f}, deviation {self.deviation:.4f}, over {len(self.scores)} new "
            f"seeds; {abs(self.short):.4f} {side} than the {self.metric} {self.claimed:.4f} that the recipe "
            f"claims, {allowed}{faults}"
        )


class Dropped(Spec):
    """A technique that was left out: its field, the value that it had, and its mean gain in score."""

    field: str
    value: str
    gain: float


class Simplified(Spec):
    """The techniques that were left out of a recipe, since they gained nothing beyond noise.

    `before` and `after` are mean validation scores over the seeds.
    """

    metric: str
    seeds: tuple[int, ...]
    before: float
    after: float
    dropped: tuple[Dropped, ...]  # none where every technique stays, and so do the recipe's scores

    @property
    def changed(self) -> bool:
        """Whether the recipe is another one since then."""
        return bool(self.dropped)


class Finalized(Spec):
    """The runs by which the way to use a recipe's network was chosen.

    `before` and `after` are mean validation scores over the seeds.
    """

    metric: str
    seeds: tuple[int, ...]
    before: float
    after: float
    latency_ms: float  # of one image, on the machine that measured it

    @property
    def changed(self) -> bool:
        """Whether the recipe is another one since then: only a better way takes the place of its own."""
        return self.after != self.before


class Provenance(Spec):
    """Where a recipe comes from, and what it scored. It is not in the digest and never changes a run.

    `first` says where a person asked for it, if it was a first trial of a study; `data_digest` is that of
    which image is in which part with which label, and `files_digest` of the names, classes and sizes of their
    files; `weights_digest` is that of the file that the run began from; `pruned` is the share that is left of
    the operations of the recipe's network, where that was pruned and the recipe is its fine-tuning: trained
    again it gives the whole network, and not the one that scored `metrics`; `teacher_digest` and
    `teacher_recipe` are those of the weights and the recipe of the network that taught it; `code` has those
    of your own functions.
    """

    search: str | None = None
    trial: int | None = None
    first: str | None = None
    mlflow_run_id: str | None = None
    created: str | None = None
    objective: str | None = None
    metrics: dict[str, float] = Field(default_factory=dict)
    final: FreshRuns | None = None
    simplified: Simplified | None = None
    finalized: Finalized | None = None
    verification: Verification | None = None
    data_digest: str | None = None
    files_digest: str | None = None
    weights_digest: str | None = None
    pruned: Annotated[float, Field(gt=0.0, le=1.0)] | None = None
    teacher_digest: str | None = None
    teacher_recipe: str | None = None
    class_names: tuple[str, ...] = ()
    threads: int | None = None
    device: str | None = None
    micro_batch: int | None = None
    versions: dict[str, str] = Field(default_factory=dict)
    git_commit: str | None = None
    code: dict[str, str] = Field(default_factory=dict)
