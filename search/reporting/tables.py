"""Tables for a person: columns where the screen is wide enough, otherwise a block of lines per row.

A search has tables of its trials, finalists, frontier, the audit of pruning, and verdicts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Literal

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from search.learning.pruning_audit import WORTH, PruningAudit
from search.learning.verdicts import counts, effect, fixed, promise
from search.record.finals import Finalist, Finals
from search.record.summary import Summary
from search.record.trials import Trial
from search.record.verdicts import Verdict, Verdicts
from search.study.objective import shown_cost
from spaces.domains import counted, shown
from trainable.recipe import LEARNING_RATES, REFERENCE_BATCH
from trainable.recipe.models import ENCODER, MODEL_NAME
from trainable.recipe.provenance import AGREE, sureness
from trainable.terminal import visible_lines
from trainable.tune.place import in_words

# below this many columns of the screen, sentences side by side would be a few letters wide
STACKED_BELOW = 100
INDENT = 4
TableRow = Sequence[str | Text]
WIDEST = 10_000  # the columns of a screen on which any table fits
# columns beside those of values; the first stands for all fields that name a network
NETWORK, WHERE = "network", "where"
VAGUE = {"alpha", "decay", "power", "weight"}  # names of fields that say nothing without their section
NAMES_OF_NETWORKS = ("model.kind", MODEL_NAME, ENCODER)
STATE_COLOURS = {
    "finished": "green",
    "running": "cyan",
    "queued": "dim",
    "stopped": "yellow",
    "diverged": "magenta",
    "failed": "red",
    "infeasible": "dim",
    "paused": "dim",
}
OF_FINALISTS = (
    "finalist",
    "in the search",
    "with fresh seeds",
    "mean",
    "deviation",
    "estimate",
    "95 % interval",
)


@dataclass(frozen=True)
class TextTable:
    """A table of things: the first `head` columns name each thing, the others describe it.

    Cells are plain text: brackets, as those of `optimizer.lr[sgd]`, are no style. Columns without content are
    left out. Those that are `whole` are never broken over lines.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[TableRow, ...]
    head: int = 1
    whole: Set[str] = frozenset()
    caption: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if options.max_width >= STACKED_BELOW:
            yield self._table()
            return
        if self.title:
            yield Text(self.title, style="italic")
        for row in self.rows:
            yield from self._block(row, console, options.max_width)
        if self.caption:
            yield Text(self.caption, style="dim italic")

    def _table(self) -> Table:
        """Return a table with the columns that have content in any row."""
        table = Table(title=self.title or None, caption=self.caption or None)
        table.title_justify = table.caption_justify = "left"
        table.header_style, table.box, table.pad_edge = "bold", None, False
        shown = [at for at in range(len(self.columns)) if any(str(row[at]) for row in self.rows) or at == 0]
        for at in shown:
            table.add_column(self.columns[at], overflow="fold", no_wrap=self.columns[at] in self.whole)
        for row in self.rows:
            table.add_row(*(_text(row[at]) for at in shown))
        return table

    def _block(self, row: TableRow, console: Console, width: int) -> Iterator[Padding | Text]:
        name, *more = (_text(each) for each in row[: self.head])
        name.stylize("bold")
        line = Text("  ").join([name, *(each for each in more if each)])
        first, *rest = line.wrap(console, max(width - INDENT, 1))
        yield first
        yield from (Padding(each, (0, 0, 0, INDENT)) for each in rest)
        for column, cell in zip(self.columns[self.head :], row[self.head :], strict=True):
            if str(cell):
                yield Padding(Text(f"{column}: ").append_text(_text(cell)), (0, 0, 0, INDENT))


def _text(cell: str | Text) -> Text:
    return cell.copy() if isinstance(cell, Text) else Text(visible_lines(cell))


