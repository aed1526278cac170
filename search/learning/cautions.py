"""What to know of a search's answer before it is trusted: its images, its test score, how close its best are.

A part of the images tells two recipes apart only where they differ on some of them: `TOLD_APART` images that
one recipe alone has right, by McNemar's test. So a search whose best trials have fewer mistakes than that has
reached a ceiling, and of trials that are nearer to each other than that the best is not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from shlex import quote
from typing import get_args

from search.record.folder import Caution, Verified
from search.record.stored_search import StoredSearch
from search.record.summary import Summary
from search.study.objective import Objective
from spaces.domains import counted
from trainable.checks.finding import Finding, PartsCheck, passed
from trainable.curves.levels import TOLD_APART, at_ceiling, least_accuracy, mistakes_in_words
from trainable.data import DataInfo
from trainable.diagnosis import curves_of
from trainable.recipe.data import Data
from trainable.recipe.provenance import CAUSES
from trainable.terminal import program_name

METRIC = "objective.metric"
BALANCED = f"{METRIC}: val_balanced_accuracy"  # advice that some searches follow already

LARGER_PART = "raise data.validation_fraction"  # as the checks of images say it
FROM_WEIGHTS = ", or start from pretrained weights (model.weights)"  # likewise
MOVED = "move images into the validation part"

RULE = f"two recipes differ by more than luck from {TOLD_APART} images on (McNemar's test, 5 %)"

# Checks that find the same image in two parts: validation images that training has seen are known by heart
COPIES = ("duplicates", "near-duplicates")


def recorded(
    findings: Iterable[Finding], objective: Objective, *, split_here: bool = True, pretrained: bool = False
) -> tuple[Caution, ...]:
    """Return what a search with this objective records of what was found about its images; the rest as in
    `advised`."""
    return tuple(
        Caution(kind="data", about=each.check, what=each.what, means=each.means, do=each.do)
        for each in advised(findings, objective, split_here=split_here, pretrained=pretrained)
        if each.level != "passed"
    )


def advised(
    findings: Iterable[Finding], objective: Objective, *, split_here: bool = True, pretrained: bool = False
) -> Iterator[Finding]:
    """Yield findings as a search with this objective should read them.

    Where it counts classes alike already, what accuracy hides is no fault of it; where validation is not
    `split_here`, no field makes it larger; where trials are `pretrained`, weights are no news.
    """
    for found in findings:
        do = found.do if split_here else found.do.replace(LARGER_PART, MOVED)
        each = replace(found, do=do.replace(FROM_WEIGHTS, "") if pretrained else do)
        if objective.counts_classes_alike and BALANCED in each.do:
            counts = f"{each.what}; {objective.metric}, the objective, counts classes alike"
            yield passed(each.check, counts)
        else:
            yield each


def joined(earlier: Sequence[Caution], later: Sequence[Caution]) -> tuple[Caution, ...]:
    """Return what two looks at a search's images have found: of one check, what it found later."""
    again = {each.about for each in later}
    return (*(each for each in earlier if each.about not in again), *later)


def cautions_of(search: StoredSearch) -> tuple[Caution, ...]:
    """Return what to know before a search's answer is trusted, what is known for sure first: what was found
    about its images, what came of training its best recipe again, and how close its best trials are."""
    return (*search.findings, *_gap(search.findings, search.verified), *_close_scores(search))


def _gap(findings: Sequence[Caution], verified: Verified | None) -> Iterator[Caution]:
    if verified is not None and verified.found.parts_differ is not None:
        what = gap_in_words(verified.found.parts_differ, findings)
        yield Caution(kind="gap", about=verified.found.metric, what=what)


def gap_in_words(parts_differ: str, findings: Sequence[Caution]) -> str:
    """Return how far test scores are from validation's, without the causes that the findings say already."""
    says_causes = any(each.about in get_args(PartsCheck) for each in findings)
    return parts_differ.partition(CAUSES)[0] if says_causes else parts_differ


def is_split_here(data: Data, info: DataInfo) -> bool:
    """Say whether the validation part has the size that the fraction asks for, with no limit of images."""
    learnt_from = info.train_images + info.validation_images
    sizes = (data.validation_fraction * (learnt_from + test) for test in (0, info.test_images))
    near = any(abs(size - info.validation_images) <= len(info.classes) for size in sizes)
    return data.train_limit is None and near


def copies_in_validation(findings: Sequence[Caution]) -> bool:
    """Say whether validation images are also in training, which are known by heart."""
    return any(each.about in COPIES and "validation images" in each.what for each in findings)


def _close_scores(search: StoredSearch) -> Iterator[Caution]:
    """Yield that the best trials have reached the ceiling of their part, or else that it cannot tell which of
    them is best; nothing where answers are not right or wrong by image."""
    summary, info = search.progress, search.info
    metric, images = summary.objective, info.validation_images
    curves = curves_of(info.task)
    wrong = {each.id: curves.mistakes(metric, each.metrics, images) for each in summary.best_first}
    counts = {trial: count for trial, count in wrong.items() if count is not None}
    if not counts:
        return
    fewest = min(counts.values())
    near = sum(count < fewest + TOLD_APART for count in counts.values())
    if at_ceiling(fewest, images):
        leaks = copies_in_validation(search.findings)
        part = " (data.validation_fraction)" if is_split_here(search.study.data, info) else ""
        yield Caution(
            kind="ceiling",
            about=metric,
            what=f"{_few_mistakes(summary, counts, images)}: this part cannot tell recipes apart (the true "
            f"accuracy of the best is above {least_accuracy(fewest, images):.4f})",
            means=f"{RULE}; the bound is that of Clopper and Pearson's 95 % interval",
            do=f"{'leave the copies out first (data.exclude); then ' if leaks else ''}take more or harder "
            f"images for validation{part}; search for {METRIC}: val_loss, in which they still differ"
            f"{'' if leaks else '; or stop here'}",
        )
    elif near > 1 and summary.estimate is None and search.verified is None:
        several = "; finalists: {top: 3, seeds: 3} in a study does so with the best three"
        finalists = several if summary.finalists is None else ""
        yield Caution(
            kind="luck",
            about=metric,
            what=f"{near} of {counted(len(counts), 'finished trial')} are within {TOLD_APART - 1} images of "
            f"the best score, on {images:,} validation images: which of them is best may be luck",
            means=RULE,
            do=f"`{program_name()} export {quote(search.home.address)} -o best.yaml --verify 3` trains the "
            f"best again with new seeds{finalists}",
        )


def _few_mistakes(summary: Summary, counts: Mapping[int, int], images: int) -> str:
    """Say how many trials make how few mistakes, and which of the best has the lowest loss."""
    fewest = min(counts.values())
    best = [trial for trial, wrong in counts.items() if wrong == fewest]
    others = sum(fewest < wrong < TOLD_APART for wrong in counts.values())
    who = f"trial {best[0]} makes" if len(best) == 1 else f"{len(best)} trials make"
    also = f", and {others} more fewer than {TOLD_APART}" if others else ""
    metrics = {trial: summary.trial(trial).metrics for trial in best}
    losses = [(each["val_loss"], trial) for trial, each in metrics.items() if "val_loss" in each]
    lowest = f"; trial {min(losses)[1]} of them has the lowest validation loss" if len(losses) > 1 else ""
    return f"{who} {mistakes_in_words(fewest)} on {images:,} validation images{also}{lowest}"
