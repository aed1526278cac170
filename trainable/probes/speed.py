"""Finds the number format and the memory layout in which a network trains fastest here, by timed steps.

What is fast depends on the network: on a CPU with bf16 units (AMD EPYC, one thread, n=7,
benchmarks/results/number-formats.md), each in its better layout, bf16 trains torchvision's ResNet18 at 64 px
1.3 times as fast as fp32, and timm's tf_efficientnet_lite0 at 96 px at 0.6 of its rate, as depthwise
convolutions have no kernels for it.

On a GPU each new shape, format and layout takes cuDNN seconds, in each process (docs/decisions/0057). So few
are tried: one batch, in the half format that it has units for, in both layouts if there are convolutions.
What a recipe names is not open, and nothing else is timed: else compiling would be judged by other steps.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product

import torch
from torch import Tensor, nn

from trainable.data import DataInfo
from trainable.recipe.network_cost import Format, Speed, fastest
from trainable.recipe.training import Compiling, Precision
from trainable.stages import stage
from trainable.tasks.kit import HeadLoss
from trainable.tasks.kits import kit_of
from trainable.training import precision
from trainable.training.compiling import compile_in_place, forget_compiled, while_training
from trainable.training.devices import give_back, ran_out, wait_for
from trainable.training.evaluate import full_precision

# There are so many rounds of timed steps, as many as fit into these seconds
LEAST_ROUNDS, MOST_ROUNDS, SECONDS = 2, 20, 3.0
STEP_SECONDS = 0.25
# A timed step has the first of these numbers of images that takes half of STEP_SECONDS, or the last
SIZES = {"cpu": (4, 8, 16, 32), "cuda": (128,)}
CONVOLUTIONS = (nn.Conv2d, nn.ConvTranspose2d)

ComputeWay = tuple[Format, bool]  # a number format, and whether images are in channels_last


@stage("timing steps of the network")
def measure_speeds(
    model: nn.Module,
    info: DataInfo,
    device: torch.device,
    spec: Precision,
    *,
    compiling: Compiling = False,
) -> tuple[Speed, ...]:
    """Return the speed of whole steps in each way worth trying that a recipe's `precision` leaves open, the
    usual one first; empty if the images do not fit into memory. Where `compiling` names how, the last is that
    of the fastest way, compiled.

    The model is trained on noise of the images' shape, by the cross-entropy of each of its heads, and is of
    no use afterwards. It is each way's quickest step that counts, and ways take turns, since other programs
    may use the processors too. Raises RecipeError for a format that the device does not have.
    """
    model = model.to(device).train()
    ways = _ways(model, device, spec)
    try:
        batch = _batch(model, info, device, ways[0])
        quickest = dict.fromkeys(ways, math.inf)
        began = time.perf_counter()
        for done in range(MOST_ROUNDS):
            if done >= LEAST_ROUNDS and time.perf_counter() - began > SECONDS:
                break
            for way in ways:
                _step(model, *batch, way)  # the first after a change of layout prepares kernels
                quickest[way] = min(quickest[way], _timed(partial(_step, model, *batch, way), device))
        images = len(batch[0])
        speeds = tuple(
            Speed(number_format=each, channels_last=last, images_per_second=images / quickest[each, last])
            for each, last in ways
        )
        return (*speeds, *_compiled(model, batch, fastest(speeds), compiling))
    except Exception as error:
        if not ran_out(error):
            raise
        give_back(device)
        return ()


def _ways(model: nn.Module, device: torch.device, spec: Precision) -> list[ComputeWay]:
    """On a CPU every format that it has units for, in both layouts; only what the recipe leaves open."""
    if spec.kind != "auto":
        return [(precision.resolve(spec, device), spec.channels_last)]
    formats, is_gpu = precision.formats_of(device), device.type == "cuda"
    has_layout = not is_gpu or any(isinstance(each, CONVOLUTIONS) for each in model.modules())
    layouts = (True, False) if spec.channels_last and has_layout else (spec.channels_last,)
    return list(product(formats[:1] if is_gpu else formats, layouts))


def _compiled(
    model: nn.Module, batch: tuple[Tensor, HeadLoss], eager: Speed, compiling: Compiling
) -> Iterator[Speed]:
    """Yield the speed of the compiled network; nothing where it is not, or cannot be, compiled."""
    device = batch[0].device
    step = partial(_step, model, *batch, (eager.number_format, eager.channels_last))
    if not (what := compile_in_place(model, compiling, one_size=True)):
        return
    try:
        with stage(f"compiling {what}"), while_training(compiling):
            first = _timed(step, device)
            quickest = min(_timed(step, device) for _ in range(LEAST_ROUNDS))
            forget_compiled()
            again = _timed(step, device)
    except RuntimeError as error:  # torch's and inductor's own are
        if ran_out(error):
            raise
        return
    finally:
        forget_compiled()
    compiled = {"compile_seconds": first, "again_seconds": again, "by_blocks": compiling == "blocks"}
    yield eager.model_copy(update={**compiled, "images_per_second": len(batch[0]) / quickest})


def _batch(
    model: nn.Module, info: DataInfo, device: torch.device, usual: ComputeWay
) -> tuple[Tensor, HeadLoss]:
    """Return images [B, C, H, W], and the loss of a head's outputs for them."""
    shape, kit = (info.channels, info.image_size, info.image_size), kit_of(info.task)
    for size in SIZES[device.type]:
        images = torch.randn(size, *shape, generator=torch.Generator().manual_seed(0)).to(device)
        batch = images, kit.loss_of_noise(images, info)
        _step(model, *batch, usual)
        if 2 * _timed(partial(_step, model, *batch, usual), device) > STEP_SECONDS:
            break
    return batch


def _step(model: nn.Module, images: Tensor, loss: HeadLoss, way: ComputeWay) -> None:
    number_format, channels_last = way
    layout = torch.channels_last if channels_last else torch.contiguous_format
    model.to(memory_format=layout)
    with precision.switches(number_format, images.device):
        with precision.autocast(number_format, images.device):
            outputs = full_precision(model(images.contiguous(memory_format=layout)))
        heads = outputs if isinstance(outputs, tuple) else (outputs,)
        torch.stack([loss(each) for each in heads]).sum().backward()
        with torch.no_grad():
            for each in model.parameters():
                if each.grad is not None:
                    each.add_(each.grad, alpha=-1e-6)
                    each.grad = None


def _timed(step: Callable[[], None], device: torch.device) -> float:
    wait_for(device)
    began = time.perf_counter()
    step()
    wait_for(device)
    return time.perf_counter() - began
