"""Describes the end of a run in lines for people."""

from __future__ import annotations

from collections.abc import Sequence

from trainable.errors import visible
from trainable.outcome import Outcome
from trainable.training.bootstrap import Intervals
from trainable.training.evaluate import Scores
from trainable.training.metrics import total_teacher_seconds
from trainable.training.run import PREFIXES

MOST_CLASSES = 20  # the matrix of more classes is in metrics.json alone: its rows fit no screen
MOST_PAIRS = 10  # confusions of many classes on the screen


def summary(outcome: Outcome) -> str:
    """Describe the end of a run: its scores and diagnosis,
    and the confusion of the test part if that was scored."""
    last, classes = outcome.history[-1], tuple(map(visible, outcome.class_names))
    found = {"val_accuracy": last.val_accuracy, **last.extra_metrics}
    scores = "  ".join(f"{name} {value:.4f}" for name, value in found.items())
    lines = [f"{'diverged' if outcome.diverged else 'finished'}: {scores}"]
    if (taught := total_teacher_seconds(outcome.history)) is not None:
        whole = sum(each.epoch_seconds for each in outcome.history)
        lines.append(f"the teacher answered for {taught:.1f} s of the run's {whole:.1f} s")
    lines += outcome.diagnosis.lines()
    if outcome.test is not None:
        lines += _test_lines(outcome.test, outcome.intervals)
        gap = outcome.gaps.explained if outcome.gaps is not None else None
        lines += [] if gap is None else [str(gap)]
        lines += by_class_lines(outcome.test, outcome.intervals, classes)
        lines += _confusion_lines(outcome.test, classes)
    return "\n".join(lines)


def _test_lines(scores: Scores, sure: Intervals | None) -> list[str]:
    """Return a line for each test metric, with its interval if there is one."""
    prefix = PREFIXES["test"]
    bounds = {} if sure is None else {f"{prefix}_{name}": each for name, each in sure.bounds.items()}
    named = scores.metrics(prefix).items()
    lines = [f"{name} {value:.4f}{_brackets(bounds.get(name))}" for name, value in named]
    if sure is None:
        return lines
    lines.append("in brackets: 95 % intervals, for other test images of the same kind")
    if unknown := [name for name, _ in named if name not in bounds]:
        lines.append(f"no interval for {', '.join(unknown)}: all resamples score the same, or one failed")
    return lines


def by_class_lines(scores: Scores, sure: Intervals | None, names: Sequence[str]) -> list[str]:
    """Return a table of the scores of each class, with their intervals; no lines for labels of images."""
    if not scores.by_class:
        return []
    bounds = sure.by_class if sure is not None else {}
    columns = [
        [name, *(_cell(value, bounds.get(name, ())[at : at + 1]) for at, value in enumerate(values))]
        for name, values in scores.by_class.items()
    ]
    table = [["class", *names], *columns]
    widths = [max(map(len, column)) for column in table]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in zip(*table, strict=True)]


def _cell(value: float | None, bounds: Sequence[tuple[float, float] | None]) -> str:
    return "-" if value is None else f"{value:.4f}{_brackets(bounds[0] if bounds else None)}"


def _brackets(bounds: tuple[float, float] | None) -> str:
    return "" if bounds is None else f" ({bounds[0]:.4f} to {bounds[1]:.4f})"


def _confusion_lines(scores: Scores, names: Sequence[str]) -> list[str]:
    of_pixels = bool(scores.by_class)
    unit = "pixels" if of_pixels else "images"
    if len(names) > MOST_CLASSES:
        pairs = [
            f"{names[each.true]} taken for {names[each.predicted]}: {each.times:,} {unit}"
            for each in scores.most_confused(MOST_PAIRS)
        ]
        what = "confusion" if scores.confusion is not None else "most frequent confusion"
        return [*pairs, f"the {what} of the {len(names)} classes is in metrics.json (--out), in {unit}"]
    what = "pixels: rows" if of_pixels else "rows"
    return [
        f"{what} are the true classes, columns the predicted ones in the same order:",
        *_matrix(scores, names),
    ]


def _matrix(scores: Scores, names: Sequence[str]) -> list[str]:
    """Return the confusion matrix as lines:
    rows are the true classes, columns the predicted ones, in the same order."""
    rows = scores.confusion or ()
    width = max((len(str(count)) for row in rows for count in row), default=1)
    label = max((len(name) for name in names), default=0)
    return [
        f"{name:>{label}}  " + " ".join(f"{count:>{width}}" for count in row)
        for name, row in zip(names, rows, strict=False)
    ]
