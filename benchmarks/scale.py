"""What a result costs the driver, in searches of 10 to 10,000 trials that do nothing.

    python benchmarks/scale.py [--arms "decide, auto" --sizes 100,1000]

A result is an epoch that a trial reports; a trial has six, and ASHA compares trials at two rungs. Every
search runs in a process of its own. Its figures are processor seconds over the results of its last 100 trials
(of the last half where it has fewer than 200), so that a search of 10,000 says what the 10,000th trial costs.
Its memory is what the process has gained since the search began. Arms:

* **decide**: sampler, journal and ledger, with made-up scores, four trials at once. Until the last 101 trials
  a sampler with a model draws at random instead, since only those are measured; it is told of all.
* **followers**: the same, random, with MLflow and the copy for optuna-dashboard in their threads. They
  are waited for after each 20 results: a search with 20 results a second sends as much at once.
* **ray**: a search of real processes, two at once, with nothing but the live view beside it; the
  driver's processor time that is neither the ledger's nor the view's counts as Ray's. Of 1,000 trials at
  most, which take minutes.

Searches that are in the result already are not run again: remove the result to measure anew.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from noop import NoopTrial, prepared_search
from report import ONE_THREAD, described, flatness, in_own_process, measure_missing
from search.deciding.ledger import Decision, Ledger, Proposal
from search.deciding.make import make_sampler, make_scheduler
from search.deciding.sampler import RandomSampler, Sampler
from search.facts.hardware import Hardware
from search.followers.consumer import Consumer
from search.followers.following import tracker_of
from search.followers.mirror import Mirror
from search.record.journal import Journal, TrialEnd
from search.reporting.live_view import LiveView
from search.running.cluster import local_ray
from search.running.prepare import Prepared
from search.running.raytune import Hooks, Pool, run_trials
from search.running.switch import StopSwitch
from spaces.domains import Value
from tests.epoch_results import epoch_result
from trainable.training.metrics import EpochResult

SIZES, SEEDS = (10, 100, 1_000, 10_000), 3
MOST_REPEATED = 1_000  # trials; larger searches run once, and with followers or Ray those above a tenth of it
MOST_WITH_RAY = 1_000
EPOCHS, RUNGS = 6, [2, 4]
OPEN = 4
LAST = 100
SENT_TOGETHER = 20
FLAT_FROM = 100  # a result shall cost as much at any size from so many trials on
LEAST_FOR_MEMORY = 100  # in smaller searches a result's memory cannot be told from that of the libraries
WHOLE_DRIVER = ("decide, auto", "followers, SQLite", "ray")  # together the driver of a usual search
DECIDES = ("sampler", "journal", "ledger")

Run = tuple[dict[str, Any], Callable[[], dict[str, Any]]]
Searches = Sequence[Mapping[str, Any]]
THREADS = {"to MLflow": "mlflow", "to optuna.db": "optuna.db"}


class Arm(NamedTuple):
    """Which search is run."""

    name: str
    sampler: str
    store: str | None = None  # of MLflow's runs; None without followers
    ray: bool = False


ARMS = {
    arm.name: arm
    for arm in (
        Arm("decide, random", "random"),
        Arm("decide, auto", "auto"),
        Arm("followers, SQLite", "random", "sqlite"),
        Arm("followers, PostgreSQL", "random", "postgresql"),
        Arm("ray", "random", ray=True),
    )
}


@dataclass
class Mark:
    """What a search had cost when it came to a trial: results, seconds by part, resident bytes."""

    results: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)
    memory: int = 0


@dataclass
class Costs:
    """Processor seconds by part while a search runs; `others` returns those of other threads."""

    marked: tuple[int, ...]  # trials before which the costs are remembered
    others: Callable[[], Mapping[str, float]]
    results: int = 0
    marks: dict[int, Mark] = field(default_factory=dict)
    _seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    def timed(self, part: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return the call, which adds its thread's seconds to a part."""

        def and_time(*arguments: Any, **named: Any) -> Any:
            began = time.thread_time()
            try:
                return call(*arguments, **named)
            finally:
                self._seconds[part] += time.thread_time() - began

        return and_time

    def mark(self, trial: int) -> None:
        """Remember what was spent before this trial, if it is asked for."""
        if trial in self.marked and trial not in self.marks:
            self.marks[trial] = self.now()

    def now(self) -> Mark:
        """Return what was spent so far."""
        return Mark(self.results, {**self._seconds, **self.others()}, resident_bytes())


