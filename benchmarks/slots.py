"""A driver that serves many slots: 16, 64 and 256 of them, in searches whose trials only sleep.

    python benchmarks/slots.py [--slots 64 --trials 5000]

The slots are made up: a process of Ray's has 32 of them, each with a thread of its own, on a machine that
Ray is told has so many processors. An epoch sleeps half a second, a trial has at most six, and ASHA compares
trials at two rungs. Journal, ledger, live view, MLflow (SQLite) and the copy for optuna-dashboard are as in a
search, and so is all that Tune does but for starting processes. Measured from the first result on:

* **decision**: seconds from the end of an epoch in the slot to the driver's decision about it;
* **next epoch**, **next trial**: seconds that a slot waits from the end of an epoch to the beginning of its
  next one, of the same trial and of another one;
* **driver**: processor seconds of the driver and of the process that sends, for each second of the search;
* **MLflow**: how old the oldest event is that MLflow lacks, each second, and when it has all after the end.

The slots, Ray's daemons and the driver share this machine. Searches that are in the result already are not
run again: remove the result to measure anew.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
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
from types import SimpleNamespace
from typing import Any

import ray
from ray.air.execution._internal import RayActorManager
from ray.tune.execution import tune_controller

from noop import prepared_search
from report import ONE_THREAD, described, in_own_process, measure_missing
from search.facts.hardware import Hardware, Node
from search.followers.following import Following
from search.record.cursor import read_cursor
from search.record.journal import Journal
from search.reporting.live_view import LiveView
from search.running import raytune
from search.running.cluster import local_ray
from search.running.driver import make_ledger
from search.running.guests import Followed
from search.running.slots import FixedSlots
from search.running.switch import StopSwitch
from tests.epoch_results import epoch_result
from tests.integration.processes import processor_seconds
from trainable.tune.place import Place

SLOTS, TRIALS = (16, 64, 256), 5_000
EPOCHS, RUNGS = 6, [2, 4]
EPOCH_SECONDS = 0.5
SLOTS_A_PROCESS = 32
CATCH_UP_SECONDS = 1200.0
BENDS: Mapping[str, Callable[[Mapping[str, Any]], bool]] = {  # what is too much of a search, in words
    "MLflow is half a minute behind, or more": lambda run: run["mlflow"]["lag"]["worst"] >= 30,
    "driver and sender together need a processor, or more": lambda run: (
        run["cpu_seconds"]["driver"] + run["cpu_seconds"]["followers"] >= run["wall_seconds"]
    ),
    "a decision takes a tenth of an epoch or more, in the median": lambda run: (
        run["waits"]["decision"]["median"] >= EPOCH_SECONDS / 10
    ),
    "slots give less than nine tenths of their results": lambda run: (
        run["results"] / run["wall_seconds"] < 0.9 * run["setting"]["slots"] / EPOCH_SECONDS
    ),
}


def made_up_slots(epoch: Mapping[str, Any]) -> type:
    """Return what has many slots in one process: each reports copies of `epoch`.

    A class of a function travels by value, so such a process imports neither Tune nor torch.
    """

    class MadeUpSlots:
        def __init__(self) -> None:
            self._trial, self._epoch, self._returned = dict[int, int](), dict[int, int](), dict[int, float]()

        def reset(self, slot: int, trial: int) -> bool:
            self._trial[slot], self._epoch[slot] = trial, 0
            return True

        def places(self, slot: int) -> tuple[Place, ...]:
            return (Place(machine="here", address="127.0.0.1", node="n", process=slot),)

        def train(self, slot: int) -> dict[str, Any]:
            returned = self._returned.get(slot)
            waited = None if returned is None else time.time() - returned
            time.sleep(EPOCH_SECONDS)
            trial, number = self._trial[slot], self._epoch[slot] + 1
            self._epoch[slot] = number
            tree = {**epoch, "epoch": number, "val_accuracy": random.Random(1000 * trial + number).random()}
            was = "next trial" if number == 1 else "next epoch"
            self._returned[slot] = time.time()
            told = {"epochs": [tree], "sent": self._returned[slot], "waited": waited, "was": was}
            return {**told, "done": False, "training_iteration": number}

        def get_auto_filled_metrics(self, slot: int, debug_metrics_only: bool) -> dict[str, Any]:
            return {}

        def stop(self, slot: int) -> None:
            pass

    return MadeUpSlots


class Slot:
    """One of the slots that a process has, with the methods of a process of Ray's."""

    def __init__(self, process: Any, number: int, trial: int) -> None:
        self._process, self._actor_id = process, number
        self.__ray_ready__ = SimpleNamespace(remote=partial(process.reset.remote, number, trial))

    def __getattr__(self, name: str) -> Any:
        return SimpleNamespace(remote=partial(getattr(self._process, name).remote, self._actor_id))


