"""The report of a search as plain data: what `report.json` holds, and all that the page is made of.

Parts that do not exist yet are None or empty, and `left_out` says why. Scores are those of the objective.
A place says how many of 100 other trials a trial beats, each pair compared at the last rung or epoch that
both have reached (`search.learning.standings`): places are scores at equal fidelity.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from search.learning.next_steps import StepKind
from search.learning.pruning_audit import PruningAudit
from search.record.folder import Caution, Verified
from search.record.journal import RepeatPurpose
from search.record.machines import LeftOut, Machine
from search.record.summary import State
from search.record.trials import TrialState
from search.record.turnaround import Turnaround
from search.record.verdicts import VerdictWord
from spaces.domains import Value
from trainable.recipe.base import Spec
from trainable.recipe.metrics import Mode

ScoreShare = float  # a share in [0, 1]
VERSION: Literal[1] = 1


class ClassScore(Spec):
    """The scores of one class."""

    name: str
    images: int
    recall: ScoreShare | None
    precision: ScoreShare | None
    f1: ScoreShare | None


class Mistake(Spec):
    """One wrong answer."""

    true: str
    predicted: str
    probability: ScoreShare  # of the predicted class
    probability_true: ScoreShare
    thumbnail: str  # the image, as a data URI


class ReportedLabels(Spec):
    """What the best trial's weights answer on a part."""

    trial: int
    # a search never looks at the test part, and neither does its report
    part: Literal["validation"] = "validation"
    images: int
    images_of_part: int | None = None  # where only some of the part's images were scored: all that it has
    accuracy: ScoreShare
    classes: tuple[ClassScore, ...]
    # confusion[true][predicted] counts images; empty where there are too many classes for a matrix
    confusion: tuple[tuple[int, ...], ...]
    # There, the most frequent confusions: the true class, the answer, and how many images
    confused: tuple[tuple[str, str, int], ...] = ()
    mistakes: tuple[Mistake, ...]


class MaskClass(Spec):
    """The scores of one class of pixels; None where the class is in no mask and no answer."""

    name: str
    colour: str  # its colour in the pictures, as #e69f00
    pixels: int
    iou: ScoreShare | None
    low: ScoreShare | None
    high: ScoreShare | None  # the 95 % interval of the IoU, by resampling images
    dice: ScoreShare | None
    boundary_f1: ScoreShare | None = None  # None where `evaluation.metrics` does not ask for it, too
    recall: ScoreShare | None
    precision: ScoreShare | None


class WorstMask(Spec):
    """One of the images that are answered worst; pictures are data URIs."""

    name: str  # the image's path in the data set, or its number
    mean_iou: ScoreShare  # over the classes that its mask or the answer has
    accuracy: ScoreShare
    image: str
    truth: str
    prediction: str
    errors: str  # where the prediction is wrong


class ReportedMasks(Spec):
    """The masks that the best trial's weights answer on a part."""

    trial: int
    part: Literal["validation"] = "validation"
    images: int
    images_of_part: int | None = None  # as of labels
    pixels: int  # how many of their pixels count
    accuracy: ScoreShare
    mean_iou: ScoreShare
    mean_dice: ScoreShare
    classes: tuple[MaskClass, ...]
    confusion: tuple[tuple[int, ...], ...]  # confusion[true][predicted] counts pixels
    worst: tuple[WorstMask, ...]  # the images with the lowest mean IoU, the worst first


class ClassSamples(Spec):
    """Some training images of one class."""

    name: str
    images: int  # so many training images it has; of masks, so many that show it
    thumbnails: tuple[str, ...]  # as data URIs
    colour: str = ""  # of its pixels in these images, as #e69f00; empty where images have one label each


class Samples(Spec):
    """Some training images of each class, or of the first of very many."""

    data: str  # the digest of the data set
    classes: tuple[ClassSamples, ...]


class MlflowPages(Spec):
    """Where MLflow shows a search."""

    # what a browser opens; None where MLflow has no server of its own, and `command` starts one
    experiment: str | None
    run: str | None  # the run of the search; that of a trial has its id in the place of {run} in `trial`
    trial: str | None
    command: str


class PartScores(Spec):
    """What runs of one recipe scored on one part."""

    part: Literal["validation", "test"]
    metric: str
    scores: tuple[float, ...]
    mean: float
    low: float | None
    high: float | None  # the 95 % interval of the mean, by Student's t; None where the runs agree