class SparinglyAsked(Sampler):
    """A sampler that is asked from the trial `first` on, draws the others at random, and is told of all."""

    def __init__(self, sampler: Sampler, at_random: Sampler, first: int) -> None:
        self._sampler, self._at_random, self._first = sampler, at_random, first

    def ask(self, number: int) -> dict[str, Value]:
        return (self._sampler if number >= self._first else self._at_random).ask(number)

    def add(self, number: int, values: Mapping[str, Value]) -> None:
        self._sampler.add(number, values)

    def report(self, number: int, scores: Mapping[int, float], seconds: float | None = None) -> None:
        self._sampler.report(number, scores, seconds)

    def tell(
        self,
        number: int,
        outcome: TrialEnd,
        scores: Mapping[int, float],
        excesses: Mapping[str, float] | None = None,
        seconds: float | None = None,
    ) -> None:
        self._sampler.tell(number, outcome, scores, excesses, seconds)


def measured(arm: Arm, trials: int, seed: int, folder: Path) -> dict[str, Any]:
    """Return the figures of one search."""
    study: dict[str, Any] = {"seed": seed, "sampler": {"kind": arm.sampler}}
    study["scheduler"] = {"kind": "asha", "rungs": RUNGS}
    with database(arm.store, folder) as uri:
        if uri is not None:
            study["tracking"] = {"uri": uri}
        prepared, hardware = prepared_search(folder, trials, EPOCHS, **study)
        half, last = trials // 2, max(trials // 2, trials - LAST)
        costs = Costs((half, last), driver_seconds if arm.ray else thread_seconds)
        with Journal(prepared.home.folder) as journal:
            ledger = timed_ledger(prepared, journal, costs, asked_from=last - 1)
            ledger.begin("noop")
            if arm.ray:
                run_on_ray(prepared, hardware, ledger, costs)
            else:
                followers = followers_of(prepared) if uri is not None else []
                simulate(ledger, costs, followers, seed)
    end, since = costs.now(), costs.marks[last]
    results = end.results - since.results
    seconds = {part: (each - since.seconds.get(part, 0.0)) / results for part, each in end.seconds.items()}
    grown = (end.memory - costs.marks[half].memory) / (end.results - costs.marks[half].results)
    return {"seconds": _apart(seconds), "bytes": grown, "results": results, "resident_bytes": end.memory}


def _apart(seconds: dict[str, float]) -> dict[str, float]:
    """Return the seconds by part, each without those of the parts inside it."""
    seconds["ledger"] -= seconds.get("sampler", 0.0) + seconds["journal"]
    if (driver := seconds.pop("driver", None)) is not None:
        seconds["ray"] = driver - sum(seconds.values())
    return seconds


def timed_ledger(prepared: Prepared, journal: Journal, costs: Costs, asked_from: int) -> Ledger:
    """Return the ledger of a search whose calls are timed, and those that it makes."""
    study, direction = prepared.study, prepared.study.objective.direction
    sampler = SparinglyAsked(
        make_sampler(prepared.space, study.sampler.kind, study.seed, direction),
        RandomSampler(prepared.space, study.seed),
        asked_from,
    )
    _time(sampler, costs, "sampler", ("ask", "add", "report", "tell"))
    _time(journal, costs, "journal", ("append",))
    ledger = Ledger(
        journal,
        prepared.space,
        sampler,
        make_scheduler(prepared.space, prepared.pruning, direction),
        trials=study.budget.trials,
        epochs=study.budget.epochs,
        metric=study.objective.metric,
    )
    _time(ledger, costs, "ledger", ("propose", "start", "epoch"))
    propose, epoch = ledger.propose, ledger.epoch

    def marked_propose() -> Proposal | None:
        costs.mark(ledger.trials)
        return propose()

    def counted_epoch(trial: int, result: EpochResult) -> Decision:
        costs.results += 1
        return epoch(trial, result)

    for name, call in {"propose": marked_propose, "epoch": counted_epoch}.items():
        setattr(ledger, name, call)
    return ledger


