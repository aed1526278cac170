"""What helps after a search, in the order in which it is worth doing: data before all, and when to stop.

Whoever mends the images first does not search for the recipe that knows copies by heart; whoever makes the
part larger does not search among trials that it cannot tell apart. Where nothing is left that helps, the
proper answer is to stop, and says why.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from shlex import quote
from typing import Literal, get_args

from search.learning.best_trials import EPOCHS, FRACTION, larger_part
from search.learning.cautions import METRIC, RULE, copies_in_validation
from search.learning.evidence import Edit, Evidence, LeftAlone, ProposedEdit, SearchFinding
from search.learning.search import Search
from search.learning.standings import LEAST_TRIALS, has_result
from search.record.folder import Caution
from spaces.domains import counted
from spaces.rules.tasks import rules_of
from trainable.diagnosis import curves_of
from trainable.terminal import program_name

StepKind = Literal[
    "data", "split", "metric", "length", "size", "network", "ranges", "trials", "stop"
]  # in this order they are proposed

SIZE = "data.image_size"
KIND_OF_PATH: dict[str, StepKind] = {FRACTION: "split", METRIC: "metric", EPOCHS: "length", SIZE: "size"}
LARGER = 1.5  # images are proposed larger if they are stored so many times larger than they are seen; ours
SIDES = 4  # a proposed side is a multiple of it


@dataclass(frozen=True)
class NextStep:
    """One thing that helps: a change of the next study, a command, or to stop."""

    kind: StepKind
    do: str
    why: str


def next_steps(
    search: Search, findings: Sequence[SearchFinding], edits: Sequence[Edit], more_trials: str
) -> tuple[NextStep, ...]:
    """Return what helps after a search, the first thing first; `more_trials` is the command that draws more.

    More trials are proposed only where nothing else is to be changed and the later half of the trials has
    gained something, so that no two hints send a person from one to the other.
    """
    steps = [*_of_images(search), *map(_of_edit, edits)]
    steps += [
        NextStep("network", line, finding.seen)
        for finding in findings
        if finding.kind == "plateau"
        for line in finding.advice
    ]
    ceiling, ended = caution_of(search.cautions, "ceiling"), sum(map(has_result, search.trials))
    since = since_when_nothing_was_gained(search)
    if ceiling is not None and not search.images_checked:
        check = f"`{program_name()} check {quote(search.home.address)}` looks at the images"
        steps.append(NextStep("data", check, f"{ceiling.what}; no look at these images is recorded"))
    elif ceiling is not None and caution_of(search.cautions, "data") is None:
        why = f"{ceiling.what}; nothing was found to be wrong with these images"
        steps.append(NextStep("stop", _stop(steps), why))
    elif ceiling is None and since and not any(each.kind == "still improving" for each in findings):
        steps.append(NextStep("stop", _stop(steps), since))
    elif not steps and ceiling is None:
        early = f"{ended} trials have ended, and {LEAST_TRIALS} are needed to say more"
        late = "the best trial came late: more trials may gain more"
        steps.append(NextStep("trials", more_trials, early if ended < LEAST_TRIALS else late))
    return tuple(sorted(steps, key=lambda each: get_args(StepKind).index(each.kind)))


def _stop(others: Sequence[NextStep]) -> str:
    return "or stop here" if others else "stop here"


def _of_edit(edit: Edit) -> NextStep:
    kind = KIND_OF_PATH.get(edit.path, "ranges")
    return NextStep(kind, f"{edit.field}: {edit.before} -> {edit.after}", edit.why)


def _of_images(search: Search) -> Iterator[NextStep]:
    """Yield what mends the images, and then what makes validation tell of the test images."""
    found = [each for each in search.cautions if each.kind == "data"]
    check = f"{program_name()} check {quote(search.home.address)} --write-exclusions copies.csv"
    leave_out = f"`{check}` lists the copies; look at them, and set data.exclude: copies.csv"
    for each in found:
        is_listed = each.copies_in is not None and search.study.data.exclude is None
        if do := leave_out if is_listed else each.do:
            yield NextStep("data", do, each.brief)
    if (gap := caution_of(search.cautions, "gap")) is not None:
        first = "mend the images first, and then " if found else ""
        yield NextStep("split", f"{first}take validation images from the test's kind", gap.what)


def caution_of(cautions: Sequence[Caution], kind: str) -> Caution | None:
    """Return the first caution of a kind; None where there is none."""
    return next((each for each in cautions if each.kind == kind), None)


# --- questions of the audit ---------------------------------------------------------------------------


def of_ceiling(evidence: Evidence, ceiling: Caution) -> Iterator[SearchFinding | LeftAlone]:
    """Yield what makes a part tell recipes apart again, where the best make next to no mistake on it.

    Ranges, lengths and networks are not asked about: their differences are luck there.
    """
    yield LeftAlone("ranges, lengths, networks", "at a ceiling, differences between trials are luck")
    if copies_in_validation(evidence.search.findings):
        yield LeftAlone("the ceiling", "copies of training images are known by heart: leave them out first")
        return
    yield SearchFinding(
        "ceiling",
        ceiling.about,
        ceiling.what,
        RULE,
        "docs/decisions/0063",
        (*larger_part(evidence), *_by_loss(evidence)),
    )
    if evidence.search.study.budget.target is not None:
        yield LeftAlone(METRIC, "budget.target is a score of this metric")


def _by_loss(evidence: Evidence) -> Iterator[ProposedEdit]:
    if evidence.search.study.budget.target is None:
        why = "losses still differ where hardly an image is wrong"
        yield ProposedEdit(METRIC, ("val_loss",), why)


def of_plateau(evidence: Evidence, changed: Set[str]) -> Iterator[SearchFinding | LeftAlone]:
    """Yield what other trials cannot give: larger images and another network, where the later half of the
    trials gained nothing and nothing else is to be changed."""
    since = since_when_nothing_was_gained(evidence.search)
    if changed or not since:
        return
    larger, network = tuple(_larger_images(evidence)), tuple(_other_network(evidence))
    if larger or network:
        rule = "no trial of the later half is better than luck, and nothing else is to be changed"
        yield SearchFinding(
            "plateau", evidence.summary.objective, since, rule, "ours", larger, () if larger else network
        )


def _larger_images(evidence: Evidence) -> Iterator[ProposedEdit]:
    facts = evidence.search.facts
    stored, seen = facts.stored_side, facts.image_size
    if stored is not None and stored >= LARGER * seen:
        to = min(2 * seen, stored) // SIDES * SIDES
        yield ProposedEdit(SIZE, (to,), f"images are stored at {stored} px and seen at {seen}")


def _other_network(evidence: Evidence) -> Iterator[str]:
    """Yield the command that compares networks; nothing where the study names one, or images are small."""
    facts, study = evidence.search.facts, evidence.search.study
    if facts.task != "classification" or facts.stored_side is None:
        return
    if facts.stored_side >= rules_of(facts.task).start.least_side:
        data = quote(study.data.path)
        yield f"`{program_name()} backbones {data} -o study.yaml` compares pretrained networks"


# --- since when nothing was gained --------------------------------------------------------------------


def since_when_nothing_was_gained(search: Search) -> str:
    """Return from which trial on nothing was gained, in words.

    That is the first trial within the noise of the best score; where no noise of the metric is known, any
    gain counts. It is empty where more than half of the trials came before it, where too few have ended,
    where one that has not finished is better already, and while the search runs.
    """
    summary = search.summary
    best, ended = summary.best, [each for each in summary.trials if has_result(each)]
    metric, sign = summary.objective, summary.sign
    if summary.state == "running" or best is None or metric not in best.metrics:
        return ""
    diagnosis = summary.diagnosis
    known = None if diagnosis is None else curves_of(search.info.task).noise(metric, diagnosis.figures)
    noise, score = known or 0.0, sign * best.metrics[metric]
    first = min(each.id for each in summary.best_first if sign * each.metrics[metric] >= score - noise)
    later = sum(each.id > first for each in ended)
    is_better = any(
        sign * each.metrics[metric] > score + noise for each in summary.trials if metric in each.metrics
    )
    if len(ended) < LEAST_TRIALS or 2 * later < len(ended) or is_better:
        return ""
    within, luck = "", ""
    if known is not None:
        within, luck = f" within the noise ({100.0 * known:.1f} points)", " that differs from luck"
    as_good = "is the best" if first == best.id else f"was as good{within}"
    return f"trial {first} {as_good}: the {counted(later, 'trial')} after it gained nothing{luck}"
