"""Implements `tunebook check`: checks of data, a study or a recipe before a search, as a table or as JSON."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table
from rich.text import Text

from search.commands.inputs import Target, load_target
from search.learning.lessons import LEARN_FROM
from search.results.report import budget, console, say
from spaces.domains import counted
from trainable.checks.check import SECONDS, check, tools_named
from trainable.checks.exclusions import exclusions, write_exclusions
from trainable.checks.finding import Finding, Level, counts
from trainable.data.assembly import stored_parts
from trainable.errors import UserError
from trainable.files.regular import why
from trainable.recipe.tasks import masks_of
from trainable.terminal import tell, tell_json, visible_lines
from trainable.training.devices import threads

COLOURS: dict[Level, str] = {"error": "red", "warning": "yellow", "note": "cyan", "passed": "dim"}
SCHEMA = 1


def run_check(
    file: str,
    *,
    settings: Sequence[str] = (),
    full: bool = False,
    debug: Sequence[str] = (),
    seconds: float = SECONDS,
    download: bool = False,
    as_json: bool = False,
) -> bool:
    """Print what is found about data, a study, a recipe or a search; return whether there is no error.

    For a study, and for data alone, their first trial is checked. Nothing is written. Raises UserError.
    """
    began, tools = time.monotonic(), tools_named(debug)
    target = load_target(file, None, settings, download=download)
    if target.pruned is not None:
        tell(target.pruned, sys.stderr if as_json else None)
    if not as_json:
        say(_title(file, target))
        if target.study is not None and target.kind == "study":
            say(budget(target.study))
        if target.data.info.found:
            say(target.data.info.found)
        for line in target.learned:
            say(f"{LEARN_FROM}: {line}")
        if target.teacher is not None:
            say(f"distillation: {target.teacher}")
    with threads(target.threads):
        findings = check(
            target.recipe,
            data=target.data,
            device=target.device,
            full=full,
            debug=tools,
            seconds=seconds,
            cpus=target.cpus,
            download=download,
        )
    took = time.monotonic() - began
    if as_json:
        tell_json(json.dumps(_tree(file, findings, took), indent=2, allow_nan=False))
    else:
        console().print(findings_table(findings))
        say(closing(findings, took))
    return counts(findings)[0] == 0


def run_exclusions(
    file: str, path: Path, *, settings: Sequence[str] = (), full: bool = False, download: bool = False
) -> None:
    """Write which images are to be left out, as they are copies of others, and print how many of which part.

    Nothing else is checked. Raises UserError, also for a file that exists.
    """
    if path.exists():
        raise UserError(f"--write-exclusions: {path} exists; name another file, or remove it")
    target = load_target(file, None, settings, download=download)
    data = target.recipe.data
    if data.exclude is not None:
        raise UserError(
            f"--write-exclusions: {data.exclude} is left out already (data.exclude), and the new file would "
            "have the other copies alone; set data.exclude=null to list all"
        )
    members, _ = stored_parts(data, download=download, masks=masks_of(target.recipe.task))
    found = list(exclusions(target.data, members, full=full))
    if not found:
        say("no image is in two parts, or nearly; no file is written")
        return
    try:
        write_exclusions(found, path)
    except OSError as error:
        raise UserError(f"--write-exclusions: {path}: {why(error)}") from error
    equal = sum(each.why == "equal" for each in found)
    parts = ", ".join(f"{count:,} of {part}" for part, count in Counter(each.part for each in found).items())
    say(
        f"{path}: {parts}; {equal:,} equal and {len(found) - equal:,} nearly the same as an image that "
        f"stays. Look at them, and set data.exclude: {path}"
    )


def findings_table(findings: Sequence[Finding]) -> Table:
    """Returns one row for each finding, in the order of the checks, with its meaning and advice below."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("level", no_wrap=True)
    table.add_column("check", no_wrap=True)
    table.add_column("found, what it means, what to do", overflow="fold")
    for finding in findings:
        style = COLOURS[finding.level]
        table.add_row(Text(finding.level, style=style), Text(finding.check, style=style), _in_words(finding))
    return table


def closing(findings: Sequence[Finding], seconds: float) -> str:
    """Returns the outcome in one line."""
    errors, warnings = counts(findings)
    return f"{counted(errors, 'error')}, {counted(warnings, 'warning')}, in {seconds:.0f} s"


def _title(file: str, target: Target) -> str:
    recipe, info = target.recipe, target.data.info
    return (
        f"{target.kind} {file}: {info.train_images:,} training images of {len(info.classes)} classes, "
        f"{info.image_size} px, recipe {recipe.digest()} with {recipe.model.kind}"
    )


def _in_words(finding: Finding) -> Text:
    """Returns what was found; below it what it means, and what to do."""
    whole = Text(visible_lines(finding.what), style="dim" if finding.level == "passed" else "")
    for name, text in (("means", finding.means), ("do", finding.do)):
        if text:
            whole.append(f"\n{name}: ", style="dim").append(visible_lines(text))
    return whole


def _tree(file: str, findings: Sequence[Finding], seconds: float) -> dict[str, object]:
    errors, warnings = counts(findings)
    return {
        "schema": SCHEMA,
        "target": file,
        "errors": errors,
        "warnings": warnings,
        "seconds": round(seconds, 1),
        "findings": [finding.tree() for finding in findings],
    }
