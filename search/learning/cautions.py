"""What to know of a search's answer before it is trusted: its images, its test score, how close its best are.

A part of the images tells two recipes apart only where they differ on some of them: `TOLD_APART` images that
one recipe alone has right, by McNemar's test. So a search whose best trials have fewer mistakes than that has
reached a ceiling, and of trials that are nearer to each other than that the best is not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from shlex import quote
from typing import get_args

from search.record.folder import Caution
from search.record.stored_search import StoredSearch
from search.record.summary import Summary
from spaces.domains import counted
from trainable.checks.finding import DataCheck, Finding, advised, causes_of_gaps, joined, keep, passed
from trainable.curves.levels import TOLD_APART, at_ceiling, least_accuracy, mistakes_in_words
from trainable.data import DataInfo
from trainable.data.info import is_split_here
from trainable.diagnosis import curves_of
from trainable.recipe import Recipe
from trainable.recipe.provenance import Verification
from trainable.terminal import program_name
from trainable.training.metrics import CLASSES_ALIKE

METRIC = "objective.metric"
RULE = f"two recipes differ by more than luck from {TOLD_APART} images on (McNemar's test, 5 %)"


def for_objective(found: Finding, metric: str | None) -> Finding:
    """Return a finding as a search for this metric reads it: what accuracy hides is no fault where classes
    count alike."""
    if not (found.of_accuracy and metric in CLASSES_ALIKE):
        return found
    return passed(found.check, f"{found.what}; {metric}, the objective, counts classes alike")


def recorded(
    found: Sequence[Finding],
    recipe: Recipe,
    info: DataInfo,
    metric: str,
    *,
    earlier: Iterable[Caution] = (),
) -> tuple[Caution, ...]:
    """Keep what a look has found about images, and return what a search for this metric records.

    That is what it recorded `earlier`, what any look at these images has found, with what the recipe can do
    about it, and which checks failed now, where nothing is known of what they look for.
    """
    kept = cautions_about(keep(info, found), recipe, info, metric)
    known = joined([each for each in earlier if not each.failed], kept)
    about = {each.about for each in known}
    failed = [
        each
        for each in found
        if each.failed and each.check in get_args(DataCheck) and each.check not in about
    ]
    return (*known, *cautions_about(failed, recipe, info, metric))


def cautions_about(
    findings: Iterable[Finding], recipe: Recipe, info: DataInfo, metric: str | None
) -> tuple[Caution, ...]:
    """Return what to know of findings about images before a recipe, the best by this metric, is trusted."""
    read = (for_objective(advised(each, recipe, info), metric) for each in findings)
    return tuple(
        Caution(
            kind="data",
            about=each.check,
            what=each.what,
            means=each.means,
            do=each.do,
            copies_in=each.copies_in,
            failed=each.failed,
        )
        for each in read
        if each.level != "passed"
    )


def cautions_of(search: StoredSearch) -> tuple[Caution, ...]:
    """Return what to know before a search's answer is trusted, what is known for sure first: what was found
    about its images, what came of training its best recipe again, and how close its best trials are."""
    gap = () if search.verified is None else gap_of(search.verified.found, search.findings)
    return (*search.findings, *gap, *_close_scores(search))


def gap_of(found: Verification, findings: Sequence[Caution]) -> Iterator[Caution]:
    """Yield that test scores are others than validation scores, if a verification has found that, without the
    causes that stand among the findings."""
    if found.gap is not None:
        gap = found.gap.without(causes_of_gaps(findings))
        yield Caution(kind="gap", about=found.metric, what=gap.what, means=gap.means, do=gap.do)


def copies_in_validation(findings: Iterable[Caution]) -> bool:
    """Say whether validation images are also in training, which are known by heart."""
    return any(each.copies_in == "validation" for each in findings)


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
