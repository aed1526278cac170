"""Decides how many trials share a GPU: as many as its memory holds, by a measured step of the first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from search.facts.hardware import Hardware, PerTrial
from search.facts.measured import Say
from search.study import StudyError
from trainable.data import DataSet
from trainable.errors import Fault
from trainable.recipe import Recipe

if TYPE_CHECKING:  # Ray takes seconds to import
    from trainable.tune.carried import Carried
    from trainable.tune.seat import Shared

HEADROOM = 1.25
"""A factor on what the first trial needs: others have an optimizer with more state, or averaged weights."""


@dataclass(frozen=True)
class Footprint:
    """Holds the most GPU memory that a process needs to train a recipe, and what was free there before."""

    trial_bytes: int
    free_bytes: int

    def trials(self) -> int:
        """Returns how many fit at once; a trial that does not fit with headroom has the GPU to itself."""
        return max(1, int(self.free_bytes / (HEADROOM * self.trial_bytes)))


def gpu_share(
    recipe: Recipe,
    data: DataSet,
    trial: PerTrial,
    hardware: Hardware,
    say: Say,
    model: Carried | None = None,
) -> float:
    """Returns the part of a GPU that each trial gets, and says how it was found.

    It measures one step of `recipe` on a GPU: in this process where it sees one, else on a machine of the
    cluster. There are never more trials than the machine has processors for. Raises StudyError where there is
    no GPU.
    """
    if not trial.gpus:
        raise StudyError([Fault("resources.pack", f"there is no GPU to share: {hardware}")])
    say("pack: measuring how much GPU memory a trial needs")
    found = _measured(recipe, data, model)
    most = max(node.cpus // trial.cpus // node.gpus for node in hardware.nodes if node.gpus)
    count = min(found.trials(), max(1, most))
    gib = f"{found.trial_bytes / 2**30:.1f} of {found.free_bytes / 2**30:.1f} GiB"
    say(f"pack: a trial needs {gib}; {count} run on each GPU")
    return int(1e4 / count) / 1e4  # Ray counts ten-thousandths: if rounded up, one fewer fits


def footprint(recipe: Recipe, data: DataSet, model: Carried | None = None) -> Footprint:
    """Returns what a whole step of the recipe needs on this process's first GPU, and frees it again."""
    import torch

    from trainable.probes.batch_find import batch_find
    from trainable.training.memory import CONTEXT_BYTES, give_back
    from trainable.training.run import Run

    device = torch.device("cuda")
    give_back(device)
    free, whole = torch.cuda.mem_get_info()
    run = Run(recipe, data=data, model=None if model is None else model.load(), device=device)
    size = min(recipe.loop.batch_size, recipe.loop.micro_batch or recipe.loop.batch_size)
    try:
        tried = [
            each.peak_bytes for each in batch_find(run, largest=size).tried if each.peak_bytes is not None
        ]
    finally:
        run.close()
    del run
    give_back(device)
    return Footprint(max(tried, default=whole) + CONTEXT_BYTES, free)


def _measured(recipe: Recipe, data: DataSet, model: Carried | None) -> Footprint:
    """Returns a recipe's footprint, measured here or on one of the cluster's GPUs."""
    import torch

    if torch.cuda.is_available():
        return footprint(recipe, data, model)
    import ray

    from trainable.tune.seat import Shared

    remote = ray.remote(num_cpus=1, num_gpus=1)(_footprint_of_shared)
    found: Footprint = ray.get(remote.remote(recipe, Shared.put(data), model))
    return found


def _footprint_of_shared(recipe: Recipe, data: Shared[DataSet], model: Carried | None = None) -> Footprint:
    images = data.get()
    images.copy_here()
    return footprint(recipe, images, model)
