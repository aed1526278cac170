"""Questions about the best few trials: what do their training curves ask for, and is the winner known?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from shlex import quote
from typing import NamedTuple, assert_never

from search.learning.evidence import (
    PLAYBOOK,
    TOP,
    DiagnosedTrial,
    Evidence,
    LeftAlone,
    ProposedEdit,
    SearchFinding,
    overridden,
)
from search.learning.proposals import Shifts, shifts
from search.learning.standings import compared_epochs
from spaces.domains import Choice, listed, shown
from trainable.curves.levels import Thresholds
from trainable.curves.remedies import remedies
from trainable.curves.task_curves import Remedy
from trainable.data.info import is_split_here
from trainable.diagnosis import curves_of
from trainable.recipe.training import AVERAGING

# fields, or sections, that regularise a network: the next search expects more or less of them
REGULARISERS = (
    "optimizer.weight_decay",
    "optimizer.sgd_weight_decay",
    "regularisation.label_smoothing",
    "augmentation.",
    "model.dropout",
    "model.stochastic_depth",
)
# regularisers that a recipe has or has not, the strongest first: by the gains of the PaddleClas guide,
# 003:70-82, then by our own judgement
SWITCHES = (
    "augmentation.mixing.kind",
    "augmentation.masking.kind",
    "augmentation.policy.kind",
    "augmentation.crop.kind",
    "augmentation.flip_probability",
    "regularisation.label_smoothing",
    "model.dropout",
)
SWITCHED_AT_ONCE = 2  # with more of them new in one search nobody can say which of them helped; our choice
EPOCHS = "budget.epochs"
VERDICT_RULE = "the best trial's verdict, shared by more than half of the best few finished ones"
VERDICT_SOURCE = f"{PLAYBOOK}, Examining the training curves; limits: trainable.curves.levels.Thresholds"
# this noise is more than most changes of a recipe gain (PaddleClas guide, 003:70-82: 0.1 to 1.1); less noise
# hides little
NOISE_POINTS = 100.0 * Thresholds().swing
# the largest part of the images for validation: with more, too many would be missing in training; our choice
LARGEST_FRACTION = 0.3
# the fields that bring the rate to rest at the end of a run
LATE_RATE = ("schedule.final_factor", "schedule.kind")
FRACTION = "data.validation_fraction"
CURVES = f"{PLAYBOOK}, Examining the training curves"
REPEATS = "Determining whether to adopt a training pipeline change or hyperparameter configuration"


def of_curves(evidence: Evidence, changed: Set[str]) -> Iterator[SearchFinding | LeftAlone]:
    """Yield one finding, if the best trial's verdict asks for a change and most of the best few share it."""
    diagnosed = evidence.curves
    if not diagnosed or diagnosed[0].trial != evidence.summary.best:
        yield LeftAlone("the best trials' curves", "the journal lacks figures that a verdict needs")
        return
    verdict = diagnosed[0].diagnosis.verdict
    agreeing = [each for each in diagnosed if each.diagnosis.verdict == verdict]
    if 2 * len(agreeing) <= len(diagnosed):
        text = ", ".join(f"trial {each.trial.id} is {each.diagnosis.verdict}" for each in diagnosed)
        yield LeftAlone("the best trials' curves", f"they differ: {text}")
        return
    match verdict:
        case "still improving":
            yield _longer(evidence, agreeing, len(diagnosed))
        case "overfit" | "underfit":
            yield from _regularised(evidence, agreeing, len(diagnosed), changed)
        case "at its ceiling" | "healthy" | "unstable" | "diverged":
            yield LeftAlone("the best trials' curves", f"{verdict}: {_seen(agreeing, len(diagnosed))}")


def _longer(evidence: Evidence, agreeing: Sequence[DiagnosedTrial], looked_at: int) -> SearchFinding:
    (change,) = (each for each in agreeing[0].diagnosis.changes if each.path == "loop.epochs")
    hours = evidence.search.study.budget.hours
    advice = (f"budget.hours {hours:g} may end the longer search early; raise it too",) if hours else ()
    return SearchFinding(
        "still improving",
        _trials(agreeing),
        _seen(agreeing, looked_at),
        VERDICT_RULE,
        f"{PLAYBOOK}, Deciding how long to train when training is compute-bound; {VERDICT_SOURCE}",
        (_epochs(change),),
        advice,
    )


