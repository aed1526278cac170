"""What runs of a search cost here: some of its recipes are tried for a second or so, for a forecast."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from search.facts.cache import name_by
from search.facts.hardware import PerTrial
from trainable.bench import Bench
from trainable.collector import paused
from trainable.data import DataInfo, DataSet
from trainable.errors import UserError
from trainable.files.paths import cache_root
from trainable.recipe import Recipe
from trainable.recipe.base import Spec
from trainable.recipe.network_cost import RunCost
from trainable.recipe.yamlfile import write_whole
from trainable.stages import counting, stage

if TYPE_CHECKING:  # torch takes seconds to import
    from trainable.models.own import BuildModel

logger = logging.getLogger(__name__)
# No further recipe is tried after so many seconds, or after so many of a processor's time: of a long search
# after that share of it
MOST_SECONDS, MOST_WORK, WORK_SHARE = 20.0, 3.0, 0.01
MOST_COUNTING = 3.0  # seconds in which the operations of networks are counted that are not tried
FRESH_SECONDS = 3600.0  # what was measured holds for so long: the machine's other work changes
SPIN_SECONDS = 0.2
# what other processors do while a recipe is tried, as the trials beside it would: they share caches, memory
# and clocks. It ends with the process that has started it
BUSY = """
import os, sys, numpy
numbers, parent = numpy.ones(1 << 18, "f4"), int(sys.argv[1])
while os.getppid() == parent:
    numbers *= 1.0