class Head(Spec):
    """Which search this is, and how far it has come."""

    name: str
    search_id: str | None
    state: State
    reason: str | None  # why it ended as it did
    address: str  # the folder or URI of the search, as it is given to commands
    objective: str
    mode: Mode
    data: str
    classes: int
    train_images: int
    validation_images: int
    budget_trials: int
    budget_epochs: int  # the number of epochs that the longest trial trains
    rungs: tuple[int, ...]  # the epochs after which trials are compared
    rungs_why: str
    # how often a driver began: again where the search was resumed, extended or its pruning audited
    drivers: int
    began: float | None  # seconds since 1970
    versions: dict[str, str]  # of the packages that the last driver ran with
    constraints: str  # the constraints in words; empty without any
    mlflow: MlflowPages | None = None  # None where MLflow has nothing of the search


class SearchAnswer(Spec):
    """What the search has found, and what it took."""

    best: int | None  # the number of the best finished trial
    score: float | None
    own_score: float | None  # the score of the documented recipe, at its last epoch
    # the best trial's estimate over fresh seeds, or else its score, minus that of the documented recipe.
    # Above 0 is better, whatever the direction; None where the best trial is the documented recipe
    gain: float | None
    why_none: str | None  # why there is no best trial
    # the 95 % interval of `score` for other images like those of the validation part; None where not known
    low: float | None = None
    high: float | None = None
    parts: tuple[PartScores, ...] = ()  # the validation and the test part side by side, where test is known
    # what `tunebook export --verify` has found of the best trial's recipe, or of one made of it
    verified: Verified | None
    verified_changed: bool  # whether it was made of it, by `--simplify` or `--finalize`
    diagnosis: tuple[str, ...] = ()  # what the curves of the best trial say, line by line
    epochs_trained: int
    epochs_again: int  # how many of these epochs trained a trial again
    epochs_if_unpruned: int
    saved: ScoreShare
    driver_hours: float
    cpu_hours: float  # hours of attempts at trials, times the processors of each
    gpu_hours: float
    commands: tuple[str, ...]  # the commands that use the answer, or that go on


class AttemptRow(Spec):
    """One attempt at a trial; times are seconds under a driver since the search began."""

    trial: int
    number: int
    lane: int  # attempts at the same time have different lanes: there are as many as trials ran at once
    start: float
    end: float
    first_epoch: int  # the epochs that were done when it began
    # how it ended; `cut` is with the driver that ran it
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
    reason: str | None
    place: str = ""  # the machines and GPUs of its ranks; empty where they are not known
    # times in which no epoch was trained, although none was due to take so long
    stalls: tuple[tuple[float, float], ...] = ()


class LaterDriver(Spec):
    """A driver after the first one: when it began, in seconds under a driver, and what for."""

    at: float
    # an audit trains trials again that were stopped; a search is extended by more trials
    what: Literal["resumed", "audit", "extended"]


class TrialRow(Spec):
    """One trial."""

    id: int
    state: TrialState
    own: bool  # whether it is the documented recipe
    # where a person asked for its recipe, and how that leaves the space; None for other trials
    first: str | None = None
    epochs: int
    score: float | None  # its score at its last epoch
    best_score: float | None
    place: float | None
    sentence: str = ""  # what it trains, in words; empty where its values make no recipe
    values: dict[str, Value]  # by dotted path
    optimizer: str | None = None  # which of timm's it trains with; None for another one
    scores: dict[int, float]  # by epoch
    train_loss: dict[int, float]
    val_loss: dict[int, float]
    seconds: float  # of all its epochs
    attempts: int
    # by attempt, the machines, GPUs and processes of its ranks; empty where they are not known
    places: tuple[str, ...] = ()
    reason: str | None
    costs: dict[str, float]
    on_frontier: bool
    digest: str | None
    mlflow_run_id: str | None


class BestSoFar(Spec):
    """One improvement: after how much work a finished trial was better than all before it."""

    trial: int
    score: float
    epochs: int
    hours: float  # hours under a driver
    trials: int  # the trials that had ended


class Progress(Spec):
    """The improvements in order, and the work done so far."""

    steps: tuple[BestSoFar, ...]
    epochs: int
    hours: float
    trials: int


class BeliefCurve(Spec):
    """What a rule believes of a value, for some of the trials: beliefs may follow other values."""

    says: str
    trials: int
    # how much likelier values are than in uniform draws, at equal distances from the domain's low end to its
    # high end; for options one number each
    density: tuple[float, ...]


class Belief(Spec):
    """A rule: what it believes of one dimension, who says so, and what the trials say."""

    name: str
    path: str
    domain: dict[str, Any]  # as a study writes it, such as {log: [0.001, 1.0]}
    when: str | None  # the condition under which the dimension exists
    reason: str
    source: str
    curves: tuple[BeliefCurve, ...]
    verdict: VerdictWord | None  # None where the dimension has no belief that trials could test
    effect: float | None  # how many more of 100 trials those that follow beat than those that depart
    low: float | None
    high: float | None
    why: str | None  # why the verdict is `untested`
    trials: tuple[int, ...]  # the trials that have the dimension
    positions: tuple[ScoreShare, ...]  # the position of each one's value in the domain