def _time(owner: object, costs: Costs, part: str, names: Sequence[str]) -> None:
    for name in names:
        setattr(owner, name, costs.timed(part, getattr(owner, name)))


def followers_of(prepared: Prepared) -> list[Consumer]:
    """Return who follows the journal of a search in threads of the driver."""
    home, study = prepared.home, prepared.study
    return [tracker_of(home, study), Mirror(home.folder, study, prepared.space)]


def simulate(ledger: Ledger, costs: Costs, followers: Sequence[Consumer], seed: int) -> None:
    """Run a search with made-up scores, its trials in turn, and its followers beside it."""
    luck, running = random.Random(seed), list[int]()
    for follower in followers:
        follower.start()
    while True:
        while len(running) < OPEN and (proposal := ledger.propose()) is not None:
            ledger.start(proposal.trial, 0)
            running.append(proposal.trial)
        if not running:
            break
        trial = running.pop(0)
        result = epoch_result(ledger.epochs_done(trial) + 1, luck.random())
        if ledger.epoch(trial, result) is Decision.CONTINUE:
            running.append(trial)
        if costs.results % SENT_TOGETHER == 0:
            catch_up(followers)
    catch_up(followers)


def catch_up(followers: Sequence[Consumer]) -> None:
    """Wait until all that was journaled is delivered."""
    for follower in followers:
        if not (backlog := follower.catch_up(120.0)).complete:
            sys.exit(f"not all was delivered: {backlog}")


def run_on_ray(prepared: Prepared, hardware: Hardware, ledger: Ledger, costs: Costs) -> None:
    """Run a search whose trials are real processes that do nothing, with the live view."""
    view = LiveView(prepared.study, prepared.pruning, prepared.final, 2, prepared.home.folder)
    update = costs.timed("view", view.update)
    with local_ray(hardware, StopSwitch()):
        pool, hooks = Pool(lambda parked: prepared.concurrent), Hooks(on_progress=update)
        run_trials(prepared, ledger, StopSwitch(), pool, hooks, NoopTrial)


def driver_seconds() -> dict[str, float]:
    """Return the processor seconds of all threads of this process."""
    return {"driver": time.process_time()}


def thread_seconds() -> dict[str, float]:
    """Return the processor seconds of the followers' threads."""
    return {
        THREADS[each.name]: time.clock_gettime(time.pthread_getcpuclockid(each.ident))
        for each in threading.enumerate()
        if each.name in THREADS and each.ident is not None
    }