def trials_table(summary: Summary, trials: Sequence[Trial], width: int) -> Group:
    """Return one row for each trial: its epochs, its score, and a column for each value that was searched;
    of several machines also where it trained last.

    A number cut in two would be read as two wrong ones. So where the screen is too narrow, columns are left
    out from the right, and a line says how many.
    """
    paths = list(dict.fromkeys(path for trial in summary.trials for path in trial.values_by_name))
    if len({trial.network_name for trial in summary.trials} - {""}) > 1:
        paths = [NETWORK, *(path for path in paths if path not in NAMES_OF_NETWORKS)]
    if len(summary.machines) > 1:
        paths.append(WHERE)
    fitting, table = paths, _trials_table(summary, trials, paths, brief=False)
    wide = Console(width=WIDEST, markup=False, emoji=False)  # every cell is one line there
    for number in range(len(paths), -1, -1):
        if Measurement.get(wide, wide.options, table).maximum <= width:
            break
        fitting = paths[:number]
        table = _trials_table(summary, trials, fitting, brief=True)
    notes = []
    if left_out := len(paths) - len(fitting):
        notes.append(f"{counted(left_out, 'more field')} in the report")
    if any(path in LEARNING_RATES for path in fitting):
        notes.append(f"rates are at batch {REFERENCE_BATCH}")
    # where first trials come from, and which are no points of the space
    if firsts := [f"trial {trial.id}: {trial.first}" for trial in summary.trials if trial.first is not None]:
        notes.append("; ".join(firsts))
    return Group(table, *(Text(note, style="dim") for note in notes))


def _trials_table(summary: Summary, trials: Sequence[Trial], paths: Sequence[str], *, brief: bool) -> Table:
    """Return the table with the columns of some values; `brief` writes "best" as the best trial's state."""
    metric, table = summary.objective, Table(box=None, header_style="bold", pad_edge=False)
    for name in ("trial", "state", "epochs", metric.replace("_", "_\n", 1), *_headings(paths)):
        justify: Literal["left", "right"] = "left" if name == "state" else "right"
        table.add_column(name, justify=justify, vertical="bottom", no_wrap=True)
    for trial in trials:
        value = trial.metrics.get(metric)
        is_best = summary.best is not None and trial.id == summary.best.id
        # only a finished trial can be the best, so "best" alone says both
        state = "best" if is_best and brief else f"{trial.state_in_words}{', best' if is_best else ''}"
        table.add_row(
            str(trial.id),
            Text(state, style=STATE_COLOURS.get(trial.state, "")),
            str(trial.epochs),
            "" if value is None else f"{value:.4f}",
            *(_cell(trial, path) for path in paths),
            style="bold" if is_best else "",
        )
    return table


def _cell(trial: Trial, path: str) -> str:
    if path == WHERE:
        return in_words(trial.places[-1]) if trial.places else ""
    if path == NETWORK:
        return trial.network_name
    if path not in (values := trial.values_by_name):
        return ""
    value = values[path]
    return f"{value:.3g}" if isinstance(value, float) else shown(value)


def _headings(paths: Sequence[str]) -> list[str]:
    """Return a narrow heading for each dotted path, broken into lines at underscores.

    It is the path's last name; for a `kind` it is the section's. Where two would be the same, or it says
    nothing alone, its section stands before it.
    """
    short = [path.removesuffix(".kind").rpartition(".")[2] for path in paths]
    whole = [
        path if short.count(name) > 1 else ".".join(path.split(".")[-2:]) if name in VAGUE else name
        for path, name in zip(paths, short, strict=True)
    ]
    return [name.replace("_", "_\n").replace(".", ".\n") for name in whole]


def finals_table(finals: Finals, metric: str) -> TextTable:
    """Return one row for each finalist: its score in the search, and what its runs say."""
    rows = tuple(_finalist_row(each, metric, is_winner=each == finals.winner) for each in finals.finalists)
    return TextTable("", OF_FINALISTS, rows, whole=set(OF_FINALISTS))


def winner_line(finals: Finals, metric: str) -> str:
    """Return in a sentence how good the winner is, and by how much the search has flattered it.

    It is empty as long as runs are going on.
    """
    if not finals.over:
        return ""
    winner = finals.winner
    if winner is None or (estimate := winner.estimate) is None or (gap := winner.gap) is None:
        return "no finalist has finished with two fresh seeds; the best trial is that of the search"
    seeds, above = counted(len(estimate.scores), "fresh seed"), "above" if gap >= 0.0 else "below"
    values = [each.estimate.value for each in finals.finalists if each.estimate is not None]
    equal = values.count(estimate.value) > 1  # where all differences are luck
    why = ", which has the best mean of equal estimates" if equal else ""
    return (
        f"best recipe: {metric} {estimate.value:.4f} ({sureness(*estimate.bounds)}) over {seeds}, of trial "
        f"{winner.trial}{why}; the search's own figure was {abs(gap):.4f} {above} this"
    )


