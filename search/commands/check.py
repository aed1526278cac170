"""`tunebook check`: checks of data, a study or a recipe before a search, as a table or as JSON."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from search.commands.named import Input
from search.commands.options import CheckOptions, bench_of, tell_fields
from search.facts.measured import load_data
from search.facts.start import find_start
from search.learning.cautions import for_objective, recorded
from search.learning.lessons import LEARN_FROM
from search.learning.search import Search
from search.record.folder import keep_findings
from search.reporting.terminal import budget, console, say
from search.study import Study
from spaces.catalog.overrides import Fixed, Varying, parse
from spaces.domains import counted
from trainable.bench import Bench
from trainable.checks.finding import CHECK_NAMES, Finding, Level, advised, counts, keep
from trainable.collector import load_torch, paused
from trainable.debug_tools import check_tools_named
from trainable.errors import UserError
from trainable.files.folders import new_file
from trainable.files.regular import why
from trainable.recipe import Recipe
from trainable.recipe.data import SEPARATORS
from trainable.recipe.training import COMPILED
from trainable.stages import stage
from trainable.terminal import document, tell, visible_lines

if TYPE_CHECKING:  # torch and Ray take seconds to import
    from search.commands.inputs import Target
    from search.running.machines import CheckedMachine

COLOURS: dict[Level, str] = {"error": "red", "warning": "yellow", "note": "cyan", "passed": "dim"}
FREE = ("memory", "temporary files", "cache", "/dev/shm")  # of what a machine says how much is free


def run_check(named: Input, options: CheckOptions) -> bool:
    """Print what is found about data, a study, a recipe or a search; return whether there is no error.

    For a study, and for data alone, their first trial is checked. What is found about the images is kept for
    later searches and trainings of them, and is recorded in a search that was named. Raises UserError.
    """
    began, new_list = time.monotonic(), options.write_exclusions
    check_tools_named(options.debug or ())
    if options.seconds is not None and options.minutes is not None:
        raise UserError("--seconds and --minutes: both set the time of the checks; give one of them")
    if new_list is not None:
        new_list = new_file("--write-exclusions", new_list, force=None, endings=tuple(SEPARATORS))
    if new_list is not None:
        _check_lists_all(named)
    load_torch()
    bench = bench_of(options)
    from search.commands.inputs import load_target

    target = load_target(named, options.file, bench=bench)
    tree: dict[str, object] = {"target": options.title}
    if new_list is not None:
        tree["exclusions"] = _list_copies(target, new_list, options)
    if options.checks:
        _tell_target(target, options)
        findings = list[Finding]()
        for each in findings_of(target, options):
            if not options.as_json:
                console().print(findings_table([each], heading=not findings))
            findings.append(each)
        took, (errors, warnings) = time.monotonic() - began, counts(findings)
        tree |= {"errors": errors, "warnings": warnings, "seconds": round(took, 1)}
        tree["findings"] = [finding.tree() for finding in findings]
        if not options.as_json:
            say(closing(findings, took))
    if options.as_json:
        tell_fields(tree)
    return not tree.get("errors")


def check_cluster(named: Input, options: CheckOptions, address: str) -> bool:
    """Print whether each machine of the cluster at `address` can train a study's trials; return whether all
    can. Nothing is left in the storage. Raises UserError."""
    of_data = {
        "--full": options.full,
        "--debug": options.debug,
        "--seconds": options.seconds,
        "--minutes": options.minutes,
        "--write-exclusions": options.write_exclusions,
    }
    if given := [name for name, value in of_data.items() if value]:
        raise UserError(f"{' and '.join(given)}: not with --address, which checks machines alone")
    from search.commands.asked import resolved_study
    from search.running.cluster import joined
    from search.running.machines import asked, may_compile
    from search.running.prepare import most_bytes

    file, bench = options.title, Bench(may_fetch=options.download)
    match named:
        case Recipe():
            raise UserError(f"{file}: --address needs a study, a search or data; this is a recipe")
        case Study():
            study = resolved_study(named)
            storage, facts, compiles = study.storage, None, _asks_to_compile(study)
        case Path():
            search = Search(named)
            study, storage, facts = search.study, search.home.storage, search.facts
            compiles = may_compile(search.space)
    began = time.monotonic()
    with joined(address) as hardware, asked(study, hardware, storage, facts=facts) as machines:
        trial, most = machines.trial, most_bytes(study, hardware)
        on = trial.bench(bench)
        base = find_start(study, on, cluster=True).recipe(study)
        machines.send_sample(load_data(base, on, most_bytes=most), refuse=False)
        seen, too_small = machines.answers(trial, compiles=compiles), machines.too_small()
    took = time.monotonic() - began
    if options.as_json:
        tree = {"target": file, "address": address, "seconds": round(took, 1)}
        tell_fields(tree | {"machines": [each.tree() for each in seen], "too_small": too_small})
    else:
        console().print(machines_table(seen))
        for name in too_small:
            say(f"{name}: not asked, too small for a worker of a trial ({trial.worker_in_words})")
        unfit = sum(bool(each.faults) for each in seen)
        result = f"{unfit} cannot train" if unfit else "all can train"
        say(f"{counted(len(seen), 'machine')}: {result} (asked in {took:.0f} s)")
    return not any(each.faults for each in seen)


def _asks_to_compile(study: Study) -> bool:
    """Say whether a study itself has trials compiled; a rule may do it once steps are timed."""
    if (written := study.space.overrides.get("loop.compile")) is None:
        return study.pinned.get("loop.compile") in COMPILED
    match parse(written):
        case Fixed(value):
            return value in COMPILED
        case Varying(domain):
            return domain is None or any(each in domain for each in COMPILED)


def machines_table(machines: Sequence[CheckedMachine]) -> Table:
    """Return one row for each machine, with what was found there."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("machine", no_wrap=True)
    for name in ("images/s", *FREE):
        table.add_column(name if name == "images/s" else f"{name} free", justify="right")
    table.add_column("found, what to do", overflow="fold")
    for each in machines:
        free = {} if each.look is None else each.look.free
        rate = "-" if each.images_per_second is None else f"{each.images_per_second:,.0f}"
        sizes = (f"{free[name] / 2**30:,.0f} GiB" if name in free else "-" for name in FREE)
        words = Text(visible_lines("; ".join((*each.faults, *each.remarks))) or "can train")
        if each.look is not None and each.look.compiler and each.look.compiler not in each.faults:
            words.append(visible_lines(f"; not if trials are compiled: {each.look.compiler}"))
        words.stylize("red" if each.faults else "yellow" if each.remarks else "dim")
        table.add_row(Text(visible_lines(each.name)), rate, *sizes, words)
    return table


