"""What a person reads on a terminal: the plan of a search, its trials, what they say, the next study."""

from __future__ import annotations

import json
import logging
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from search.deciding.finalists import Final
from search.deciding.pruning import Pruning
from search.learning.evidence import SearchFinding
from search.learning.next_steps import since_when_nothing_was_gained
from search.learning.pruning_audit import PruningAudit
from search.learning.refine import Refined
from search.learning.search import Search
from search.learning.standings import LEAST_TRIALS
from search.learning.verdicts import counts, promise, untested
from search.record.clock import duration, time_limit
from search.record.code import functions_of, train_call
from search.record.folder import read_code
from search.record.summary import Summary
from search.record.trials import Trial
from search.reporting.tables import (
    TextTable,
    audit_lines,
    brief_table,
    finals_table,
    frontier_table,
    graces_table,
    rungs_table,
    trials_table,
    winner_line,
)
from search.study import Study
from spaces.catalog.explain import Row
from spaces.domains import counted
from trainable.extras import NotInstalled, needing_run
from trainable.recipe.base import with_guide_names
from trainable.terminal import document, encodable, line_comes, program_name, tell_json, visible_lines

USUAL_LAG_SECONDS = 5.0  # MLflow is sent what is new once a second
logger = logging.getLogger(__name__)


class Screen(Console):
    """A console for somebody's texts: no brackets in them are a style, and no character is obeyed."""

    def print(self, *objects: Any, **options: Any) -> None:
        line_comes()
        super().print(*objects, **options)

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


def effort(study: Study, pruning: Pruning, final: Final, concurrent: int) -> str:
    """Return in one line what a search trains: its trials, which of them go on, and what follows them."""
    parts = [f"{budget(study)}, {concurrent} at once"]
    if study.budget.hours is not None:
        parts[0] += f", {time_limit(study.budget.hours)} at most"
    parts.append(pruning.brief(study.budget.epochs))
    if (best := final.finalists) is not None:
        which = "the best trial" if best.top == 1 else f"the best {best.top} trials"
        parts.append(f"{which} again with {counted(best.seeds, 'seed')}")
    return "; ".join(parts)


def budget(study: Study) -> str:
    """Return how many trials a study asks for, how long they are, and how many are a person's own."""
    trials, epochs = counted(study.budget.trials, "trial"), counted(study.budget.epochs, "epoch")
    own = f", with {counted(len(study.first), 'first trial')} of the study" if study.first else ""
    return f"{trials} x {epochs} at most{own}"


def headline(summary: Summary) -> str:
    """Return the search in one line, while and after it runs: best so far, trials by state, epochs saved."""
    metric, states = summary.objective, Counter(trial.state_in_words for trial in summary.trials)
    parts = [f"{count} {state}" for state, count in sorted(states.items())]
    best, own = summary.best, summary.documented
    if best is not None:
        line = f"best {summary.score_in_words}"
        if own is not None and own.id != best.id and metric in own.metrics:
            line += f", the documented recipe {own.metrics[metric]:.4f}"
        parts.insert(0, line)
    return ", ".join([*parts, summary.epochs_in_words])


def ranked(summary: Summary) -> list[Trial]:
    """Return the trials in a person's order: finished ones first, then by epochs trained and score."""

    def key(trial: Trial) -> tuple[bool, int, float]:
        score = trial.metrics.get(summary.objective)
        value = -1e300 if score is None else summary.sign * score
        return trial.state == "finished", trial.epochs, value

    return sorted(summary.trials, key=key, reverse=True)


def closing(search: Search, best_file: Path, fault: str | None = None) -> None:
    """Print the end of a search: its trials, what they say of the best and the rules, and how to go on.

    `fault` says what has kept it from going on. A disk may not even have taken that the search ends: its
    state is then still `running`, as this process is.
    """
    summary, address = search.summary, quote(search.home.address)
    _print_search(search)
    match summary.state:
        case "finished":
            if summary.outcome_reason:
                say(f"\n{summary.outcome_reason}")
            say(f"\nbest recipe: {best_file}")
            say(f"  {program_name()} ui {address}")
            call = train_call(best_file, search.study, search.code)
            say(f"  in Python: {call}" if call else f"  {search.train_command(best_file)}")
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
    _print_search(search)
    if behind := mlflow_lags(summary):
        sync = f"; `{program_name()} sync {quote(search.home.address)}` sends it"
        say(behind if summary.state == "running" else f"{behind}{sync}")