def _finalist_row(finalist: Finalist, metric: str, *, is_winner: bool) -> tuple[str, ...]:
    estimate = finalist.estimate
    runs = (
        _number(run.metrics[metric]) if run.end == "finished" else run.state_in_words for run in finalist.runs
    )
    numbers = (
        ("",) * 3 if estimate is None else map(_number, (estimate.mean, estimate.deviation, estimate.value))
    )
    return (
        f"trial {finalist.trial}{', best' if is_winner else ''}",
        _number(finalist.score),
        ", ".join(runs),
        *numbers,
        "" if estimate is None else str(estimate.interval or AGREE),
    )


def _number(value: float) -> str:
    return f"{value:.4f}"


COSTS = ("latency_ms", "parameters", "memory_gib")


def frontier_table(summary: Summary) -> TextTable:
    """Return one row for each trial of the frontier: what its network costs, and its objective."""
    rows = tuple(
        (
            str(trial.id),
            f"{trial.metrics[summary.objective]:.4f}",
            *(shown_cost(trial.costs[name]) for name in COSTS),
        )
        for trial in summary.frontier
    )
    return TextTable("", ("trial", summary.objective, *COSTS), rows)


RANK_ALIKE = "all resamples rank alike"


def rungs_table(audit: PruningAudit) -> TextTable:
    """Return one row for each rung: how well its scores rank the final ones."""
    rows = tuple(
        (
            str(each.epoch),
            f"{each.correlation:.2f}",
            RANK_ALIKE if each.low is None else f"{each.low:.2f} to {each.high:.2f}",
        )
        for each in audit.rungs
    )
    return TextTable("", ("rung at epoch", "rank correlation with the end", "95 % interval"), rows)


def graces_table(audit: PruningAudit) -> TextTable:
    """Return one row for each first rung that could be taken."""
    rows = tuple((str(each.epoch), f"{each.worth:.0%}", f"{each.spent:.0%}") for each in audit.graces)
    return TextTable("", ("first rung", "worth kept", "epochs trained"), rows)


def audit_lines(audit: PruningAudit, rungs: tuple[int, ...]) -> Iterator[str]:
    """Yield what the audit says, in sentences."""
    number = len(audit.trained)
    line = f"{counted(number, 'stopped trial')} of {audit.stopped} trained to the end: "
    if audit.better:
        these = ", ".join(map(str, audit.better))
        yield f"{line}{len(audit.better)} ended better than the best of the search, {audit.best:.4f}: {these}"
    else:
        yield f"{line}none ended better than the best of the search, {audit.best:.4f}"
        if (others := audit.stopped - number) > 0:
            yield f"the chance that any of the other {others} would have ended better: {audit.chance:.0%}"
    first = f"now the first rung is at epoch {rungs[0]}"
    if audit.grace is None:
        yield f"no first rung in the first half of a run keeps {WORTH:.0%} of a search's worth; {first}"
    else:
        yield (
            f"a first rung at epoch {audit.grace} or later keeps {WORTH:.0%} of a search's worth "
            f"(scheduler.grace_epochs: {audit.grace}); {first}"
        )


WORD_COLOURS = {"supported": "green", "contradicted": "red", "untested": "dim"}


def brief_table(verdicts: Verdicts) -> TextTable:
    """Return one row for each rule with a clear verdict: the verdict, its size, and what the rule says."""
    return _verdict_table("", verdicts.clear)


def full_table(verdicts: Verdicts, *, untested: str = "") -> TextTable:
    """Return one row for each belief, with why it is untested; a line below lists the fixed values.

    With a line that counts the `untested` ones, which then have no rows.
    """
    title = f"verdicts on the rules, from {verdicts.trials} trials: {counts(verdicts)}"
    below = (f"{untested}; --all lists them" if untested else "", promise(verdicts), fixed(verdicts))
    rows = verdicts.clear if untested else verdicts.beliefs
    return _verdict_table(title, rows, "\n".join(filter(None, below)))


def _verdict_table(title: str, verdicts: Sequence[Verdict], caption: str = "") -> TextTable:
    columns = ("rule", "verdict", "places of 100", "follow, depart", "why untested", "the rule says")
    rows = tuple(map(_verdict_row, verdicts))
    return TextTable(title, columns, rows, head=3, whole=set(columns[:3]), caption=caption)


def _verdict_row(verdict: Verdict) -> TableRow:
    sides = f"{verdict.follow}, {verdict.depart}" if verdict.follow or verdict.depart else ""
    word = Text(verdict.word, style=WORD_COLOURS[verdict.word])
    return verdict.rule, word, effect(verdict), sides, verdict.why or "", verdict.says