def findings_of(target: Target, options: CheckOptions) -> Iterator[Finding]:
    """Yield what the checks find, with what the recipe can do about it, and then keep what they found about
    the images. Of a study, what its objective makes good is passed."""
    with stage("loading the checks"), paused():
        from trainable.check import SECONDS, check_subject, make_subject
    from trainable.training.devices import threads

    found, limit = list[Finding](), SECONDS if options.time is None else options.time
    tools = check_tools_named(options.debug or ())
    with threads(target.threads):
        with stage("building the network"):
            subject = make_subject(target.recipe, target.data, None, target.bench)
        for each in check_subject(subject, limit, tools, full=options.full, cpus=target.bench.threads):
            found.append(each)
            read = advised(each, target.recipe, target.data.info)
            yield read if target.study is None else for_objective(read, target.study.objective.metric)
    record(target, found)


def _tell_target(target: Target, options: CheckOptions) -> None:
    """Print what is known of what is checked before any check."""
    if target.pruned is not None:
        tell(target.pruned, sys.stderr if options.as_json else None)
    if not options.as_json:
        say(_title(options.title, target))
        if target.study is not None and target.kind == "study":
            say(budget(target.study))
        if target.data.info.found:
            say(target.data.info.found)
        for line in target.learned:
            say(f"{LEARN_FROM}: {line}")
        if target.teacher is not None:
            say(f"distillation: {target.teacher}")


