"""A search as it runs, on a terminal: a live table, or one plain line for each trial that ends."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Self

from rich.console import Group
from rich.live import Live
from rich.text import Text

from search.deciding.finalists import Final, expected_epochs
from search.deciding.pruning import Pruning
from search.record.chain import START
from search.record.clock import duration
from search.record.home import EVENTS_FILE
from search.record.journal import EndEvent, EpochEvent, RetryEvent, read_from
from search.record.record import Record
from search.record.summary import Summary, summarise
from search.record.trials import Trial
from search.reporting.tables import (
    trials_table,
)
from search.reporting.terminal import console, effort, headline, ranked, say
from search.study import Study
from spaces.domains import counted
from trainable.terminal import visible_lines
from trainable.tune.place import in_words

REFRESH_SECONDS = 0.5
PAUSE_SECONDS = 10.0  # the view is updated some times a second; after so long without, the driver was halted
AGAIN_SECONDS = 60.0  # without a live table: so long after the last line one says how far trials are
PLANNED_TRIALS = 3  # for so many trials the plan counts, where it is asked how long trials train
MOST_SHARE = 0.05  # drawing takes at most this share of the driver's time: it looks at every trial
# the lines of a live table beside its rows: the headline, the heading, the notes below, and the prompt
LINES_BESIDE_ROWS = 8
logger = logging.getLogger(__name__)


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
        self._planned_epochs = expected_epochs(study, pruning) / study.budget.trials  # of a trial
        self.has_trained = False  # whether an epoch of a trial, or its end, has come since the view was made
        self._read()
        self.has_trained = False
        self._retries.clear()
        summary = self._summary()
        self._slow.update(each.name for each in summary.machines if each.is_slow)
        self._running_seconds, self._counted = summary.wall_seconds, time.monotonic()
        self._said_at = self._counted
        goes_on = bool(summary.all_trials) and not summary.is_being_audited  # a new search has said its plan
        self._effort = effort(study, pruning, final, concurrent) if goes_on else ""
        self._reported.update(trial.id for trial in summary.all_trials if trial.ended)

    def __enter__(self) -> Self:
        if self._effort:
            self._console.print(self._effort, soft_wrap=True)
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
        self._report_progress()
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
            line = f"{self._place(trial, done)} {trial.state_in_words} after {epochs}{score}{reason}"
            logger.info(line)
            if self._live is None:
                self._said_at = time.monotonic()
                say(f"{line}; {left}" if left else line)

    def _report_progress(self) -> None:
        """Say how far the trials are that train now, where a minute has passed without a line."""
        if self._live is not None or time.monotonic() - self._said_at < AGAIN_SECONDS:
            return
        running = [each for each in self._summary().all_trials if each.state == "running"]
        if running:
            self._said_at = time.monotonic()
            say("; ".join(map(self._progress, running)))

    def _progress(self, trial: Trial) -> str:
        """Return how far a trial is, such as `trial 3: epoch 2 of 20, val_accuracy 0.9100`."""
        if not trial.epochs:
            return f"trial {trial.id}: in its first epoch"
        value = trial.metrics.get(self._metric)
        score = "" if value is None else f", {self._metric} {value:.4f}"
        return f"trial {trial.id}: epoch {trial.epochs} of {self._study.budget.epochs}{score}"

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
        unknown. Time in which no driver ran, or this one was halted, does not count.

        The first trials meet few rivals and are trained longer than others: the plan counts as some trials.
        """
        ended = [trial for trial in summary.trials if trial.ended and trial.end != "infeasible"]
        if not ended or not self.has_trained or not summary.epochs_trained:
            return ""
        planned = PLANNED_TRIALS * self._planned_epochs
        epochs_each = (planned + sum(trial.epochs for trial in ended)) / (PLANNED_TRIALS + len(ended))
        to_come = epochs_each * (self._study.budget.trials - len(ended))
        to_come -= sum(trial.epochs for trial in summary.trials if not trial.ended)
        to_come += self._final_epochs - sum(trial.epochs for trial in summary.repeats)
        seconds = to_come * self._running_seconds / summary.epochs_trained
        return f"about {duration(seconds)} left" if to_come > 0.0 else ""