def _print_search(search: Search) -> None:
    """Print the trials, the best first, and what they say of the best and the rules."""
    summary, out = search.summary, console()
    out.print(trials_table(summary, ranked(summary), out.width))
    if summary.cautions:
        report = f"`{program_name()} report {quote(search.home.address)}`"
        more = f"{report} has all figures, {document('docs/checks.md')} more on each"
        say(f"before you trust the answer ({more}):")
    for caution in summary.cautions:
        say(f"- {caution.brief}")
        if caution.do:
            say(f"  do: {caution.do}")
    if summary.best is not None and summary.best.sentence:
        say(f"trial {summary.best.numbered_sentence}")
    out.print(headline(summary), soft_wrap=True)
    if (spent := summary.turnaround) is not None:
        say(f"where the time went: {spent.brief}")
    for machine in summary.machines if len(summary.machines) > 1 else ():
        say(f"  {machine}")
    for left_out in summary.left_out:
        say(f"  {left_out}")
    if summary.finals is not None:
        say("\nthe best trials, trained again (estimate: the mean, drawn towards that of all):")
        out.print(finals_table(summary.finals, summary.objective))
        say(winner_line(summary.finals, summary.objective))
    try:
        with needing_run("what audit-pruning has found"):
            audit = search.pruning_audit
        if audit is not None:
            print_audit(audit, search.pruning.rungs)
    except NotInstalled as missing:
        say(f"\n{missing}")
    if summary.frontier:
        limits = f"; {summary.constraints}" if summary.constraints.limits else ""
        say(f"\n{summary.objective} against latency, none quicker and better{limits}:")
        out.print(frontier_table(summary))
    if summary.best is not None and summary.diagnosis is not None:
        first, *others = summary.diagnosis.lines()
        for line in (f"\ntrial {summary.best.id} is {first}", *others):
            say(line)
    address = quote(search.home.address)
    if line := since_when_nothing_was_gained(search):
        say(f"\n{line}; `{program_name()} refine {address}` says what may gain more, or why to stop")
    verdicts = summary.verdicts
    if verdicts is not None and verdicts.beliefs:
        few, explain = untested(verdicts), f"{program_name()} explain {address}"
        says = f"{few}; `{explain} --all`" if few else f"rules: {counts(verdicts)}; `{explain}`"
        say(f"\n{says} lists them{'' if few else ' all'}")
        if verdicts.clear:
            out.print(brief_table(verdicts))
            say(promise(verdicts))


def mlflow_lags(summary: Summary) -> str:
    """Return in words how far MLflow is behind a search; empty where it is not, or by seconds as it runs."""
    lacks = summary.mlflow_lacks_seconds or 0.0
    usual = USUAL_LAG_SECONDS if summary.state == "running" else 0.0
    return f"MLflow lacks the last {duration(max(lacks, 1.0))} of the search" if lacks > usual else ""


def rows_table(title: str, rows: Sequence[Row]) -> TextTable:
    """Return an explanation with one row for each field: what it is, why, and the source."""
    sources = with_guide_names(row.source for row in rows)
    cells = tuple((row.path, row.what, row.reason, source) for row, source in zip(rows, sources, strict=True))
    return TextTable(title, ("field", "range or value", "why", "source"), cells, head=2, whole={"field"})


def print_audit(audit: PruningAudit, rungs: tuple[int, ...]) -> None:
    """Print what stopped trials came to that were trained to their end."""
    say("\nwas stopping early right?")
    for table in (rungs_table(audit), graces_table(audit)):
        if table.rows:
            console().print(table)
    for line in audit_lines(audit, rungs):
        say(line)


def show_refined(refined: Refined, folder: Path, out: Path | None) -> None:
    """Print what helps after a search in a folder, why, and where its next study is written, if it is."""
    name = refined.summary.search
    if refined.study is None:
        say(f"nothing to change in the study: {'no study' if out is None else f'{out} is not'} written")
    if refined.compared_trials < LEAST_TRIALS:
        ended = f"{refined.compared_trials} trials ended with a score or diverged"
        say(f"{name}: too early to say much: {ended}, {LEAST_TRIALS} are needed")
    else:
        say(f"{name}: {refined.compared_trials} trials, {counted(len(refined.findings), 'finding')}")
    say("what helps, the first thing first:")
    for number, step in enumerate(refined.steps, start=1):
        say(f"  {number}. {step.do if step.kind == 'stop' else f'{step.kind}: {step.do}'}")
        say(f"     why: {step.why}")
    for finding in refined.findings:
        _print_finding(finding)
    if refined.edits:
        edits = tuple((each.field, each.before, each.after, each.why) for each in refined.edits)
        console().print(TextTable("\nchanged", ("field", "before", "after", "why"), edits, whole={"field"}))
    if refined.left_alone:
        left_alone = tuple((each.about, each.why) for each in refined.left_alone)
        console().print(TextTable("\nleft alone", ("field", "why"), left_alone, whole={"field"}))
    if refined.study is not None:
        say(_next_study(refined.study, folder, out))


def _print_finding(finding: SearchFinding) -> None:
    say(f"\n{finding.kind}, {finding.about}: {finding.seen}")
    (source,) = with_guide_names([finding.source])
    say(f"  rule: {finding.rule} ({source})")
    for line in finding.advice:
        say(f"  {line}")


def _next_study(study: Study, folder: Path, out: Path | None) -> str:
    if out is None:
        return "\nnothing is written; -o FILE writes the next study"
    written = f"\nnext study, {study.name}: {out}\n"
    if own := functions_of(study, read_code(folder)):
        return f"{written}  in Python: tunebook.search({str(out)!r}, {own})"
    file = quote(str(out))
    return f"{written}  {program_name()} explain {file}\n  {program_name()} search {file}"
