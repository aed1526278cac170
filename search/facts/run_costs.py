"""What runs of a search cost here: some of its recipes are tried for a second or so, for a forecast."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from search.facts.cache import name_by
from search.facts.hardware import PerTrial
from trainable.bench import Bench
from trainable.collector import paused
from trainable.data import DataInfo, DataSet
from trainable.errors import RunError, UserError
from trainable.files.paths import cache_root
from trainable.recipe import Recipe
from trainable.recipe.base import Spec
from trainable.recipe.network_cost import RunCost
from trainable.recipe.yamlfile import write_whole
from trainable.stages import stage, track

if TYPE_CHECKING:  # torch takes seconds to import
    from trainable.models.own import BuildModel

# no further recipe is tried after so long, or after so much of a processor's time
MOST_SECONDS, MOST_WORK = 20.0, 3.0
SPIN_SECONDS = 0.2
MOST_NEIGHBOURS = 31
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

    costs: tuple[RunCost, ...]  # in the order of the recipes; the first could be tried
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
    """Return what runs of the recipes cost where so many trials train at once: of as many as can be tried in
    seconds, of one at least.

    One that cannot be made is left out: its trial will say why. Raises UserError where none can be made, and
    where the trials' device is not on this machine.
    """
    import torch

    from trainable.probes.run_cost import measure_run_cost
    from trainable.run import make_run
    from trainable.training.devices import give_back, ran_out, threads

    if trial.gpus and not torch.cuda.is_available():
        raise UserError("trials run on a GPU, and there is none here to time steps on")
    with stage("loading torch's compiler"), paused():
        import torch._dynamo
    on, found = trial.bench(bench), list[RunCost]()
    began, worked = time.perf_counter(), time.process_time()
    beside = 0 if trial.gpus else min(MOST_NEIGHBOURS, at_once - 1)
    with (
        stage("trying recipes for the forecast"),
        threads(on.threads),
        _neighbours(beside),
    ):
        slowed = _slowed()
        for each in track(recipes, "recipe", len(recipes)):
            spent, work = time.perf_counter() - began, time.process_time() - worked
            if found and (spent > MOST_SECONDS or work > MOST_WORK):
                break
            share = _share_of_rank(each, trial.workers)
            try:
                found.append(measure_run_cost(partial(make_run, share, data=data, model=build, bench=on)))
            except (UserError, RunError):
                continue
            except Exception as error:
                if not ran_out(error):
                    raise
                give_back(on.device)
    if not found:
        raise UserError("no recipe of the search can be tried here")
    return TriedRuns(costs=tuple(found), slowed=slowed)


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
    """Return what the file holds; None where there is no file, or none that can be read."""
    try:
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
    import os

    command = [sys.executable, "-c", BUSY, str(os.getpid())]
    started = [subprocess.Popen(command, stdin=subprocess.DEVNULL) for _ in range(count)]
    try:
        yield
    finally:
        for each in started:
            each.kill()
        for each in started:
            each.wait()
