"""Builds the table of a search's trials, for screens of any width."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

from rich.console import Console, Group
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from search.record.summary import Summary
from search.record.trials import Trial
from spaces.domains import counted, shown
from trainable.recipe import LEARNING_RATES, REFERENCE_BATCH
from trainable.tune.place import in_words

WIDEST = 10_000  # the columns of a screen on which any table fits
WHERE = "where"  # a column beside those of values
COLOURS = {
    "finished": "green",
    "running": "cyan",
    "queued": "dim",
    "stopped": "yellow",
    "diverged": "magenta",
    "failed": "red",
    "infeasible": "dim",
    "paused": "dim",
}


def trials_table(summary: Summary, trials: Sequence[Trial], width: int) -> Group:
    """Return one row for each trial: its epochs, its score, and a column for each value that was searched;
    of several machines also where it trained last.

    A number cut in two would be read as two wrong ones. So where the screen is too narrow, columns are left
    out from the right, and a line says how many.
    """
    paths = list(dict.fromkeys(path for trial in summary.trials for path in trial.values))
    if len(summary.machines) > 1:
        paths.append(WHERE)
    fitting, table = paths, _trials_table(summary, trials, paths, brief=False)
    for number in range(len(paths), -1, -1):
        if _width_of(table) <= width:
            break
        fitting = paths[:number]
        table = _trials_table(summary, trials, fitting, brief=True)
    return Group(table, *_notes(paths, fitting), *_first_trials(summary))


def _trials_table(summary: Summary, trials: Sequence[Trial], paths: Sequence[str], *, brief: bool) -> Table:
    """Return the table with the columns of some values; `brief` writes "best" as the best trial's state."""
    metric, table = summary.objective, Table(box=None, header_style="bold", pad_edge=False)
    for name in ("trial", "state", "epochs", metric.replace("_", "_\n", 1), *_headings(paths)):
        justify: Literal["left", "right"] = "left" if name == "state" else "right"
        table.add_column(name, justify=justify, vertical="bottom", no_wrap=True)
    for trial in trials:
        value = trial.metrics.get(metric)
        is_best = summary.best is not None and trial.id == summary.best.id
        table.add_row(
            str(trial.id),
            _state(trial, is_best=is_best, brief=brief),
            str(trial.epochs),
            "" if value is None else f"{value:.4f}",
            *(_cell(trial, path) for path in paths),
            style="bold" if is_best else "",
        )
    return table


def _cell(trial: Trial, path: str) -> str:
    if path == WHERE:
        return in_words(trial.places[-1]) if trial.places else ""
    return _short(trial.values[path]) if path in trial.values else ""


def _state(trial: Trial, *, is_best: bool, brief: bool) -> Text:
    """Return the state in words: only a finished trial can be the best, so "best" alone says both."""
    word = "best" if is_best and brief else f"{trial.state}{', best' if is_best else ''}"
    return Text(word, style=COLOURS.get(trial.state, ""))


def _width_of(table: Table) -> int:
    """Return the width of a table with every cell in one line."""
    wide = Console(width=WIDEST, markup=False, emoji=False)
    return Measurement.get(wide, wide.options, table).maximum


def _notes(paths: Sequence[str], fitting: Sequence[str]) -> Iterator[Text]:
    """Yield what the reader of a table of trials must know."""
    if left_out := len(paths) - len(fitting):
        yield Text(f"+{counted(left_out, 'column')}: see --json, or a wider screen", style="dim")
    if any(path in LEARNING_RATES for path in fitting):
        yield Text(f"rates are at batch {REFERENCE_BATCH}", style="dim")


def _first_trials(summary: Summary) -> Iterator[Text]:
    """Yield in a line where first trials come from, and which are no points of the space."""
    if found := [f"trial {trial.id}: {trial.first}" for trial in summary.trials if trial.first is not None]:
        yield Text("; ".join(found), style="dim")


def _headings(paths: Sequence[str]) -> list[str]:
    """Return a narrow heading for each dotted path, broken into lines at underscores.

    It is the path's last name; for a `kind` it is the section's. Where two would be the same, it is the whole
    path.
    """
    short = [path.removesuffix(".kind").rpartition(".")[2] for path in paths]
    whole = [path if short.count(name) > 1 else name for path, name in zip(paths, short, strict=True)]
    return [name.replace("_", "_\n").replace(".", ".\n") for name in whole]


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else shown(value)
