"""What a person waits for: from Enter to the first step of a search's first trial, and to its end.

    python benchmarks/turnaround.py [--data digits] [--trials 4] [--epochs 3] [--repeats 3] [ARGUMENT ...]
    python benchmarks/turnaround.py --data FOLDER --trials 32 --epochs 6 --name turnaround-gpu

Each repetition is one `tunebook search` in a process of its own, with a storage of its own and another seed;
further arguments are its. The time until the first step is told apart by the stages in the search's log
(`trainable.stages`) and by the times in its journal. The first repetition finds caches as they are; the
others find what it has left, such as decoded images and timed steps. Before each, `--cold` drops the files
that Python imports from, and those of the data, from the page cache, where no other process uses them.

A trial that follows another in its process, with the same network and batch, must pay for nothing again: what
starting it took is compared with the first one's. Asked of one GPU, for 32 trials of 2,500 photographs at 128
px: the first step within 30 s (60 s cold), and all in at most 1.5 times the time of the trials' steps.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from report import MOST_LOAD_PER_THREAD, described, environment, portable, write
from search.learning.search import Search
from search.record.home import EVENTS_FILE, LOG_FILE
from search.record.journal import EndEvent, EpochEvent, Event, RetryEvent, StartEvent, TrialEvent, read
from search.record.turnaround import IN_WORDS, Turnaround
from spaces.domains import counted
from trainable.training.metrics import EpochResult

MOST_SECONDS, MOST_SECONDS_COLD, MOST_RATIO = 30, 60, 1.5  # asked of one GPU
PARTS = {
    "loading torch and Ray": "imports",
    "reading the images": "data",
    "comparing the parts of the images": "data",
    "decoding the images": "data",
    "timing steps of the network": "timing",
    "finding what the study's probes ask for": "timing",
    "measuring what a trial takes of a GPU": "timing",
    "starting Ray": "Ray",
}  # of the time before the first trial, by stage; what is in none of these are facts and checks
BUSY = " The machine was busy with other work, so every time is longer than on a quiet one."
NAMES = ("imports", "data", "facts", "timing", "Ray", "worker", "first step")


class Stage(NamedTuple):
    """A stage of a search, in seconds since 1970."""

    what: str
    began: float
    ended: float


def main() -> None:
    options, arguments = _options()
    where = environment(threads=1)
    runs = []
    for number in range(options.repeats):
        if options.cold:
            drop_from_page_cache(map(Path, [*sys.path, options.data]))
        runs.append(measured(options, arguments, seed=number))
        print({name: runs[-1][name] for name in ("until_first_step", "wall_seconds", "ratio")}, flush=True)
    write(options.name, {"environment": where, "runs": runs}, page(runs, options, where))


def measured(options: argparse.Namespace, arguments: Sequence[str], seed: int) -> dict[str, Any]:
    """Return what one search took, a command in a process of its own."""
    with tempfile.TemporaryDirectory() as storage:
        command = [
            *(sys.executable, "-m", "search", "search", "--data", options.data, "--storage", storage),
            *("--name", "timed", "--trials", str(options.trials), "--epochs", str(options.epochs)),
            *("--set", f"seed={seed}", *arguments),
        ]
        entered = time.time()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        wall = time.time() - entered
        folder = Path(storage) / "timed"
        search = Search(folder)
        assert search.progress.turnaround is not None
        spent = search.progress.turnaround
        return {
            "seed": seed,
            **until_first_step(entered, list(stages(folder / LOG_FILE)), read(folder / EVENTS_FILE)),
            "wall_seconds": wall,
            "ratio": wall * spent.slots / spent.steps_seconds,
            "turnaround": spent.model_dump(),
        }


def stages(log: Path) -> Iterator[Stage]:
    """Yield the stages in a search's log, which has a line where each ended."""
    for line in log.read_text().splitlines():
        day, clock, _, *words = line.split()
        if len(words) < 3 or words[-1] != "s" or not words[-2].replace(".", "").isdigit():
            continue
        ended = datetime.strptime(f"{day} {clock}", "%Y-%m-%d %H:%M:%S,%f").timestamp()  # local
        yield Stage(" ".join(words[:-2]).removesuffix(":"), ended - float(words[-2]), ended)


def until_first_step(entered: float, known: Sequence[Stage], events: Sequence[Event]) -> dict[str, Any]:
    """Return the seconds from Enter to the end of the first trial's first step, told apart, those of its
    first epoch, and what starting took of the trials that follow one of the same kind in their process."""
    first = next(each for each in events if isinstance(each, StartEvent))
    epoch = next(each for each in events if isinstance(each, EpochEvent) and each.trial == first.trial)
    recipes = {each.trial: each.recipe or {} for each in events if isinstance(each, TrialEvent)}
    result, began = epoch.result, _began(epoch)
    step = first_step(result, recipes[first.trial]["loop"]["batch_size"])
    ray = max((each.ended for each in known if each.what == "starting Ray"), default=first.time)
    parts = dict.fromkeys(NAMES, 0.0) | told_apart(entered, ray, known)
    parts |= {"worker": began - ray, "first step": step}
    return {
        "until_first_step": sum(parts.values()),
        "parts": parts,
        "first_epoch": {
            "training": result.epoch_seconds - result.evaluation_seconds,
            "scoring": result.evaluation_seconds,
            "checkpoint": result.checkpoint_seconds,
        },
        "first_trial": _start_of(result),
        "following": list(following(events, recipes)),
    }


