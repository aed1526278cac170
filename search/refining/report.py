"""What a person sees of an audit: the findings, the changes with their reasons, and what is left alone."""

from __future__ import annotations

import json
from pathlib import Path

from rich.table import Table
from rich.text import Text

from search.refining.audit import LEAST_TRIALS
from search.refining.evidence import Finding
from search.refining.refine import Refined, refined, write_next
from search.report import command, console, say
from trainable.errors import UserError


def run_refine(folder: Path, out: Path | None, *, as_json: bool) -> None:
    """Print the audit and, where it asks for changes, write the next study to `out`.

    Raises UserError, before anything is written, where the folder holds no search that is over, or `out`
    exists.
    """
    if out is not None and out.exists():
        raise UserError(f"{out}: exists; give the next study another name, or remove it first")
    found = refined(folder)
    if out is not None:
        write_next(found, out)
    if as_json:
        where = str(out) if out is not None and found.study is not None else None
        print(json.dumps({**found.json(), "out": where}, indent=2, allow_nan=False))
        return
    _tell(found, folder, out)


def _tell(found: Refined, folder: Path, out: Path | None) -> None:
    name = found.summary.search
    if found.judged < LEAST_TRIALS:
        told = f"{found.judged} trials ended with a score or diverged, {LEAST_TRIALS} are needed"
        say(f"{name}: too early to say: {told}; nothing is written")
        return
    say(f"{name}: {found.judged} trials, {_count(len(found.findings), 'finding')}")
    for finding in found.findings:
        _tell_finding(finding)
    if found.edits:
        console().print(changes_table(found))
    if found.kept:
        console().print(kept_table(found))
    say(_closing(found, folder, out))


def _tell_finding(finding: Finding) -> None:
    say(f"\n{finding.kind}, {finding.about}: {finding.seen}")
    say(f"  rule: {finding.rule} ({finding.source})")
    for line in finding.advice:
        say(f"  {line}")


def changes_table(found: Refined) -> Table:
    """One row a changed place of the study."""
    table = _table("\nchanged", "field", "before", "after", "why")
    for each in found.edits:
        table.add_row(*map(Text, (each.field, each.before, each.after, each.why)))
    return table


def kept_table(found: Refined) -> Table:
    """One row for what was looked at and is left as it was."""
    table = _table("\nleft alone", "field", "why")
    for each in found.kept:
        table.add_row(Text(each.about), Text(each.why))
    return table


def _closing(found: Refined, folder: Path, out: Path | None) -> str:
    if found.study is None:
        more = f"`{command()} search {folder}/study.yaml --name NEW --trials N --set seed=N` draws more of it"
        return f"\nnothing to change, so no study is written; {more}"
    if out is None:
        return "\nnothing is written; -o FILE writes the next study"
    return f"\nnext study, {found.study.name}: {out}\n  {command()} explain {out}\n  {command()} search {out}"


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", header_style="bold", box=None, pad_edge=False)
    for name in columns:
        table.add_column(name, overflow="fold", no_wrap=name == "field")
    return table


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
