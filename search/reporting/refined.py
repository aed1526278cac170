"""Prints an audit: the findings, the changes with their reasons, and what is left alone."""

from __future__ import annotations

import json
from pathlib import Path
from shlex import quote

from search.learning.evidence import SearchFinding
from search.learning.refine import Refined, refine, write_next
from search.learning.search import Search
from search.learning.standings import LEAST_TRIALS
from search.record.code import extend_call, functions_of
from search.record.folder import read_code
from search.reporting.tables import Rows
from search.reporting.terminal import console, say
from spaces.domains import counted
from trainable.errors import UserError
from trainable.recipe.base import with_guide_names
from trainable.terminal import command, tell_json

NOTHING_WRITTEN = 1  # the exit code where a study was asked for and there is none


def run_refine(folder: Path, out: Path | None, *, as_json: bool) -> None:
    """Print the audit and, where it asks for changes, write the next study to `out`.

    Ends the program with exit code 1 where `out` is asked for and nothing is to be changed: a script's next
    command would find no study. Raises UserError, before anything is written, where the folder holds no
    search that is over, or `out` exists.
    """
    if out is not None and out.exists():
        raise UserError(f"{out}: exists; give the next study another name, or remove it first")
    found = refine(Search(folder.absolute()))
    if out is not None:
        write_next(found, out)
    if as_json:
        where = str(out) if out is not None and found.study is not None else None
        tell_json(json.dumps({**found.json(), "out": where}, indent=2, allow_nan=False))
    else:
        _print(found, folder, out)
    if out is not None and found.study is None:
        raise SystemExit(NOTHING_WRITTEN)


def _print(found: Refined, folder: Path, out: Path | None) -> None:
    name = found.summary.search
    if found.study is None:
        say("nothing to change: no study was written")
    if found.compared_trials < LEAST_TRIALS:
        missing = f"{found.compared_trials} trials ended with a score or diverged, {LEAST_TRIALS} are needed"
        say(f"{name}: too early to say: {missing}")
        return
    say(f"{name}: {found.compared_trials} trials, {counted(len(found.findings), 'finding')}")
    for finding in found.findings:
        _print_finding(finding)
    if found.edits:
        edits = tuple((each.field, each.before, each.after, each.why) for each in found.edits)
        console().print(Rows("\nchanged", ("field", "before", "after", "why"), edits, whole={"field"}))
    if found.left_alone:
        left_alone = tuple((each.about, each.why) for each in found.left_alone)
        console().print(Rows("\nleft alone", ("field", "why"), left_alone, whole={"field"}))
    say(_closing(found, folder, out))


def _print_finding(finding: SearchFinding) -> None:
    say(f"\n{finding.kind}, {finding.about}: {finding.seen}")
    (source,) = with_guide_names([finding.source])
    say(f"  rule: {finding.rule} ({source})")
    for line in finding.advice:
        say(f"  {line}")


def _closing(found: Refined, folder: Path, out: Path | None) -> str:
    if found.study is None:
        return f"\nmore trials of the same kind:\n  {_more(found, folder)}"
    if out is None:
        return "\nnothing is written; -o FILE writes the next study"
    written = f"\nnext study, {found.study.name}: {out}\n"
    if own := functions_of(found.study, read_code(folder)):
        return f"{written}  in Python: search({str(out)!r}, {own})"
    file = quote(str(out))
    return f"{written}  {command()} explain {file}\n  {command()} search {file}"


def _more(found: Refined, folder: Path) -> str:
    """Return the command that draws as many trials again, in the same search."""
    trials = found.following.budget.trials
    if call := extend_call(str(folder), trials, found.following, read_code(folder)):
        return f"in Python: {call}"
    return f"{command()} extend {quote(str(folder))} --trials {trials}"
