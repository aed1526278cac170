"""Measures what the network of a run costs on its device: parameters, latency, memory."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable

import torch

from trainable.probes.batch_find import step_bytes
from trainable.recipe import Recipe
from trainable.recipe.network_cost import NetworkCost
from trainable.tasks.kits import kit_of
from trainable.training import precision
from trainable.training.compiling import eagerly
from trainable.training.devices import wait_for
from trainable.training.evaluate import make_views
from trainable.training.run import Run

WARM_UPS = 5  # passes in which kernels are chosen and prepared, which do not count
LEAST_PASSES, MOST_PASSES, SECONDS = 15, 200, 0.3  # as many are timed as fit into these seconds

# Fields of a model that change neither its size nor its speed
FREE = (
    "weights",
    "dropout",
    "stochastic_depth",
    "initialisation",
    "layer_rates",
    "freeze_epochs",
    "frozen_views",
)
LEARNT = {"temperature", "weight", "alpha", "beta"}  # fields of a distillation that change no step's cost


def measure_cost(run: Run) -> NetworkCost:
    """Return what the run's network costs on the run's device. The run is afterwards as it was.

    The latency is that of the quickest pass: what a device takes that does nothing else. In a search other
    trials use the processors too (docs/decisions/0027).
    """
    return NetworkCost(
        parameters=sum(each.numel() for each in run.model.parameters()),
        latency_ms=1e3 * min(times_to_answer(run)),
        memory_gib=step_bytes(run) / 2**30,
    )


def times_to_answer(run: Run) -> list[float]:
    """Return the seconds of many passes, each from one image of evaluation, on the device, to its answer.

    The answer is computed as in scoring: in the recipe's number format and layout, not compiled, with every
    view of `evaluation.flip` and `evaluation.scales`. Where images have masks, and sizes of their own, it is
    one as large as a window.
    """
    info = run.info
    views = make_views(run.recipe.evaluation, info.image_size)
    task = kit_of(run.recipe.task).task(run.recipe, info, run.device)
    black = torch.zeros(1, info.channels, info.image_size, info.image_size)
    ((image, _),) = run.images.taken([(black, torch.zeros(1, dtype=torch.int64))])
    autocast, was_training = run.compute.autocast(), run.model.training
    run.model.eval()
    try:
        with (
            torch.inference_mode(),
            run.compute.switched(),
            precision.kernel_search(len(views) == 1),
            eagerly(run.recipe.loop.compiles),
        ):
            return _times(lambda: task.answer(run.model, image, autocast, views), run.device)
    finally:
        run.model.train(was_training)


def key_of_cost(recipe: Recipe) -> str:
    """Return what the cost of a recipe's network depends on, as text: equal texts mean equal costs."""
    optimizer, augmentation = recipe.optimizer, recipe.augmentation
    parts = [
        recipe.model.model_dump(mode="json", exclude=set(FREE)),
        recipe.model.freeze_epochs >= recipe.loop.epochs,  # memory is that of the last epoch
        optimizer.model_dump(mode="json", include={"kind", "name", "options"}),
        optimizer.model_dump().get("momentum") == 0.0,  # one copy of the weights less
        recipe.regularisation.averaging.kind,
        augmentation.size.model_dump(mode="json"),
        None if recipe.distillation is None else recipe.distillation.model_dump(mode="json", exclude=LEARNT),
        recipe.data.image_size,
        *recipe.task.costs,
        *(each.model_dump(mode="json") for each in (recipe.precision, recipe.loop, recipe.evaluation)),
    ]
    return json.dumps(parts, sort_keys=True)


def share_of_rank(recipe: Recipe, ranks: int) -> Recipe:
    """Return a recipe whose step alone takes what a step of the recipe takes on one of so many ranks.

    It is not compiled, which would take a minute; torch's compiled steps take no more memory.
    """
    batch = math.ceil(recipe.loop.batch_size / ranks)
    micro_batch = min(batch, recipe.loop.micro_batch or batch)
    return recipe.with_values(
        {
            "loop.batch_size": batch,
            "loop.micro_batch": micro_batch,
            "loop.compile": False,
            "loop.sync_norm": False,
        }
    )


def _times(answer: Callable[[], object], device: torch.device) -> list[float]:
    for _ in range(WARM_UPS):
        answer()
    seconds: list[float] = []
    until = time.perf_counter() + SECONDS
    while len(seconds) < LEAST_PASSES or (len(seconds) < MOST_PASSES and time.perf_counter() < until):
        wait_for(device)
        began = time.perf_counter()
        answer()
        wait_for(device)
        seconds.append(time.perf_counter() - began)
    return seconds