def _regularised(
    evidence: Evidence, agreeing: Sequence[DiagnosedTrial], looked_at: int, changed: Set[str]
) -> Iterator[SearchFinding | LeftAlone]:
    """Compare training with validation accuracy: the next trials are regularised more, or less (003:84)."""
    diagnosis = agreeing[0].diagnosis
    assert diagnosis.verdict in ("overfit", "underfit")
    of_fields = [each for each in diagnosis.changes if each.path.startswith(REGULARISERS)]
    shifted = _few_at_once(shifts(evidence, of_fields, changed), of_fields)
    longer = tuple(_epochs(each) for each in diagnosis.changes if each.path == "loop.epochs")
    others = [each for each in diagnosis.changes if each not in of_fields and each.path != "loop.epochs"]
    yield SearchFinding(
        "overfit" if diagnosis.verdict == "overfit" else "underfit",
        _trials(agreeing),
        _seen(agreeing, looked_at),
        VERDICT_RULE,
        f"003:84; {VERDICT_SOURCE}",
        (*longer, *shifted.proposed_edits),
        tuple(f"for you to decide: {each}" for each in others),
    )
    yield from shifted.left_alone


def _few_at_once(found: Shifts, asked: Sequence[Remedy]) -> Shifts:
    """Switch on only the strongest few of the regularisers that the best trial lacked; the others wait."""
    off = {overridden(each.path): each for each in asked if each.now in (None, "none", 0.0)}
    switches = [overridden(path) for path in SWITCHES]
    proposed = {each.path for each in found.proposed_edits}
    switched = [each for each in switches if each in off and each in proposed]
    now, later = switched[:SWITCHED_AT_ONCE], switched[SWITCHED_AT_ONCE:]
    why = f"{' and '.join(off[each].path for each in now)} are switched on first, to see which of them helps"
    waits = tuple(
        LeftAlone(each.path, f"{shown(each.now)} -> {shown(each.to)} waits for the next round: {why}")
        for each in (off[path] for path in later)
    )
    edits = tuple(each for each in found.proposed_edits if each.path not in later)
    return Shifts(edits, (*found.left_alone, *waits))


def _epochs(change: Remedy) -> ProposedEdit:
    return ProposedEdit(EPOCHS, (change.to,), f"{change.why} ({change.source})")


def _seen(agreeing: Sequence[DiagnosedTrial], looked_at: int) -> str:
    first = agreeing[0]
    text = f"trial {first.trial.id}: {'; '.join(first.diagnosis.reasons)}"
    return f"{text}; {len(agreeing)} of the best {looked_at} agree" if looked_at > 1 else text


def _trials(diagnosed: Sequence[DiagnosedTrial]) -> str:
    text = listed(str(each.trial.id) for each in diagnosed)
    return f"trial {text}" if len(diagnosed) == 1 else f"trials {text}"


class _Best(NamedTuple):
    """The best few of the trials that were compared after an epoch."""

    epoch: int
    trials: tuple[int, ...]  # the trials' numbers, the best first
    spread: float  # the spread between their validation accuracies, in points

    def __str__(self) -> str:
        return f"trials {listed(map(str, self.trials))}"


def of_noise(evidence: Evidence, changed: Set[str]) -> Iterator[SearchFinding | LeftAlone]:
    """Yield a finding if the best few differ by less than the best one's noise, and that noise is large.

    That noise is of images that are right or wrong, which says nothing of pixels.
    """
    match evidence.search.facts.task:
        case "classification":
            pass
        case "segmentation":
            yield LeftAlone("the best trials' noise", "it is known of images alone, not of pixels")
            return
        case other:
            assert_never(other)
    best = _best(evidence)
    if best is None or not evidence.curves:
        yield LeftAlone("the best trials' noise", f"fewer than {TOP} trials can be compared")
        return
    winner = evidence.curves[0]
    noise = winner.diagnosis.figures["noise_points"]
    seen = f"{best} differ by {best.spread:.1f} points after {best.epoch} epochs, noise is {noise:.1f}"
    if best.spread >= noise or noise < NOISE_POINTS:
        yield LeftAlone("the best trials' noise", seen)
        return
    calmer, images = _calmer(evidence, winner, changed), evidence.search.info.validation_images
    yield SearchFinding(
        "noisy",
        str(best),
        seen,
        f"the best {TOP} within the noise (two standard errors of {images} images, or twice the late swings) "
        f"and {NOISE_POINTS:g} points or more",
        f"{CURVES}, and {REPEATS}; the limit is ours",
        (*_for_noise(evidence, noise), *calmer.proposed_edits),
        tuple(_advice(evidence)),
    )
    yield from calmer.left_alone


