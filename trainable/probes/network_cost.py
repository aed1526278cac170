"""Measures what the network of a run costs on its device: parameters, latency, memory, the share of a GPU's
time that its training takes, and its operations by torch's own counter."""

from __future__ import annotations

import copy
import json
import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, count, cycle, islice

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from trainable.augmentation.sizes import extreme_sizes
from trainable.data.batch import Batch
from trainable.probes.batch_find import Steps, step_bytes
from trainable.recipe import Recipe
from trainable.recipe.network_cost import Footprint, NetworkCost
from trainable.tasks.kits import kit_of
from trainable.training import precision
from trainable.training.compiling import eagerly
from trainable.training.devices import CONTEXT_BYTES, give_back, wait_for
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

TIMED_STEPS = 8  # steps that are timed, and again recorded: whole portions, which are augmented at once
OF_ALL = "Global"  # torch's counter calls the sum over everything so


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


def measure_footprint(run: Run) -> Footprint:
    """Measure steps of a run on a CUDA device, which is afterwards as it was.

    One shape alone is tried, the run's own micro-batch, because cuDNN takes seconds to plan for each new one.
    """
    busy = None
    try:
        with run.probing(run.recipe.loop.epochs - 1):  # when everything is trained
            _, peak = torch.cuda.mem_get_info(run.device)  # all there is, if a step does not fit
            if Steps(run).on_cuda(run.micro_batch).fits:
                busy = busy_share(run)
                peak = torch.cuda.max_memory_reserved(run.device)
    finally:
        give_back(run.device)
    free, _ = torch.cuda.mem_get_info(run.device)
    held = torch.cuda.memory_reserved(run.device)  # this run's, which goes with it
    return Footprint(trial_bytes=peak + CONTEXT_BYTES, free_bytes=free + held, busy=busy)


def busy_share(run: Run) -> float | None:
    """Return the share of steps' time in which the GPU works, in (0, 1]; None where nothing was recorded.

    The run is in `probing`. The profiler slows down launches and no kernels, so it counts the work alone, and
    the time is that of as many steps without it. NVML's utilisation is too coarse: of a process whose kernels
    take 7 % of the time it says 17 %, and of four 99 %, though eight train twice as many images
    (decisions/0055).
    """
    side = extreme_sizes(run.recipe.augmentation.size, run.info.image_size)[1]
    steps = run.steps_of_a_portion * math.ceil(TIMED_STEPS / run.steps_of_a_portion)
    windows = _endless_windows(run)

    def train() -> None:
        for window in islice(windows, steps):
            run.train_on(window, lr=0.0, size=side)
        wait_for(run.device)

    train()  # what is prepared once is prepared now
    began = time.perf_counter()
    train()
    seconds = time.perf_counter() - began
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as profiler:
        train()
    worked = covered(
        (each.time_range.start, each.time_range.end)
        for each in profiler.events() or ()
        if each.device_type.name == "CUDA" and not each.is_user_annotation
    )
    return min(1.0, 1e-6 * worked / seconds) if worked else None  # events are in microseconds


def _endless_windows(run: Run) -> Iterator[list[Batch]]:
    """Yield effective batches of one epoch after the other, augmented on the GPU as they are read; of images
    that are not decoded yet the same one, since decoding is over when trials train."""
    if run.images.decoded:
        return chain.from_iterable(map(run.windows, count()))
    return cycle(islice(run.windows(), 1))


def covered(spans: Iterable[tuple[float, float]]) -> float:
    """Return how long one of the spans (begin, end) or more last: kernels of several streams overlap."""
    whole, until = 0.0, float("-inf")
    for begin, end in sorted(spans):
        whole += max(0.0, end - max(begin, until))
        until = max(until, end)
    return whole


@dataclass(frozen=True)
class Flops:
    """The operations that one image takes."""

    total: int
    layers: dict[str, int]  # by the name of each layer without layers of its own


def count_flops(network: nn.Module, shape: tuple[int, int, int]) -> Flops:
    """Return the operations of one image [C, H, W] through a network in evaluation mode, on the CPU.

    A copy is used, and the network does not change. What torch counts is what runs: a convolution that is
    computed as another one counts as that one.
    """
    twin = copy.deepcopy(network).to("cpu", torch.float32).eval()
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        twin(torch.zeros(1, *shape))
    found = {name: sum(each.values()) for name, each in counter.get_flop_counts().items()}
    leaves = {name for name, each in twin.named_modules() if not any(each.children())}
    named = {name.partition(".")[2]: count for name, count in found.items() if name != OF_ALL}
    return Flops(int(found.get(OF_ALL, 0)), {name: int(named[name]) for name in leaves & set(named)})