def told_apart(begin: float, end: float, known: Iterable[Stage]) -> dict[str, float]:
    """Return the seconds of each part between two times: of stages within others the innermost counts."""
    known = [each for each in known if each.what in PARTS and each.began < end]
    cuts = sorted(
        {begin, end, *(min(max(at, begin), end) for each in known for at in (each.began, each.ended))}
    )
    parts: dict[str, float] = {}
    for low, high in pairwise(cuts):
        over = [each for each in known if each.began <= low and each.ended >= high]
        name = PARTS[max(over, key=lambda each: each.began).what] if over else "facts"
        # the interpreter starts before the first stage begins
        name = "imports" if high <= min((each.began for each in known), default=begin) else name
        parts[name] = parts.get(name, 0.0) + high - low
    return parts


def first_step(result: EpochResult, batch: int) -> float:
    """Return what the first step of an epoch took at most: with all that the epoch waited for data."""
    training = result.epoch_seconds - result.evaluation_seconds
    extra = result.first_step_extra_seconds or 0.0
    steps = max(1, round(result.images_per_second * training / batch))
    return result.data_seconds + extra + (training - result.data_seconds - extra) / steps


def following(events: Sequence[Event], recipes: dict[int, Any]) -> Iterator[float]:
    """Yield what starting took of each trial that follows one of the same kind in a process that lives on."""
    begun: list[Any] = []
    free, follow = 0, set()
    for event in events:
        match event:
            case RetryEvent():
                return  # a process may have died
            case EndEvent() if recipes[event.trial] in begun:
                free += 1
            case StartEvent():
                if free and _kind(recipes[event.trial]) in map(_kind, begun):
                    follow.add(event.trial)
                free -= free > 0
                begun.append(recipes[event.trial])
            case EpochEvent() if event.epoch == 1 and event.trial in follow:
                yield _start_of(event.result)


def _kind(recipe: dict[str, Any]) -> Any:
    """Return what compiled code and plans of kernels depend on."""
    return [recipe["model"], recipe["loop"]["batch_size"], recipe["data"]["image_size"], recipe["precision"]]


def _start_of(result: EpochResult) -> float:
    return (result.starting_seconds or 0.0) + (result.first_step_extra_seconds or 0.0)


def _began(event: EpochEvent) -> float:
    """Return when an epoch began, at the latest: its result was on its way for a moment."""
    return event.time - (event.result.checkpoint_seconds or 0.0) - event.result.epoch_seconds


def drop_from_page_cache(folders: Iterable[Path]) -> None:
    """Drop files from the machine's page cache; what another process has mapped stays."""
    for file in (each for folder in folders for each in folder.rglob("*") if each.is_file()):
        opened = os.open(file, os.O_RDONLY)
        try:
            os.posix_fadvise(opened, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(opened)


# --- the page -----------------------------------------------------------------------------------------


def page(runs: Sequence[dict[str, Any]], options: argparse.Namespace, where: dict[str, Any]) -> str:
    """Return the page of results: medians over the repetitions, with the least and the most."""
    asked = MOST_SECONDS_COLD if options.cold else MOST_SECONDS
    machine = where["gpu"] or f"{where['cores']} CPU cores"
    parts = [(name, [each["parts"][name] for each in runs]) for name in NAMES]
    parts.append((f"**until the first step** (asked of one GPU: {asked})", _each(runs, "until_first_step")))
    later = [(name, [each["first_epoch"][name] for each in runs]) for name in runs[0]["first_epoch"]]
    later.append(("what starting took of the first trial", _each(runs, "first_trial")))
    if after := [seconds for each in runs for seconds in each["following"]]:
        later.append((f"of {counted(len(after), 'trial')} that came after one of the same kind", after))
    ratio = f"over the time of steps / places for trials (asked of one GPU: {MOST_RATIO})"
    whole = [("wall time of the command, s", _each(runs, "wall_seconds")), (ratio, _each(runs, "ratio"))]
    accounts = [Turnaround.model_validate(each["turnaround"]) for each in runs]
    shares = [(what, [100.0 * each.share(name) for each in accounts]) for name, what in IN_WORDS.items()]
    is_busy = where["load_before"] > MOST_LOAD_PER_THREAD * where["cores"]
    search = f"`tunebook search --data {portable(options.data)} --trials {options.trials}"
    return (
        f"# From Enter to the first step, and to the end, on {machine}\n\n"
        f"{search} --epochs {options.epochs}`, {accounts[0].whose}, n = {len(runs)} searches"
        f"{', each with a cold page cache' if options.cold else ''}. The first may find no decoded images "
        "and no timed steps, the others find what it has left. A first step's seconds are an upper bound: "
        f"they hold all that its epoch waited for data.{BUSY if is_busy else ''}\n\n"
        f"{_table('from Enter, s', parts)}\n{_table('then, s', later)}\n{_table('the whole search', whole)}\n"
        f"{_table('where the time went, %', shares)}\n{described(where)}"
    )


def _each(runs: Sequence[dict[str, Any]], name: str) -> list[float]:
    return [each[name] for each in runs]


def _table(title: str, rows: Sequence[tuple[str, Sequence[float]]]) -> str:
    lines = [
        f"| {what} | {statistics.median(found):.2f} | {min(found):.2f} to {max(found):.2f} |"
        for what, found in rows
    ]
    return f"| {title} | median | least to most |\n|-|-|-|\n" + "\n".join(lines) + "\n"


def _options() -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(
        description="Measure the time from Enter to a search's first step, and that of the whole search.",
        epilog="Further arguments are those of `tunebook search`.",
        allow_abbrev=False,
    )
    parser.add_argument("--data", default="digits", help="what to search on, as `tunebook search` takes it")
    parser.add_argument("--trials", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cold", action="store_true", help="drop files from the page cache before each")
    parser.add_argument("--name", default="turnaround-cpu")
    return parser.parse_known_args()


if __name__ == "__main__":
    main()
