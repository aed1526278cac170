"""Defines the report of a search as plain data: what `report.json` holds, and all that the page is made of.

Parts that do not exist yet are None or empty, and `left_out` says why. Scores are those of the objective.
A place says how many of 100 other trials a trial beats, each pair compared at the last rung or epoch that
both have reached (`search.learning.standings`): places are scores at equal fidelity.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from search.learning.pruning_audit import PruningAudit
from search.record.machines import LeftOut, Machine
from search.record.repeats import Purpose
from search.record.summary import State
from search.record.trials import TrialState
from search.record.turnaround import Turnaround
from search.record.verdicts import Word
from search.record.verification import Verified
from search.reporting.answered import Answers, MaskAnswers, Share
from spaces.domains import Value
from trainable.recipe.base import Spec
from trainable.recipe.metrics import Mode

VERSION: Literal[1] = 1


class Head(Spec):
    """Says which search this is, and how far it has come."""

    name: str
    search_id: str | None
    state: State
    reason: str | None
    """Why it ended as it did."""
    address: str
    """The folder or URI of the search, as it is given to commands."""
    objective: str
    mode: Mode
    data: str
    classes: int
    train_images: int
    validation_images: int
    budget_trials: int
    budget_epochs: int
    """The number of epochs that the longest trial trains."""
    rungs: tuple[int, ...]
    """The epochs after which trials are compared."""
    rungs_why: str
    drivers: int
    """How often a driver began: again where the search was resumed, extended or its pruning audited."""
    began: float | None
    """Seconds since 1970."""
    versions: dict[str, str]
    """Of the packages that the last driver ran with."""
    constraints: str
    """The constraints in words; empty without any."""


class Answer(Spec):
    """Holds what the search has found, and what it took."""

    best: int | None
    """The number of the best finished trial."""
    score: float | None
    own_score: float | None
    """The score of the documented recipe, at its last epoch."""
    gain: float | None
    """The best trial's estimate over fresh seeds, or else its score, minus that of the documented recipe.

    Above 0 is better, whatever the direction; None where the best trial is the documented recipe.
    """
    why_none: str | None
    """Why there is no best trial."""
    verified: Verified | None
    """What `tunebook export --verify` has found of the best trial's recipe, or of one made of it."""
    verified_changed: bool
    """Whether it was made of it, by `--simplify` or `--finalize`."""
    diagnosis: tuple[str, ...] = ()
    """What the curves of the best trial say, line by line."""
    epochs_trained: int
    epochs_again: int
    """Those of them that trained a trial again."""
    epochs_if_unpruned: int
    saved: Share
    driver_hours: float
    cpu_hours: float
    """Hours of attempts at trials, times the processors of each."""
    gpu_hours: float
    commands: tuple[str, ...]
    """The commands that use the answer, or that go on."""


class Attempt(Spec):
    """Describes one attempt at a trial; times are seconds under a driver since the search began."""

    trial: int
    number: int
    lane: int
    """Attempts at the same time have different lanes: there are as many as trials ran at once."""
    start: float
    end: float
    first_epoch: int
    """The epochs that were done when it began."""
    outcome: Literal[
        "running",
        "finished",
        "stopped",
        "diverged",
        "failed",
        "infeasible",
        "paused",
        "retried",
        "preempted",
        "cut",
    ]
    """How it ended; `cut` is with the driver that ran it."""
    reason: str | None
    place: str = ""
    """The machines and GPUs of its ranks; empty where they are not known."""
    stalls: tuple[tuple[float, float], ...] = ()
    """Times in which no epoch was trained, although none was due to take so long."""


class LaterDriver(Spec):
    """Says when a driver after the first one began, in seconds under a driver, and what for."""

    at: float
    what: Literal["resumed", "audit", "extended"]
    """An audit trains trials again that were stopped; a search is extended by more trials."""


class TrialRow(Spec):
    """Describes one trial."""

    id: int
    state: TrialState
    own: bool
    """Whether it is the documented recipe."""
    first: str | None = None
    """Where a person asked for its recipe, and how that leaves the space; None for other trials."""
    epochs: int
    score: float | None
    """Its score at its last epoch."""
    best_score: float | None
    place: float | None
    values: dict[str, Value]
    """By dotted path."""
    scores: dict[int, float]
    """By epoch."""
    train_loss: dict[int, float]
    val_loss: dict[int, float]
    seconds: float
    """Of all its epochs."""
    attempts: int
    places: tuple[str, ...] = ()
    """By attempt, the machines, GPUs and processes of its ranks; empty where they are not known."""
    reason: str | None
    costs: dict[str, float]
    on_frontier: bool
    digest: str | None
    mlflow_run_id: str | None


class BestSoFar(Spec):
    """Holds one improvement: after how much work a finished trial was better than all before it."""

    trial: int
    score: float
    epochs: int
    hours: float
    """Hours under a driver."""
    trials: int
    """The trials that had ended."""


class Progress(Spec):
    """Holds the improvements in order, and the work done so far."""

    steps: tuple[BestSoFar, ...]
    epochs: int
    hours: float
    trials: int


