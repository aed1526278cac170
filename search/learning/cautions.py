"""What to know of a search's answer before it is trusted: its images, its test score, how close its best are.

A part of the images tells two recipes apart only where they differ on some of them: `TOLD_APART` images that
one recipe alone has right, by McNemar's test. So a search whose best trials have fewer mistakes than that has
reached a ceiling, and of trials that are nearer to each other than that the best is not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from search.record.folder import Caution, Verified
from search.record.summary import Summary
from search.study.objective import Objective
from spaces.domains import counted
from trainable.checks.finding import Finding
from trainable.curves.levels import TOLD_APART, at_ceiling, least_accuracy, mistakes_in_words
from trainable.data import DataInfo
from trainable.diagnosis import curves_of

BALANCED = "objective.metric: val_balanced_accuracy"  # advice that some searches follow already

RULE = f"two recipes differ by more than luck from {TOLD_APART} images on (McNemar's test, 5 %)"

# Checks that find the same image in two parts: validation images that training has seen are known by heart
COPIES = ("duplicates", "near-duplicates")


def recorded(findings: Iterable[Finding], objective: Objective) -> tuple[Caution, ...]:
    """Return what a search with this objective records of what was found about its images."""
    return tuple(
        Caution(kind="data", about=each.check, what=each.what, means=each.means, do=each.do)
        for each in findings
        if not (objective.counts_classes_alike and BALANCED in each.do)
    )


def joined(earlier: Sequence[Caution], later: Sequence[Caution]) -> tuple[Caution, ...]:
    """Return what two looks at a search's images have found: of one check, what it found later."""
    again = {each.about for each in later}
    return (*(each for each in earlier if each.about not in again), *later)


def cautions_of(
    summary: Summary, info: DataInfo, findings: Sequence[Caution], verified: Verified | None
) -> tuple[Caution, ...]:
    """Return what to know before a search's answer is trusted, what is known for sure first.

    `findings` are those that the search records of its images, and `verified` is what came of training its
    best recipe again.
    """
    return (*findings, *_gap(verified), *_close_scores(summary, info, findings, verified))


def _gap(verified: Verified | None) -> Iterator[Caution]:
    if verified is not None and verified.found.parts_differ is not None:
        yield Caution(kind="gap", about=verified.found.metric, what=verified.found.parts_differ)


def _close_scores(
    summary: Summary, info: DataInfo, findings: Sequence[Caution], verified: Verified | None
) -> Iterator[Caution]:
    """Yield that the best trials have reached the ceiling of their part, or else that it cannot tell which of
    them is best; nothing where answers are not right or wrong by image."""
    metric, images = summary.objective, info.validation_images
    curves = curves_of(info.task)
    wrong = {each.id: curves.mistakes(metric, each.metrics, images) for each in summary.best_first}
    counts = {trial: count for trial, count in wrong.items() if count is not None}
    if not counts:
        return
    fewest = min(counts.values())
    near = sum(count < fewest + TOLD_APART for count in counts.values())
    if at_ceiling(fewest, images):
        yield Caution(
            kind="ceiling",
            about=metric,
            what=f"{_few_mistakes(summary, counts, images)}: this part cannot tell recipes apart (the true "
            f"accuracy of the best is above {least_accuracy(fewest, images):.4f})",
            means=f"{RULE}; the bound is that of Clopper and Pearson's 95 % interval",
            do=f"{_without_copies(findings)}search for objective.metric: val_loss, in which they still "
            "differ; take more or harder images for validation (data.validation_fraction); or stop here",
        )
    elif near > 1 and summary.estimate is None and verified is None:
        yield Caution(
            kind="luck",
            about=metric,
            what=f"{near} of {counted(len(counts), 'finished trial')} are within {TOLD_APART - 1} images of "
            f"the best score, on {images:,} validation images: which of them is best may be luck",
            means=RULE,
            do="`tunebook export DIR -o best.yaml --verify 3` trains the best again with new seeds; "
            "finalists: {top: 3, seeds: 3} in a study does so with the best three",
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


def _without_copies(findings: Sequence[Caution]) -> str:
    is_leak = any(each.about in COPIES and "validation images" in each.what for each in findings)
    return "leave the copies out first (data.exclude), they are known by heart; then " if is_leak else ""