def starts(slots: int, kind: type) -> type[RayActorManager]:
    """Return what gives each trial a slot where Tune would start a process, on the resources that Tune has
    reserved, and sends it nothing but the number of its trial."""
    processes = -(-slots // SLOTS_A_PROCESS)
    process = ray.remote(num_cpus=0, max_concurrency=2 * SLOTS_A_PROCESS)(kind)

    class Starts(RayActorManager):  # type: ignore[misc]  # ray ships no types
        def __init__(self, resource_manager: Any) -> None:
            super().__init__(resource_manager)
            running = [process.remote() for _ in range(processes)]
            numbers, acquire = itertools.count(), resource_manager.acquire_resources

            def start(trial: int) -> Slot:
                number = next(numbers)
                return Slot(running[number % processes], number, trial)

            def acquire_for_a_slot(request: Any) -> Any:
                acquired = acquire(request)
                acquired.annotate_remote_entities = lambda entities: [SimpleNamespace(remote=start)]
                return acquired

            resource_manager.acquire_resources = acquire_for_a_slot

        def add_actor(self, cls: Any, kwargs: Mapping[str, Any], resource_request: Any, **then: Any) -> Any:
            return super().add_actor(cls, {"trial": kwargs["config"]["trial"]}, resource_request, **then)

        def schedule_actor_task(
            self, tracked_actor: Any, method_name: str, args: Any = (), kwargs: Any = None, **then: Any
        ) -> Any:
            args = tuple(config["trial"] for config in args)
            return super().schedule_actor_task(tracked_actor, method_name, args, **then)

        def cleanup(self) -> None:
            self._live_actors_to_ray_actors_resources.clear()  # no process is to be killed for a slot
            super().cleanup()

    return Starts


@dataclass
class Waits:
    """The seconds measured, by what was waited for."""

    seconds: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def scheduler(self) -> type[raytune.LedgerScheduler]:
        """Return the scheduler that notes when each decision was made."""
        seconds = self.seconds

        class NotesDecisions(raytune.LedgerScheduler):
            def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
                decision = super().on_trial_result(tune_controller, trial, result)
                seconds["decision"].append(time.time() - result["sent"])
                if result["waited"] is not None:
                    seconds[result["was"]].append(result["waited"])
                return decision

        return NotesDecisions


@contextmanager
def lag_watched(
    folder: Path, times: Sequence[float], has_begun: Callable[[], bool], found: list[float]
) -> Iterator[None]:
    """Note each second of the block, once it `has_begun`, how old the oldest event is that MLflow lacks."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(1.0):
            if has_begun():
                found.append(lag(folder, times))

    watching = threading.Thread(target=watch, name="lag", daemon=True)
    watching.start()
    try:
        yield
    finally:
        over.set()
        watching.join()


def lag(folder: Path, times: Sequence[float]) -> float:
    """Return how many seconds old the oldest event is that MLflow lacks; 0 where it has all."""
    cursor = read_cursor(folder)
    known = 0 if cursor is None else cursor.events
    return time.time() - times[known] if known < len(times) else 0.0


def measured(slots: int, trials: int, folder: Path) -> dict[str, Any]:
    """Return the figures of one search."""
    study: dict[str, Any] = {"sampler": {"kind": "random"}, "scheduler": {"kind": "asha", "rungs": RUNGS}}
    study |= {"finalists": "none", "tracking": {"uri": f"sqlite:///{folder}/mlflow.db"}}
    prepared, _ = prepared_search(folder, trials, EPOCHS, **study)
    home = prepared.home
    waits, times, lags = Waits(), list[float](), list[float]()
    vars(raytune).update(worker_setup=lambda prepared: None, LedgerScheduler=waits.scheduler())
    vars(tune_controller).update(RayActorManager=starts(slots, made_up_slots(epoch_result().tree())))
    with Journal(home.folder) as journal:
        append = journal.append

        def noted(event: Any) -> Any:
            written = append(event)
            times.append(written.time)
            return written

        journal.append = noted  # type: ignore[method-assign]
        ledger = make_ledger(prepared, journal)
        ledger.begin("slots")
        following = Following(Followed(home, prepared.study, prepared.space, None))
        view = LiveView(prepared.study, prepared.pruning, prepared.final, slots, home.folder)
        began, spent = math.inf, dict[str, float]()

        def progress() -> None:
            nonlocal began, spent
            if began == math.inf and waits.seconds["decision"]:
                began, spent = time.monotonic(), seconds_spent(following)
            view.update()

        with (
            local_ray(Hardware((Node(slots, 0),)), StopSwitch()),
            lag_watched(home.folder, times, lambda: began < math.inf, lags),
        ):
            pool, hooks = raytune.Pool(FixedSlots(slots, slots)), raytune.Hooks(on_progress=progress)
            raytune.run_trials(prepared, ledger, StopSwitch(), pool, hooks)
            wall = time.monotonic() - began
            used = {name: each - spent[name] for name, each in seconds_spent(following).items()}
        ended, at_the_end = time.monotonic(), lag(home.folder, times)
        following.close(CATCH_UP_SECONDS)
        caught_up = time.monotonic() - ended
        if not all(backlog.complete for backlog in following.backlogs):
            sys.exit(f"not all was delivered: {'; '.join(map(str, following.backlogs))}")
    return {
        "wall_seconds": wall,
        "results": len(waits.seconds["decision"]),
        "cpu_seconds": used,
        "waits": {name: summary(each) for name, each in waits.seconds.items()},
        "mlflow": {"lag": summary(lags), "at_the_end": at_the_end, "caught_up_seconds": caught_up},
    }


def summary(seconds: Sequence[float]) -> dict[str, float]:
    """Return the median, the 99th of a hundred, and the worst."""
    ordered = sorted(seconds)
    return {
        "median": statistics.median(ordered),
        "p99": ordered[int(0.99 * (len(ordered) - 1))],
        "worst": ordered[-1],
    }


def seconds_spent(following: Following) -> dict[str, float]:
    """Return the processor seconds of the driver, of its thread that decides, and of what follows it."""
    decides = time.clock_gettime(time.pthread_getcpuclockid(threading.main_thread().ident or 0))
    followers = processor_seconds(following.process_id or 0)
    return {"decisions": decides, "driver": time.process_time(), "followers": followers}


def page(runs: Sequence[Mapping[str, Any]], where: Mapping[str, Any]) -> str:
    """Return the page of all searches."""
    ordered = sorted(runs, key=lambda run: run["setting"]["slots"])
    head = (
        "slots",
        "trials",
        "results a second (asked)",
        "driver",
        "of it, decides",
        "sends",
        "decision",
        "next epoch",
        "next trial",
        "MLflow behind",
        "has all after the end",
    )
    return (
        "# What a driver does with many slots\n\n"
        f"Searches of trials that sleep {EPOCH_SECONDS:g} s an epoch, from the first result on. Seconds "
        "are median / 99th of a hundred / worst; shares are of one processor. Asked is how many results a "
        "second the slots would give if they never waited. Slots are made up: threads that sleep, "
        f"{SLOTS_A_PROCESS} in a process of Ray's, which share the {where['cores']} cores with the driver, "
        "with what sends to MLflow, and with Ray. n=1 each.\n\n"
        f"| {' | '.join(head)} |\n|{'-|' * len(head)}\n{''.join(map(row, ordered))}\n"
        f"## What bends first\n\n{''.join(bends(ordered))}\n{described(where)}"
    )


def bends(ordered: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a line for each thing that may be too much, those that few slots bend first."""
    least = {
        what: next((run["setting"]["slots"] for run in ordered if is_so(run)), math.inf)
        for what, is_so in BENDS.items()
    }
    for what, slots in sorted(least.items(), key=lambda pair: pair[1]):
        yield f"- {what}: {'at none of these' if slots == math.inf else f'from {slots} slots on'}\n"


def row(run: Mapping[str, Any]) -> str:
    wall, used, waits, setting = run["wall_seconds"], run["cpu_seconds"], run["waits"], run["setting"]
    shares = (f"{used[name] / wall:.0%}" for name in ("driver", "decisions", "followers"))
    seconds = (waits["decision"], waits["next epoch"], waits["next trial"], run["mlflow"]["lag"])
    cells = (
        str(setting["slots"]),
        f"{setting['trials']:,}",
        f"{run['results'] / wall:.0f} ({setting['slots'] / EPOCH_SECONDS:.0f})",
        *shares,
        *(f"{each['median']:.3g} / {each['p99']:.3g} / {each['worst']:.3g}" for each in seconds),
        f"{run['mlflow']['caught_up_seconds']:.0f} s",
    )
    return f"| {' | '.join(cells)} |\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what a driver does with many slots.")
    parser.add_argument("--slots", type=lambda text: [int(each) for each in text.split(",")], default=SLOTS)
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--one", type=int, help="run the search of so many slots alone")
    options = parser.parse_args()
    if options.one:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(measured(options.one, options.trials, Path(folder))))
        return
    if options.trials < max(options.slots):
        parser.error("fewer trials than slots never fill these")
    runs = [
        (
            {"slots": slots, "trials": options.trials},
            partial(
                in_own_process,
                __file__,
                ["--one", str(slots), "--trials", str(options.trials)],
                ONE_THREAD,
            ),
        )
        for slots in options.slots
    ]
    measure_missing("slots", runs, page)


if __name__ == "__main__":
    main()