def record(target: Target, findings: Sequence[Finding]) -> None:
    """Keep what was found about the images, and add it to the record of the search that was named."""
    search, info = target.search, target.data.info
    if search is None:
        keep(info, findings)
        return
    metric = search.study.objective.metric
    known = recorded(findings, target.recipe, info, metric, earlier=search.findings)
    if known != search.findings or not search.images_checked:
        keep_findings(search.folder, known)


def _check_lists_all(given: Input) -> None:
    """Raise UserError where an earlier list leaves copies out: before the images are loaded, since that list
    may be missing, or of other images."""
    data = Search(given).study.data if isinstance(given, Path) else given.data
    if data.exclude is not None:
        raise UserError(
            f"--write-exclusions: {data.exclude} is left out already (data.exclude), and the new file would "
            "have the other copies alone; set data.exclude=null to list all (--set data.exclude=null)"
        )


def _list_copies(target: Target, path: Path, options: CheckOptions) -> dict[str, object]:
    """Write which images are to be left out, as they are copies of others, and print how many of which part.

    Returns what is printed as a tree. Raises UserError.
    """
    from trainable.checks.exclusions import exclusions, write_exclusions
    from trainable.tasks.kits import kit_of
    from trainable.training.devices import threads

    members, _ = kit_of(target.recipe.task).stored_parts(target.recipe, bench=target.bench)
    with threads(target.threads):
        found = exclusions(target.data, members, full=options.full)
    near, parts = len(found.rows) - found.equal, Counter(each.part for each in found.rows)
    if found.rows:
        try:
            write_exclusions(found.rows, path)
        except OSError as error:
            raise UserError(f"--write-exclusions: {path}: {why(error)}") from error
    if not options.as_json:
        compared = "; ".join(f"{kind}: {extent}" for kind, extent in found.compared.items())
        say(
            f"{path}: {', '.join(f'{count:,} of {part}' for part, count in parts.items())}; "
            f"{found.equal:,} equal and {near:,} nearly the same as an image that stays ({compared}). Look "
            f"at them, and set data.exclude: {path}"
            if found.rows
            else f"no image is in two parts, or nearly ({compared}); no file is written"
        )
    return {
        "file": str(path) if found.rows else None,
        "equal": found.equal,
        "nearly_the_same": near,
        "parts": dict(parts),
        "compared": dict(found.compared),
    }


def findings_table(findings: Sequence[Finding], *, heading: bool = True) -> Table:
    """Return one row for each finding, with its meaning and advice below.

    Columns have one width in all such tables: findings are printed one after the other, when they are known.
    """
    table = Table(box=None, header_style="bold", pad_edge=False, show_header=heading)
    table.add_column("level", no_wrap=True, width=max(map(len, COLOURS)))
    table.add_column("check", no_wrap=True, width=max(map(len, CHECK_NAMES)))
    table.add_column("found, what it means, what to do", overflow="fold")
    for finding in findings:
        style = COLOURS[finding.level]
        table.add_row(Text(finding.level, style=style), Text(finding.check, style=style), _in_words(finding))
    return table


def closing(findings: Sequence[Finding], seconds: float) -> str:
    """Return the outcome in one line, with the sections that say more of what is no sign of health."""
    errors, warnings = counts(findings)
    sections = dict.fromkeys(each.section for each in findings if each.level in ("error", "warning"))
    more = f"; more: {document(f'docs/checks.md{joined}')}" if (joined := ", ".join(sections)) else ""
    return f"{counted(errors, 'error')}, {counted(warnings, 'warning')}, in {seconds:.0f} s{more}"


def _title(file: str, target: Target) -> str:
    recipe, info = target.recipe, target.data.info
    return (
        f"{target.kind} {file}: {info.train_images:,} training images of {len(info.classes)} classes; "
        f"{recipe.sentence_at(info.image_size)}"
    )


def _in_words(finding: Finding) -> Text:
    """Return what was found; below it what it means, and what to do."""
    whole = Text(visible_lines(finding.what), style="dim" if finding.level == "passed" else "")
    for name, text in (("means", finding.means), ("do", finding.do)):
        if text:
            whole.append(f"\n{name}: ", style="dim").append(visible_lines(text))
    return whole