def resident_bytes() -> int:
    """Return the memory that this process has, without what was swapped out."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def database(store: str | None, folder: Path) -> Iterator[str | None]:
    """Give the URI of an empty database for MLflow."""
    if store == "postgresql":
        from tests.integration.postgresql_server import postgresql_server

        with postgresql_server() as uri:
            yield uri
    else:
        yield None if store is None else f"sqlite:///{folder}/mlflow.db"


def runs(arms: Sequence[Arm], sizes: Sequence[int]) -> Iterator[Run]:
    """Yield each search that is to be measured, the quickest first, with what measures it."""
    for size in sizes:
        for arm in arms:
            unfollowed = arm.store is None and not arm.ray
            if arm.ray and size > MOST_WITH_RAY:
                continue
            for seed in range(SEEDS if size <= (MOST_REPEATED if unfollowed else MOST_REPEATED // 10) else 1):
                setting = {"arm": arm.name, "trials": size, "seed": seed}
                yield setting, partial(alone, arm, size, seed)


def alone(arm: Arm, trials: int, seed: int) -> dict[str, Any]:
    """Return the figures of a search in a process of its own."""
    found = in_own_process(__file__, ["--one", arm.name, str(trials), str(seed)], ONE_THREAD)
    return {**found, "load": os.getloadavg()[0]}


# --- the page -----------------------------------------------------------------------------------------


def page(runs: Searches, where: Mapping[str, Any], last: int) -> str:
    """Return the tables of all arms: what a result costs at each size, by part, and whether that is flat."""
    arms = {name: _by_size(runs, name) for name in dict.fromkeys(run["setting"]["arm"] for run in runs)}
    tables = "\n".join(_arm(name, sizes) for name, sizes in arms.items())
    loads = [run["load"] for run in runs]
    return (
        "# What a result costs the driver, by the number of trials\n\n"
        "Processor milliseconds and resident KiB for each result (an epoch that a trial reports), of the "
        f"last {last} trials (of the last half where there are fewer; memory: always of the last half). "
        "Means of n searches, in brackets the least and the most. Other work ran on the machine beside "
        f"them: the load was {min(loads):.1f} to {max(loads):.1f}.\n\n"
        f"{tables}\n{_whole(arms)}\n{described(where)}"
    )


def _by_size(runs: Searches, name: str) -> dict[int, list[Mapping[str, Any]]]:
    sizes: dict[int, list[Mapping[str, Any]]] = {}
    for run in runs:
        if run["setting"]["arm"] == name:
            sizes.setdefault(run["setting"]["trials"], []).append(run)
    return dict(sorted(sizes.items()))


def _arm(name: str, sizes: Mapping[int, Searches]) -> str:
    parts = list(dict.fromkeys(part for searches in sizes.values() for part in searches[0]["seconds"]))
    head = f"| trials | whole | {' | '.join(parts)} | KiB a result | n |\n|-|-|{'-|' * len(parts)}-|-|\n"
    rows = "\n".join(_row(size, searches, parts) for size, searches in sizes.items())
    flat = flatness({size: _mean(searches) for size, searches in sizes.items()}, FLAT_FROM)
    return f"## {name}\n\n{head}{rows}\n\n{flat.capitalize()}.\n"


def _row(size: int, searches: Searches, parts: Sequence[str]) -> str:
    wholes = [1e3 * sum(each["seconds"].values()) for each in searches]
    cells = [f"{1e3 * _mean(searches, [part]):.2f}" for part in parts]
    memory = f"{statistics.mean(each['bytes'] for each in searches) / 1024:.1f}"
    return (
        f"| {size:,} | {statistics.mean(wholes):.2f} ({min(wholes):.2f} to {max(wholes):.2f}) | "
        f"{' | '.join(cells)} | {memory if size >= LEAST_FOR_MEMORY else ''} | {len(searches)} |"
    )


def _mean(searches: Searches, parts: Sequence[str] | None = None) -> float:
    """Return the mean seconds a result, of some parts or all."""
    found: float = statistics.mean(
        sum(seconds for part, seconds in each["seconds"].items() if parts is None or part in parts)
        for each in searches
    )
    return found


def _whole(arms: Mapping[str, Mapping[int, Searches]]) -> str:
    """Return what all that the driver of a usual search does costs, where every arm has a size; beyond
    that, Ray's part is that of its largest search."""
    if not all(name in arms for name in WHOLE_DRIVER):
        return ""
    decide, followers, ray = (arms[name] for name in WHOLE_DRIVER)
    sums: dict[int, float] = {}
    for size in sorted(decide.keys() & followers.keys()):
        there = ray[max(each for each in ray if each <= size)]
        delivered = [part for part in followers[size][0]["seconds"] if part not in DECIDES]
        sums[size] = _mean(decide[size]) + _mean(followers[size], delivered) + _mean(there, ["ray", "view"])
    rows = "\n".join(f"| {size:,} | {1e3 * seconds:.1f} |" for size, seconds in sums.items())
    return (
        "## The whole driver\n\n`auto`, ledger, journal, MLflow on SQLite, `optuna.db`, Ray and the live "
        f"view; above {max(ray):,} trials Ray's part is that of {max(ray):,}.\n\n"
        f"| trials | ms a result |\n|-|-|\n{rows}\n\n{flatness(sums, FLAT_FROM).capitalize()}.\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what a result costs the driver, by trials.")
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=list(ARMS))
    parser.add_argument("--sizes", type=lambda text: [int(each) for each in text.split(",")], default=SIZES)
    parser.add_argument("--one", nargs=3, metavar=("ARM", "TRIALS", "SEED"), help="run one search alone")
    options = parser.parse_args()
    if options.one:
        name, trials, seed = options.one
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(measured(ARMS[name], int(trials), int(seed), Path(folder))))
        return
    arms = [ARMS[name] for name in options.arms]
    measure_missing("scale", runs(arms, options.sizes), partial(page, last=LAST))


if __name__ == "__main__":
    main()