class Importance(Spec):
    """The importance of one dimension, as a share of all."""

    name: str
    share: ScoreShare
    low: ScoreShare
    high: ScoreShare


class Importances(Spec):
    """The importances of the dimensions, the largest first."""

    trials: int
    top: ScoreShare  # they say what decides who is among the best trials, of this share of all
    # how much of the variance of places the values explain, out of sample; 0 or less: nothing
    explained: float | None
    fields: tuple[Importance, ...]


class RepeatRow(Spec):
    """A run that trained a trial's recipe again, outside the search."""

    id: int
    of: int  # the number of the trial
    purpose: RepeatPurpose
    seed: int | None
    split: int | None  # the seed of the split into training and validation, if it was drawn anew
    state: TrialState
    epochs: int
    score: float | None  # its score at its last epoch


class FinalistRow(Spec):
    """One of the best trials, trained again with other seeds; its estimate is that of
    `search.record.finals`, and is None where the finalist has no two runs that count."""

    trial: int
    winner: bool
    search_score: float  # the figure of the search itself
    scores: tuple[float | None, ...]  # one for each run; None where it has not finished
    mean: float | None
    deviation: float | None  # the standard deviation of a run
    estimate: float | None  # the mean, drawn towards that of all finalists
    low: float | None
    high: float | None  # the 95 % interval of the estimate
    gap: float | None  # by how much the search's own figure is above the estimate


class RecipeLine(Spec):
    """One field of the best recipe."""

    path: str
    value: str
    reason: str
    source: str
    varied: bool  # whether the search drew it


class HelpfulStep(Spec):
    """One thing that helps after the search, as `tunebook refine` proposes it."""

    kind: StepKind
    do: str
    why: str


class NextFinding(Spec):
    """One finding of `tunebook refine`."""

    kind: str
    about: str
    seen: str
    rule: str
    source: str
    advice: tuple[str, ...]


class NextChange(Spec):
    """One change of the next study."""

    field: str
    before: str
    after: str
    why: str


class NextRound(Spec):
    """What `tunebook refine` says of the next search."""

    steps: tuple[HelpfulStep, ...] = ()  # the first thing first; the last may be to stop
    findings: tuple[NextFinding, ...]
    changes: tuple[NextChange, ...]
    left_alone: tuple[tuple[str, str], ...]  # what was examined and left as it is, and why
    command: str


class ComparedSearch(Spec):
    """Another search, to be compared with this one."""

    name: str
    address: str
    state: State
    objective: str
    best: int | None
    score: float | None  # the best trial's figure in the search: that of the best of many, and a little lucky
    own_score: float | None
    estimate: float | None  # the best trial's estimate over fresh seeds; None where it was not trained again
    low: float | None
    high: float | None  # the 95 % interval of the estimate
    trials: int
    progress: Progress
    recipe: dict[str, str]  # the whole recipe of its best trial, by dotted path, in words


class Report(Spec):
    """The whole report."""

    version: Literal[1] = VERSION
    made: float  # seconds since 1970
    search: Head
    cautions: tuple[Caution, ...] = ()  # what to know before the answer is trusted
    answer: SearchAnswer
    trials: tuple[TrialRow, ...]
    attempts: tuple[AttemptRow, ...]
    later_drivers: tuple[LaterDriver, ...]
    # what the time of the workers was used for, each of which trains one trial at a time
    turnaround: Turnaround | None = None
    # what each machine did; empty where an earlier version has driven the search
    machines: tuple[Machine, ...] = ()
    machines_left_out: tuple[LeftOut, ...] = ()
    progress: Progress
    beliefs: tuple[Belief, ...]
    verdicts: str  # the verdicts in one line, and what the figures mean
    importances: Importances | None
    finalists: tuple[FinalistRow, ...] = ()
    pruning_audit: PruningAudit | None  # what `tunebook audit-pruning` has found
    repeats: tuple[RepeatRow, ...] = ()  # the runs of finalists, and of audited trials
    answers: ReportedLabels | None
    masks: ReportedMasks | None = None  # in the place of `answers`, where images have masks
    samples: Samples | None = None
    recipe: tuple[RecipeLine, ...]
    next_round: NextRound | None
    compared: tuple[ComparedSearch, ...] = ()
    left_out: dict[str, str] = Field(default_factory=dict)  # why a part is missing, by its name