class BeliefCurve(Spec):
    """Holds what a rule believes of a value, for some of the trials: beliefs may follow other values."""

    says: str
    trials: int
    density: tuple[float, ...]
    """How much likelier values are than in uniform draws, at equal distances from the domain's low end to its
    high end; for options one number each."""


class Belief(Spec):
    """Holds a rule: what it believes of one dimension, who says so, and what the trials say."""

    name: str
    path: str
    domain: dict[str, Any]
    """As a study writes it, such as {log: [0.001, 1.0]}."""
    when: str | None
    """The condition under which the dimension exists."""
    reason: str
    source: str
    curves: tuple[BeliefCurve, ...]
    verdict: Word | None
    """None where the dimension has no belief that trials could test."""
    effect: float | None
    """How many more of 100 trials those that follow beat than those that depart."""
    low: float | None
    high: float | None
    why: str | None
    """Why the verdict is `untested`."""
    trials: tuple[int, ...]
    """The trials that have the dimension."""
    positions: tuple[Share, ...]
    """The position of each one's value in the domain."""


class Importance(Spec):
    """Holds the importance of one dimension, as a share of all."""

    name: str
    share: Share
    low: Share
    high: Share


class Importances(Spec):
    """Holds the importances of the dimensions, the largest first."""

    trials: int
    top: Share
    """They say what decides who is among the best trials, of this share of all."""
    explained: float | None
    """How much of the variance of places the values explain, out of sample; 0 or less: nothing."""
    fields: tuple[Importance, ...]


class RepeatRow(Spec):
    """Describes a run that trained a trial's recipe again, outside the search."""

    id: int
    of: int
    """The number of the trial."""
    purpose: Purpose
    seed: int | None
    split: int | None
    """The seed of the split into training and validation, if it was drawn anew."""
    state: TrialState
    epochs: int
    score: float | None
    """Its score at its last epoch."""


class Finalist(Spec):
    """Holds one of the best trials, trained again with other seeds; its estimate is that of
    `search.record.finals`, and is None where the finalist has no two runs that count."""

    trial: int
    winner: bool
    search_score: float
    """The figure of the search itself."""
    scores: tuple[float | None, ...]
    """One for each run; None where it has not finished."""
    mean: float | None
    deviation: float | None
    """The standard deviation of a run."""
    estimate: float | None
    """The mean, drawn towards that of all finalists."""
    low: float | None
    high: float | None
    """The 95 % interval of the estimate."""
    gap: float | None
    """By how much the search's own figure is above the estimate."""


class RecipeLine(Spec):
    """Holds one field of the best recipe."""

    path: str
    value: str
    reason: str
    source: str
    varied: bool
    """Whether the search drew it."""


class NextFinding(Spec):
    """Holds one finding of `tunebook refine`."""

    kind: str
    about: str
    seen: str
    rule: str
    source: str
    advice: tuple[str, ...]


class NextChange(Spec):
    """Holds one change of the next study."""

    field: str
    before: str
    after: str
    why: str


class NextRound(Spec):
    """Holds what `tunebook refine` says of the next search."""

    findings: tuple[NextFinding, ...]
    changes: tuple[NextChange, ...]
    left_alone: tuple[tuple[str, str], ...]
    """What was examined and left as it is, and why."""
    command: str


class Compared(Spec):
    """Holds another search, to be compared with this one."""

    name: str
    address: str
    state: State
    objective: str
    best: int | None
    score: float | None
    """The best trial's figure in the search: that of the best of many, and a little lucky."""
    own_score: float | None
    estimate: float | None
    """The best trial's estimate over fresh seeds; None where it was not trained again."""
    low: float | None
    high: float | None
    """The 95 % interval of the estimate."""
    trials: int
    progress: Progress
    recipe: dict[str, str]
    """The whole recipe of its best trial, by dotted path, in words."""


class Report(Spec):
    """Is the whole report."""

    version: Literal[1] = VERSION
    made: float
    """Seconds since 1970."""
    search: Head
    answer: Answer
    trials: tuple[TrialRow, ...]
    attempts: tuple[Attempt, ...]
    later_drivers: tuple[LaterDriver, ...]
    turnaround: Turnaround | None = None
    """What the time of the workers was used for, each of which trains one trial at a time."""
    machines: tuple[Machine, ...] = ()
    """What each machine did; empty where an earlier version has driven the search."""
    machines_left_out: tuple[LeftOut, ...] = ()
    progress: Progress
    beliefs: tuple[Belief, ...]
    verdicts: str
    """The verdicts in one line, and what the figures mean."""
    importances: Importances | None
    finalists: tuple[Finalist, ...] = ()
    pruning_audit: PruningAudit | None
    """What `tunebook audit-pruning` has found."""
    repeats: tuple[RepeatRow, ...] = ()
    """The runs of finalists, and of audited trials."""
    answers: Answers | None
    masks: MaskAnswers | None = None
    """In the place of `answers`, where images have masks."""
    recipe: tuple[RecipeLine, ...]
    next_round: NextRound | None
    compared: tuple[Compared, ...] = ()
    left_out: dict[str, str] = Field(default_factory=dict)
    """Why a part is missing, by its name."""
