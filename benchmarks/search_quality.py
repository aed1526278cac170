"""How good a search is for its epochs, offline: samplers and priors over known learning curves.

    TUNEBOOK_DATA=FOLDER python benchmarks/search_quality.py [--processes 2]
    TUNEBOOK_DATA=FOLDER python benchmarks/search_quality.py \\
        --tasks lcbench:4,taskset --seeds 5 --arms tpe+asha,prior-tpe --budget 25 --print
    python benchmarks/peer_environments.py
    TUNEBOOK_DATA=FOLDER python benchmarks/search_quality.py --peers --peer-seeds 4

Every arm searches every task from every seed with the same budget of epochs; finished runs are kept in
`--runs`, so one that was cut short goes on, and an arm that changed runs again alone. Peers take hours and do
not depend on our samplers: their runs are kept with the results.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import asdict
from importlib import metadata
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np

from offline.arms import Arm, Settings, arm_of, chosen_arms, digest, run
from offline.peer_arms import PeerArm, missing_environments
from offline.quality_page import draw, page, summary
from offline.regret import Array, regret
from offline.tasks import task, task_names
from report import RESULTS, environment, write
from spaces.priors import Confidence

RUNS = Path(tempfile.gettempdir()) / "tunebook-search-quality.jsonl"
PEER_RUNS = RESULTS / "search-quality-peers.jsonl"
STEP = 0.005  # of the budget, at whose multiples regret is read


class Job(NamedTuple):
    """One search: an arm, a task and a seed; `digest` stands for all else that it depends on."""

    digest: str
    arm: str
    task: str
    seed: int


def main() -> None:
    options = _options()
    settings = Settings(options.budget, options.beyond, options.workers, options.confidence)
    where = environment(threads=1)
    where["versions"]["onnxruntime"] = metadata.version("onnxruntime")
    arms, names = chosen_arms(options.arms, options.peers), task_names(options.tasks)
    if missing := missing_environments(arm for arm in arms.values() if isinstance(arm, PeerArm)):
        sys.exit(missing)
    jobs = [
        Job(digest(arm, task_name, settings), name, task_name, seed)
        for seed in range(options.seeds)
        for task_name in names
        for name, arm in arms.items()
        if isinstance(arm, Arm) or options.peer_seeds is None or seed < options.peer_seeds
    ]
    ours = [job for job in jobs if isinstance(arms[job.arm], Arm)]
    peers = [job for job in jobs if isinstance(arms[job.arm], PeerArm)]
    runs = finished(ours, settings, options.runs, options.processes)
    runs |= finished(peers, settings, PEER_RUNS, options.processes)
    shares = np.arange(STEP, settings.beyond + STEP / 2, STEP)
    found = regrets(jobs, runs, settings, shares)
    if options.print:
        print(page(found, runs_by_arm(jobs, runs), settings, shares))
        return
    picture = f"{options.name}.png"
    draw(found, shares, RESULTS / picture)
    record = {"environment": where, "settings": asdict(settings), **summary(found, shares)}
    write(options.name, record, page(found, runs_by_arm(jobs, runs), settings, shares, where, picture))


def finished(
    jobs: list[Job], settings: Settings, runs_file: Path, processes: int
) -> dict[Job, dict[str, Any]]:
    """Return every job's result; what the file lacks is run now and written there."""
    done = dict(_read_runs(runs_file))
    wanted = [job for job in jobs if job not in done]
    print(f"{len(jobs) - len(wanted)} runs kept in {runs_file}, {len(wanted)} to do", file=sys.stderr)
    began = time.monotonic()
    with runs_file.open("a") as file:
        for count, (job, result) in enumerate(_run_all(wanted, settings, processes), start=1):
            done[job] = result
            file.write("\n" + json.dumps([*job, result]))
            file.flush()
            if count % 50 == 0 or count == len(wanted):
                print(f"{count} of {len(wanted)} in {time.monotonic() - began:.0f} s", file=sys.stderr)
    return {job: done[job] for job in jobs}


def searched(job: Job, settings: Settings) -> dict[str, Any]:
    """Run one search; return its result as plain data."""
    began = _cpu_seconds()
    found = asdict(run(arm_of(job.arm), job.task, job.seed, settings))
    best = [list(each) for each in found["best"]]  # as it is read back
    return {**found, "best": best, "cpu_seconds": round(_cpu_seconds() - began, 2)}


def regrets(
    jobs: list[Job], runs: Mapping[Job, dict[str, Any]], settings: Settings, shares: Array
) -> dict[str, dict[str, Array]]:
    """Return the regret at each share of the budget, by arm and task, one run a row.

    The best score known of a task is that of its rows or even draws, or of any search here that beat it.
    """
    found: dict[str, dict[str, list[Array]]] = {}
    for name in dict.fromkeys(job.task for job in jobs):
        here = [job for job in jobs if job.task == name]
        reached = [runs[job]["best"][-1][1] for job in here if runs[job]["best"]]
        scale = max(task(name).best(), *reached), task(name).usual
        moments = shares * settings.trainings * task(name).epochs
        for job in here:
            curves = found.setdefault(job.arm, {}).setdefault(name, [])
            curves.append(regret(runs[job]["best"], scale, moments))
    return {arm: {name: np.stack(rows) for name, rows in here.items()} for arm, here in found.items()}


def runs_by_arm(jobs: list[Job], runs: Mapping[Job, dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for job in jobs:
        found.setdefault(job.arm, []).append(runs[job])
    return found


def _run_all(jobs: list[Job], settings: Settings, processes: int) -> Iterator[tuple[Job, dict[str, Any]]]:
    if processes == 1:
        yield from ((job, searched(job, settings)) for job in jobs)
        return
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        futures = {pool.submit(searched, job, settings): job for job in jobs}
        for future in as_completed(futures):
            yield futures[future], future.result()


def _cpu_seconds() -> float:
    """Return the processor seconds of this process and of its children that have ended."""
    return sum(os.times()[:4])


def _read_runs(path: Path) -> Iterator[tuple[Job, dict[str, Any]]]:
    """Yield what the file holds, without lines that were cut short."""
    for line in path.read_text().splitlines() if path.exists() else ():
        with suppress(json.JSONDecodeError):
            *job, result = json.loads(line)
            yield Job(*job), result


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Run all arms on all tasks, offline, and write the page of their regrets."
    )
    parser.add_argument("--tasks", default="lcbench,taskset,fashion-mnist")
    parser.add_argument("--arms", default="all", help="beginnings of names, or all")
    parser.add_argument("--peers", action="store_true", help="others' searches too")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--peer-seeds", type=int, help="only so many seeds of each peer")
    parser.add_argument("--budget", type=int, default=Settings.trainings, help="in whole trainings")
    parser.add_argument("--beyond", type=float, default=Settings.beyond, help="how far to follow, in budgets")
    parser.add_argument("--workers", type=int, default=Settings.workers)
    parser.add_argument("--confidence", choices=get_args(Confidence), default=Settings.confidence)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--runs", type=Path, default=RUNS, help="where finished runs are kept")
    parser.add_argument("--print", action="store_true", help="print the page and write no result")
    parser.add_argument("--name", default="search-quality-offline")
    return parser.parse_args()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
