"""Asks what the best trials' training curves say: longer runs, more regularisation, or less."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

from search.learning.evidence import (
    PLAYBOOK,
    DiagnosedTrial,
    Evidence,
    LeftAlone,
    ProposedEdit,
    SearchFinding,
    overridden,
)
from search.learning.shifts import Shifts, shifts
from spaces.domains import listed, shown
from trainable.curves.task_curves import Remedy

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
RULE = "the best trial's verdict, shared by more than half of the best few finished ones"
SOURCE = f"{PLAYBOOK}, Examining the training curves; limits: trainable.curves.Thresholds"


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
        case "healthy" | "unstable" | "diverged":
            yield LeftAlone("the best trials' curves", f"{verdict}: {_seen(agreeing, len(diagnosed))}")


def _longer(evidence: Evidence, agreeing: Sequence[DiagnosedTrial], looked_at: int) -> SearchFinding:
    (change,) = (each for each in agreeing[0].diagnosis.changes if each.path == "loop.epochs")
    hours = evidence.search.study.budget.hours
    advice = (f"budget.hours {hours:g} may end the longer search early; raise it too",) if hours else ()
    return SearchFinding(
        "still improving",
        _trials(agreeing),
        _seen(agreeing, looked_at),
        RULE,
        f"{PLAYBOOK}, Deciding how long to train when training is compute-bound; {SOURCE}",
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
    found = _few_at_once(shifts(evidence, of_fields, changed), of_fields)
    longer = tuple(_epochs(each) for each in diagnosis.changes if each.path == "loop.epochs")
    others = [each for each in diagnosis.changes if each not in of_fields and each.path != "loop.epochs"]
    yield SearchFinding(
        "overfit" if diagnosis.verdict == "overfit" else "underfit",
        _trials(agreeing),
        _seen(agreeing, looked_at),
        RULE,
        f"003:84; {SOURCE}",
        (*longer, *found.proposed_edits),
        tuple(f"for you to decide: {each}" for each in others),
    )
    yield from found.left_alone


def _few_at_once(found: Shifts, asked: Sequence[Remedy]) -> Shifts:
    """Return the same shifts, but of the regularisers that the best trial lacked only the strongest few."""
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
