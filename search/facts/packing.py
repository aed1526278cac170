"""Decides how many trials share a GPU, by a step of the first: its memory, and how long the GPU works."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from search.facts.hardware import Hardware, PerTrial
from search.study import Study, StudyError
from trainable.bench import Bench
from trainable.data import DataSet
from trainable.errors import Fault
from trainable.recipe import Recipe
from trainable.recipe.network_cost import Footprint

if TYPE_CHECKING:  # Ray takes seconds to import
    from trainable.tune.carried import Carried
    from trainable.tune.worker_setup import Shared

HEADROOM = 1.25  # others may need more memory than the first: an optimizer with more state, averaged weights
FILLED = 0.8  # a GPU that works so much of the time is full: one more would mostly slow the others down
MOST = 8  # more were never measured; eight trained 6.2 and 8.5 times as many images as one (decisions/0055)


def shares_gpus(study: Study, trial: PerTrial, hardware: Hardware) -> bool:
    """Return whether it is measured how many of a study's trials share a GPU. Raises StudyError where the
    study asks for that and there is no GPU."""
    resources = study.resources
    if resources.pack and not trial.gpus:
        raise StudyError([Fault("resources.pack", f"there is no GPU to share: {hardware}")])
    return resources.shares_gpus and trial.gpus > 0


def trials_on_a_gpu(footprint: Footprint, processors: int, asked: int = MOST) -> int:
    """Return how many trials share a GPU: as many as fill it, or fewer.

    `processors` is the number of trials that the processors beside a GPU can serve, `asked` how many there
    are for it.
    """
    return max(1, min(fitting(footprint), filling(footprint), processors, asked, MOST))


def fitting(footprint: Footprint) -> int:
    """Return for how many trials a GPU's memory suffices, with headroom; it may be none."""
    return int(footprint.free_bytes / (HEADROOM * footprint.trial_bytes))


def filling(footprint: Footprint) -> int:
    """Return the fewest trials with which a GPU is full; 1 where nothing is known of its work."""
    return 1 if footprint.busy is None else math.ceil(FILLED / footprint.busy - 1e-9)


def share_of(trials: int) -> float:
    """Return the part of a GPU that each of so many trials gets: Ray counts ten-thousandths, and if they were
    rounded up, one trial fewer would fit."""
    return int(1e4 / trials) / 1e4


def gpu_share(footprint: Footprint, study: Study, hardware: Hardware) -> float:
    """Return the part of a GPU that each of a study's trials gets on these machines, which have GPUs."""
    cpus = study.resources.cpus or 1
    processors = max(node.cpus // cpus // node.gpus for node in hardware.nodes if node.gpus)
    at_once = min(study.budget.trials, study.concurrent or study.budget.trials)
    return share_of(trials_on_a_gpu(footprint, processors, math.ceil(at_once / hardware.gpus)))


def why_shared(footprint: Footprint, share: float) -> str:
    """Return in words how many trials share a GPU, and what allows so many and no more."""
    trials, fit, fill = int(1 / share + 1e-9), fitting(footprint), filling(footprint)
    what = "a trial has a GPU to itself" if trials == 1 else f"{trials} trials share a GPU"
    words = f"{what}: one takes {footprint}, so {fit} fit and {fill} fill it"
    if trials >= min(max(1, fit), fill):
        return words
    return f"{words}; {'more were never tried' if trials == MOST else 'processors or trials for no more'}"


def footprint(recipe: Recipe, data: DataSet, model: Carried | None = None) -> Footprint:
    """Return what a step of a recipe takes of a GPU, measured here or on one of the cluster's GPUs."""
    import torch

    if torch.cuda.is_available():
        return _footprint_here(recipe, data, model)
    import ray

    from trainable.tune.worker_setup import Shared

    remote = ray.remote(num_cpus=1, num_gpus=1)(_footprint_of_shared)
    found: Footprint = ray.get(remote.remote(recipe, Shared.put(data), model))
    return found


def _footprint_here(recipe: Recipe, data: DataSet, model: Carried | None = None) -> Footprint:
    """Measure on this process's first GPU, and free it again."""
    import torch

    from trainable.probes.network_cost import measure_footprint
    from trainable.run import make_run
    from trainable.training.devices import give_back

    device = torch.device("cuda")
    run = make_run(
        recipe, data=data, model=None if model is None else model.load(), bench=Bench(device_name="cuda")
    )
    try:
        return measure_footprint(run)
    finally:
        run.close()
        del run
        give_back(device)


def _footprint_of_shared(recipe: Recipe, data: Shared[DataSet], model: Carried | None = None) -> Footprint:
    images = data.get()
    images.copy_here()
    return _footprint_here(recipe, images, model)