"""


class TriedRuns(Spec):
    """What runs of some recipes cost, where so many train at once."""

    costs: tuple[RunCost, ...]  # of all the recipes that can be made, in their order
    tried: int  # so many were; the others cost what the one takes that is most like them
    slowed: float  # how many times as long as its own work a process takes, since others use the processors


def try_runs(
    recipes: Sequence[Recipe],
    data: DataSet,
    trial: PerTrial,
    *,
    at_once: int = 1,
    build: BuildModel | None = None,
    bench: Bench,
) -> TriedRuns:
    """Return what runs of the recipes cost where so many trials train at once.

    As many are tried as can be in seconds, the first one always, then those that are least like what was
    tried and like most of the others. One that fails is left out, whatever the reason: its trial will say
    it. Raises UserError where all fail, and where the trials' device is not on this machine.
    """
    import torch

    from trainable.probes.run_cost import measure_run_cost
    from trainable.run import make_run
    from trainable.training.devices import give_back, ran_out, threads

    if trial.gpus and not torch.cuda.is_available():
        raise UserError("trials run on a GPU, and there is none here to time steps on")
    with stage("loading torch's compiler"), paused():
        import torch._dynamo
    on, tried, broken = trial.bench(bench), dict[int, RunCost](), set[int]()
    kinds = [kind_of(each) for each in recipes]
    began, worked, most = time.perf_counter(), time.process_time(), MOST_WORK
    beside = 0 if trial.gpus else _busy_beside(trial, at_once)
    with (
        stage("trying recipes for the forecast"),
        threads(on.threads),
        _neighbours(beside),
        counting("recipe", len(set(kinds))) as count,
    ):
        slowed = _slowed()
        while (at := least_alike(kinds, tried, broken)) is not None:
            spent, work = time.perf_counter() - began, time.process_time() - worked
            if tried and (spent > MOST_SECONDS or work > most):
                break
            share = _share_of_rank(recipes[at], trial.workers)
            try:
                cost = measure_run_cost(partial(make_run, share, data=data, model=build, bench=on))
            except Exception as error:
                logger.info("recipe %d of the forecast fails", at, exc_info=True)
                if ran_out(error):
                    give_back(on.device)
                broken.add(at)
            else:
                tried[at] = cost
                whole = len(recipes) * cost.seconds(0, len(cost.training_seconds)) / at_once
                most = max(most, WORK_SHARE * whole * max(1, round(trial.cpus)))
            count.done += 1
    if not tried:
        raise UserError("no recipe of the search can be tried here")
    counted = _Operations(data.info, build, on)
    costs = (
        tried[at] if at in tried else _like(at, recipes, kinds, tried, counted)
        for at in range(len(recipes))
        if at not in broken
    )
    return TriedRuns(costs=tuple(costs), tried=len(tried), slowed=slowed)


# what may change the cost of a run: all of a recipe but numbers with a fraction, of which it counts whether
# they are 0, as what they weigh is switched off then. What a network alone costs, in memory and at an answer,
# follows from less: `trainable.probes.network_cost.key_of_cost`
Kind = frozenset[tuple[str, str]]


def kind_of(recipe: Recipe) -> Kind:
    return frozenset(
        (path, str(bool(value) if isinstance(value, float) else value))
        for path, value in recipe.leaves()
        if path != "loop.seed"
    )


def least_alike(kinds: Sequence[Kind], tried: Collection[int], broken: Collection[int]) -> int | None:
    """Return which recipe to try next, the first one first; None where each is of a kind that was tried."""
    shares, best, found = Counter(kinds), 0, None
    for at, kind in enumerate(kinds):
        apart = min((len(kind ^ kinds[each]) for each in (*tried, *broken)), default=1)
        if shares[kind] * apart > best and (tried or broken or at == 0):
            best, found = shares[kind] * apart, at
    return found


def _like(
    at: int,
    recipes: Sequence[Recipe],
    kinds: Sequence[Kind],
    tried: Mapping[int, RunCost],
    operations: _Operations,
) -> RunCost:
    """Return what the recipe costs by the tried one that is most like it, times how many more operations its
    network does."""
    nearest = min(tried, key=lambda each: (len(kinds[each] ^ kinds[at]), each))
    return tried[nearest].times(operations.ratio(recipes[at], recipes[nearest]))


class _Operations:
    """Counts what networks do, as long as there is time: a network is made for that."""

    def __init__(self, info: DataInfo, build: BuildModel | None, bench: Bench) -> None:
        self._info, self._build, self._bench = info, build, bench
        self._counts: dict[str, int] = {}
        self._until = time.perf_counter() + MOST_COUNTING

    def ratio(self, recipe: Recipe, other: Recipe) -> float:
        """Return how many times as many operations an image takes; 1 where that is not known."""
        mine, its = self._network(recipe), self._network(other)
        if mine == its:
            return 1.0
        count, others = self._count(mine, recipe), self._count(its, other)
        return count / others if count and others else 1.0

    def _network(self, recipe: Recipe) -> str:
        """Return a text that is the same for networks that do the same."""
        from trainable.probes.network_cost import FREE

        model = recipe.model.model_dump(mode="json", exclude=set(FREE))
        return json.dumps([model, self._size(recipe)], sort_keys=True)

    def _size(self, recipe: Recipe) -> int:
        return recipe.data.image_size or self._info.image_size

    def _count(self, name: str, recipe: Recipe) -> int:
        """Return the operations of an image; 0 where the network cannot be made, or there is no time left."""
        from trainable.probes.network_cost import count_flops
        from trainable.training.network import make_network

        if name not in self._counts:
            if time.perf_counter() > self._until:
                return 0
            spec, size = recipe.model.model_copy(update={"weights": None}), self._size(recipe)
            try:
                network = make_network(spec, self._info, build=self._build, bench=self._bench)
                self._counts[name] = count_flops(network, (self._info.channels, size, size)).total
            except (UserError, RuntimeError):
                self._counts[name] = 0
        return self._counts[name]


def _busy_beside(trial: PerTrial, at_once: int) -> int:
    """Return how many processors of this machine other ranks keep busy while one trains."""
    threads = max(1, round(trial.cpus))
    free = len(os.sched_getaffinity(0)) - threads
    return max(0, min(free, (at_once * trial.workers - 1) * threads))


def _slowed() -> float:
    """Return how many times as long as its own work this process takes."""
    began, worked = time.perf_counter(), time.thread_time()
    while time.perf_counter() - began < SPIN_SECONDS:
        pass
    return max(1.0, (time.perf_counter() - began) / (time.thread_time() - worked))


def _share_of_rank(recipe: Recipe, ranks: int) -> Recipe:
    """Return a recipe whose run takes what one of so many ranks takes for the recipe; it compiles nothing."""
    from trainable.probes.network_cost import share_of_rank

    return share_of_rank(recipe, ranks) if ranks > 1 else recipe.with_values({"loop.compile": False})


def tried_file(
    recipes: Sequence[Recipe], info: DataInfo, trial: PerTrial, at_once: int, bench: Bench
) -> Path:
    """Return the cache's file of what these runs cost; it need not exist."""
    from trainable.origins import versions
    from trainable.training.devices import machine_name

    follows_from = {
        "recipes": [each.digest() for each in recipes],
        "images": info.digest,
        "trial": [trial.cpus, trial.gpus, trial.workers, at_once],
        "device": trial.bench(bench).kind,
        "machine": machine_name(),
        "versions": versions(),
    }
    return cache_root() / "runs" / f"{name_by(follows_from)}.json"


def read_tried(file: Path) -> TriedRuns | None:
    """Return what the file holds; None where there is no file of the last hour, or none that can be read."""
    try:
        if time.time() - file.stat().st_mtime > FRESH_SECONDS:
            return None
        return TriedRuns.model_validate_json(file.read_bytes())
    except (OSError, ValueError):
        return None


def write_tried(file: Path, tried: TriedRuns) -> None:
    """Write the file, where the cache folder can be written."""
    with suppress(UserError, OSError):
        write_whole(file, tried.model_dump_json().encode())


@contextmanager
def _neighbours(count: int) -> Iterator[None]:
    """Keep so many processors busy during the block, as trials beside one do."""
    command = [sys.executable, "-P", "-c", BUSY, str(os.getpid())]  # -P: no file of this folder is imported
    started = list[subprocess.Popen[bytes]]()
    try:
        for _ in range(count):
            started.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        yield
    finally:
        for each in started:
            each.kill()
        for each in started:
            each.wait()