def _best(evidence: Evidence) -> _Best | None:
    """Return the best at the last epoch after which enough trials were compared; pruning lets few finish."""
    metric, sign = evidence.summary.objective, evidence.summary.sign
    for epoch in reversed(compared_epochs(evidence.summary)):
        metrics = {
            trial.id: each.result.metrics()
            for trial in evidence.compared_trials
            for each in trial.history
            if each.epoch == epoch and not each.diverged
        }
        if len(metrics) >= TOP:
            trials = sorted(metrics, key=lambda trial: -sign * metrics[trial][metric])[:TOP]
            scores = [metrics[trial]["val_accuracy"] for trial in trials]
            return _Best(epoch, tuple(trials), 100.0 * (max(scores) - min(scores)))
    return None


def _for_noise(evidence: Evidence, noise: float) -> Iterator[ProposedEdit]:
    """Yield a larger validation part, if too few images cause the noise."""
    if not _swings(evidence.curves[0]):
        yield from larger_part(evidence, (noise / NOISE_POINTS) ** 2)


def larger_part(evidence: Evidence, factor: float = 2.0) -> Iterator[ProposedEdit]:
    """Yield a validation part that is larger by a factor, twice at most, if images are split here."""
    study, info = evidence.search.study, evidence.search.info
    fraction, images = study.data.validation_fraction, info.validation_images
    wanted = min(LARGEST_FRACTION, fraction * min(2.0, factor))
    if not is_split_here(study.data, info) or wanted < 1.2 * fraction:
        return
    why = (
        f"{images} validation images cannot tell the best trials apart; scores of this search and the next "
        "come from different images"
    )
    yield ProposedEdit(FRACTION, (float(f"{wanted:.2g}"),), why)


def _swings(winner: DiagnosedTrial) -> bool:
    """Say whether the late epochs' swings cause the noise, more than the small number of images."""
    figures = winner.diagnosis.figures
    return 2.0 * figures["swing_points"] >= figures["noise_points"]


def _calmer(evidence: Evidence, winner: DiagnosedTrial, changed: Set[str]) -> Shifts:
    """Return a rate that comes to rest and averaged weights, where accuracies swing to the end."""
    if not _swings(winner):
        return Shifts((), ())
    recipe = winner.trial.whole_recipe
    left = winner.diagnosis.figures["rate_left"]
    calmer = remedies("unstable", recipe, curves_of(recipe.task), rate_left=left)
    late_rate = [each for each in calmer if each.path in LATE_RATE]
    return shifts(evidence, [*late_rate, *_averaged(evidence, winner)], changed)


def _averaged(evidence: Evidence, winner: DiagnosedTrial) -> Iterator[Remedy]:
    """Yield averaged weights, where the space has them and the best trial has not."""
    for each in evidence.space.dimensions:
        has = each.path == AVERAGING and isinstance(each.domain, Choice) and "ema" in each.domain
        if has and (now := winner.trial.values.get(AVERAGING)) != "ema":
            yield Remedy(AVERAGING, now, "ema", "averaged weights swing less than the last ones", CURVES)


def _advice(evidence: Evidence) -> Iterator[str]:
    """Yield how the best trials are trained again with fresh seeds: in a search, and now."""
    if evidence.summary.finalists is None:
        yield f"`finalists: {{top: {TOP}, seeds: 3}}` in a study trains the best {TOP} again with fresh seeds"
    if evidence.summary.finals is not None and evidence.summary.finals.over:
        yield "the final has trained the winner again; this scores it on the test part, if there is one:"
    else:
        yield "before you trust the winner, train it again with fresh seeds:"
    yield f"  tunebook export {quote(str(evidence.search.folder))} -o best.yaml --verify 3"
