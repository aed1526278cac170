"""Prints a search for a person: the plan, the live table, the table of trials, an explanation."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from shlex import quote
from typing import Any, Self

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.live import Live
from rich.segment import Segment
from rich.text import Text

from search.deciding.finalists import Final
from search.deciding.pruning import Pruning
from search.learning.pruning_audit import PruningAudit
from search.learning.search import Search
from search.learning.standings import LEAST_TRIALS, has_result
from search.learning.verdict_words import counts, promise
from search.record.chain import START
from search.record.clock import duration
from search.record.code import functions_of
from search.record.home import EVENTS_FILE
from search.record.journal import EndEvent, EpochEvent, RetryEvent, read_from
from search.record.record import Record
from search.record.summary import Summary, summarise
from search.record.trials import Trial
from search.reporting.search_tables import (
    audit_lines,
    brief_table,
    finals_table,
    frontier_table,
    graces_table,
    rungs_table,
    winner_line,
)
from search.reporting.tables import Rows
from search.reporting.trials_table import trials_table
from search.study import Study
from spaces.catalog.explain import Row
from spaces.domains import counted
from trainable.recipe.base import with_guide_names
from trainable.terminal import command, encodable, tell_json, visible_lines
from trainable.tune.place import in_words

REFRESH_SECONDS = 0.5
USUAL_LAG_SECONDS = 5.0  # MLflow is sent what is new once a second
PAUSE_SECONDS = 10.0  # the view is updated some times a second; after so long without, the driver was halted
MOST_SHARE = 0.05  # drawing takes at most this share of the driver's time: it looks at every trial
ACCURACY = "val_accuracy"
# the lines of a live table beside its rows: the headline, the heading, the notes below, and the prompt
LINES_BESIDE_ROWS = 8
logger = logging.getLogger(__name__)


class Screen(Console):
    """A console for somebody's texts: no brackets in them are a style, and no character is obeyed."""

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(visible_lines(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            text = encodable(visible_lines(segment.text), self.file)
            yield segment if segment.control else segment._replace(text=text)


def console() -> Screen:
    """Return where tables are printed; a narrow pipe still gets whole lines."""
    return Screen(width=None if sys.stdout.isatty() else 140, highlight=False, markup=False, emoji=False)


def say(text: str) -> None:
    """Print one plain line."""
    console().print(text, soft_wrap=True)


def plan(study: Study, pruning: Pruning, final: Final, concurrent: int) -> str:
    """Return the search in one line, before it starts."""
    line, epochs = f"{budget(study)}, {concurrent} at once", study.budget.epochs
    if study.budget.hours is not None:
        line += f"; {study.budget.hours:g} hours at most"
    return f"{line}; {pruning.describe(epochs)}; {final.words}"


def budget(study: Study) -> str:
    """Return how many trials a study asks for, how long they are, and how many are a person's own."""
    trials, epochs = counted(study.budget.trials, "trial"), counted(study.budget.epochs, "epoch")
    asked = f", with {counted(len(study.first), 'first trial')} of the study" if study.first else ""
    return f"{trials} x {epochs} at most{asked}"


def headline(summary: Summary) -> str:
    """Return the search in one line, while and after it runs: best so far, trials by state, epochs saved."""
    metric, states = summary.objective, Counter(trial.state for trial in summary.trials)
    parts = [f"{count} {state}" for state, count in sorted(states.items())]
    best, own = summary.best, next((trial for trial in summary.trials if trial.own), None)
    if best is not None:
        line = f"best {metric} {best.metrics[metric]:.4f} (trial {best.id})"
        if own is not None and own.id != best.id and metric in own.metrics:
            line += f", the documented recipe {own.metrics[metric]:.4f}"
        parts.insert(0, line)
    again = f", {summary.epochs_again} of them to train trials again" if summary.epochs_again else ""
    parts.append(f"{counted(summary.epochs_trained, 'epoch')} trained{again}")
    if summary.saved:
        parts.append(f"{summary.saved:.0%} of {summary.epochs_if_unpruned} epochs saved by stopping early")
    return ", ".join(parts)


def ranked(summary: Summary) -> list[Trial]:
    """Return the trials in a person's order: finished ones first, then by epochs trained and score."""

    def key(trial: Trial) -> tuple[bool, int, float]:
        score = trial.metrics.get(summary.objective)
        value = -1e300 if score is None else summary.sign * score
        return trial.state == "finished", trial.epochs, value

    return sorted(summary.trials, key=key, reverse=True)


class LiveView:
    """The running search, shown as a table on a terminal, otherwise one plain line for each trial that ends.

    It reads the journal like any other reader; `update` may be called as often as one likes.
    """

    def __init__(self, study: Study, pruning: Pruning, final: Final, concurrent: int, folder: Path) -> None:
        self._study = study
        self._metric = study.objective.metric
        self._path = folder / EVENTS_FILE
        self._position = START
        self._record = Record(where=str(self._path))
        self._reported: set[int] = set()
        self._retries: list[str] = []  # lines on attempts that failed, which are not said yet
        self._slow: set[str] = set()  # the machines that were said to be slow
        self._next = 0.0  # when it may be drawn again, on the monotonic clock
        self._console = console()
        self._live: Live | None = None
        self._final_epochs = final.epochs(study)
        self.has_trained = False  # whether an epoch of a trial, or its end, has come since the view was made
        self._read()
        self.has_trained = False
        self._retries.clear()
        summary = self._summary()
        self._slow.update(each.name for each in summary.machines if each.is_slow)
        self._running_seconds, self._counted = summary.wall_seconds, time.monotonic()
        self._plan = "" if summary.is_being_audited else plan(study, pruning, final, concurrent)
        self._reported.update(trial.id for trial in summary.all_trials if trial.ended)

    def __enter__(self) -> Self:
        if self._plan:
            self._console.print(self._plan, soft_wrap=True)
        if self._console.is_terminal:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._read()
        self._report_ends()
        if self._live is not None:
            self._live.stop()

    def update(self) -> None:
        """Draw what is new, at most twice a second, and in a search of many trials less often."""
        began = time.monotonic()
        self._running_seconds += min(began - self._counted, PAUSE_SECONDS)
        self._counted = began
        if began < self._next:
            return
        if self._read():
            if self._live is not None:
                self._live.update(self._picture(), refresh=True)
            self._report_ends()
        took = time.monotonic() - began
        self._next = began + max(REFRESH_SECONDS, took / MOST_SHARE)

    def _read(self) -> bool:
        if not self._path.exists():
            return False
        events, self._position = read_from(self._path, self._position)
        for event in events:
            if isinstance(event, RetryEvent):
                self._retries.append(self._retry_line(event))
            self._record.apply(event)
            self.has_trained |= isinstance(event, EpochEvent | EndEvent)
            if isinstance(event, EndEvent):
                self._record.forget_epochs(event.trial)
        return bool(events) or self._live is not None

    def _summary(self) -> Summary:
        epochs = self._study.budget.epochs
        return summarise(self._record, time.time(), objective=self._metric, epochs=epochs, locked=True)

    def _picture(self) -> Group:
        summary = self._summary()
        rows = [trial for trial in summary.all_trials if trial.state == "running"]
        ended = [trial for trial in ranked(summary) if trial.ended]
        rows += ended[: max(0, self._console.height - LINES_BESIDE_ROWS - len(rows))]
        left = self._time_left(summary)
        head = Text(headline(summary) + (f", {left}" if left else ""))
        return Group(head, trials_table(summary, rows, self._console.width))

    def _report_ends(self) -> None:
        summary = self._summary()
        self._report_troubles(summary)
        left = self._time_left(summary)
        done = sum(each.id in self._reported and each.end != "infeasible" for each in summary.trials)
        for trial in summary.all_trials:
            if not trial.ended or trial.id in self._reported:
                continue
            self._reported.add(trial.id)
            done += trial.repeat is None and trial.end != "infeasible"
            value = trial.metrics.get(self._metric)
            score = "" if value is None else f", {self._metric} {value:.4f}"
            reason = f" ({trial.outcome_reason})" if trial.outcome_reason else ""
            epochs = counted(trial.epochs, "epoch")
            line = f"{self._place(trial, done)} {trial.state} after {epochs}{score}{reason}"
            logger.info(line)
            if self._live is None:
                say(f"{line}; {left}" if left else line)

    def _retry_line(self, event: RetryEvent) -> str:
        trial = self._record.trials[event.trial]
        # an attempt whose process did not start has no place: the last one is that of the attempt before
        where = in_words(trial.places[-1]) if trial.places and trial.trains else ""
        return (
            f"trial {event.trial} failed{f' on {where}' if where else ''} and is tried again: {event.reason}"
        )

    def _report_troubles(self, summary: Summary) -> None:
        """Say which trials failed and are tried again, where and why, and which machines are slow."""
        slow = [each for each in summary.machines if each.is_slow and each.name not in self._slow]
        self._slow.update(each.name for each in slow)
        for line in (*self._retries, *(each.why_slow for each in slow)):
            if self._live is None:
                say(line)
            else:  # above the table
                self._console.print(Text(visible_lines(line)), soft_wrap=True)
        self._retries.clear()

    def _place(self, trial: Trial, done: int) -> str:
        """Return which trial it is, and how many of its kind are `done`: infeasible ones cost no budget."""
        if trial.repeat is None:
            return f"[{done}/{self._study.budget.trials}] trial {trial.id}"
        return f"[{trial.repeat.purpose}] trial {trial.id}, {trial.repeat},"

    def _time_left(self, summary: Summary) -> str:
        """Return in words how long the remaining epochs take at the pace so far, under all drivers; empty if
        unknown. Time in which no driver ran, or this one was halted, does not count."""
        ended = [trial for trial in summary.trials if trial.ended and trial.end != "infeasible"]
        if not ended or not self.has_trained or not summary.epochs_trained:
            return ""
        each = sum(trial.epochs for trial in ended) / len(ended)
        to_come = each * (self._study.budget.trials - len(ended))
        to_come -= sum(trial.epochs for trial in summary.trials if not trial.ended)
        to_come += self._final_epochs - sum(trial.epochs for trial in summary.repeats)
        seconds = to_come * self._running_seconds / summary.epochs_trained
        return f"about {duration(seconds)} left" if to_come > 0.0 else ""


def closing(search: Search, best_file: Path, fault: str | None = None) -> None:
    """Print the end of a search: its trials, what they say of the best and the rules, and how to go on.

    `fault` says what has kept it from going on. A disk may not even have taken that the search ends: its
    state is then still `running`, as this process is.
    """
    summary, address = search.summary, quote(search.home.address)
    _print(search)
    match summary.state:
        case "finished":
            if summary.outcome_reason:
                say(f"\n{summary.outcome_reason}")
            say(f"\nbest recipe: {best_file}")
            say(f"  {command()} ui {address}")
            test = " --test" if search.info.test_images else ""
            if own := functions_of(search.study, search.code):
                say(f"  in Python: train(read_recipe({str(best_file)!r}), {own})")
            else:
                model = quote(f"{summary.search}-model")
                say(f"  {command()} train {quote(str(best_file))} --out {model}{test}")
        case "interrupted" | "running":
            say(f"\n{fault}" if fault else "")
            words = f"interrupted; {search.how_to_go_on}"
            say(words)
            logger.info("%s", words)  # nobody reads what is printed to a terminal that was closed
        case "failed":
            say(f"\nthe search failed: {summary.outcome_reason or 'no trial finished'}")


def show(search: Search, *, as_json: bool) -> None:
    """Print the table of a search's trials and what they say, or all of it as JSON."""
    summary = search.summary
    if as_json:
        tell_json(json.dumps(summary.json(), indent=2, allow_nan=False))
        return
    why = f": {summary.outcome_reason}" if summary.outcome_reason else ""
    line = f"{summary.search}: {summary.state}, {duration(summary.wall_seconds)}{why}"
    console().print(line, soft_wrap=True)
    _print(search)
    if behind := mlflow_lags(summary):
        sync = f"; `{command()} sync {quote(search.home.address)}` sends it"
        say(behind if summary.state == "running" else f"{behind}{sync}")


def _print(search: Search) -> None:
    """Print the trials, the best first, and what they say of the best and the rules."""
    summary, out = search.summary, console()
    out.print(trials_table(summary, ranked(summary), out.width))
    out.print(headline(summary), soft_wrap=True)
    if (spent := summary.turnaround) is not None:
        say(f"where the time went ({spent.whole}): {spent.figures}")
    for machine in summary.machines if len(summary.machines) > 1 else ():
        say(f"  {machine}")
    for left_out in summary.left_out:
        say(f"  {left_out}")
    _print_finals(summary)
    if search.pruning_audit is not None:
        print_audit(search.pruning_audit, search.pruning.rungs)
    _print_frontier(summary)
    _print_diagnosis(summary)
    if line := since_when_nothing_was_gained(summary):
        say(f"\n{line}; `{command()} refine {quote(search.home.address)}` says what may gain more")
    _print_verdicts(summary, quote(search.home.address))


def mlflow_lags(summary: Summary) -> str:
    """Return in words how far MLflow is behind a search; empty where it is not, or by seconds as it runs."""
    lacks = summary.mlflow_lacks_seconds or 0.0
    usual = USUAL_LAG_SECONDS if summary.state == "running" else 0.0
    return f"MLflow lacks the last {duration(max(lacks, 1.0))} of the search" if lacks > usual else ""


def rows_table(title: str, rows: Sequence[Row]) -> Rows:
    """Return an explanation with one row for each field: what it is, why, and the source."""
    sources = with_guide_names(row.source for row in rows)
    cells = tuple((row.path, row.what, row.reason, source) for row, source in zip(rows, sources, strict=True))
    return Rows(title, ("field", "range or value", "why", "source"), cells, head=2, whole={"field"})


def _print_finals(summary: Summary) -> None:
    """Print what the best trials came to with fresh seeds."""
    if summary.finals is not None:
        say("\nthe best trials, trained again:")
        console().print(finals_table(summary.finals, summary.objective))
        say(winner_line(summary.finals, summary.objective))


def print_audit(audit: PruningAudit, rungs: tuple[int, ...]) -> None:
    """Print what the audit of pruning has found."""
    say("\naudit of pruning:")
    for table in (rungs_table(audit), graces_table(audit)):
        if table.rows:
            console().print(table)
    for line in audit_lines(audit, rungs):
        say(line)


def _print_frontier(summary: Summary) -> None:
    """Print the trials between which a person chooses by latency, where it was measured."""
    if summary.frontier:
        limits = f"; {summary.constraints}" if summary.constraints.limits else ""
        say(f"\n{summary.objective} against latency, none quicker and better{limits}:")
        console().print(frontier_table(summary))


def _print_diagnosis(summary: Summary) -> None:
    if summary.best is None or summary.diagnosis is None:
        return
    first, *others = summary.diagnosis.lines()
    say(f"\ntrial {summary.best.id} is {first}")
    for line in others:
        say(line)


def since_when_nothing_was_gained(summary: Summary) -> str:
    """Return from which trial on nothing was gained that differs from luck, in words.

    That is the first trial within the noise of the best score. It is empty where more than half of the trials
    came before it, where too few have ended, where one that has not finished is better already, while the
    search runs, and where the objective is not the accuracy: only the accuracy's noise is known.
    """
    if summary.state == "running" or summary.objective != ACCURACY:
        return ""
    best, ended = summary.best, [each for each in summary.trials if has_result(each)]
    if best is None or summary.diagnosis is None:
        return ""
    points, accuracy = summary.diagnosis.figures["noise_points"], best.metrics[ACCURACY]
    noise = points / 100.0
    first = min(each.id for each in summary.best_first if each.metrics[ACCURACY] >= accuracy - noise)
    later = sum(each.id > first for each in ended)
    is_better = any(each.metrics.get(ACCURACY, 0.0) > accuracy + noise for each in summary.trials)
    if len(ended) < LEAST_TRIALS or 2 * later < len(ended) or is_better:
        return ""
    as_good = "is the best" if first == best.id else f"was as good within the noise ({points:.1f} points)"
    after = f"the {counted(later, 'trial')} after it gained nothing that differs from luck"
    return f"trial {first} {as_good}: {after}"


def _print_verdicts(summary: Summary, address: str) -> None:
    """Print the rules that the trials support or contradict, and where to read of the others."""
    verdicts = summary.verdicts
    if verdicts is None or not verdicts.beliefs:
        return
    say(f"\nrules: {counts(verdicts)}; `{command()} explain {address}` lists them all")
    if verdicts.clear:
        console().print(brief_table(verdicts))
        say(promise(verdicts))
