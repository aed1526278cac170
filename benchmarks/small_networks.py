"""The step of small networks on a GPU, whose rate the host's launches decide.

    python benchmarks/gpu.py --parts small [--rounds 7] [--processes 8] [--batch 128]

ResNet-8 of 16 channels and ResNet-18 on 32 px images held on the device, batch 128, bf16. One trial trains
plainly, and with crop, flip, RandAugment, CutMix, erasing, averaged weights and clipping; beside it are the
same without portions of augmentation, and the bare step launched by the host and as a CUDA graph. Then
several processes train with all techniques at once.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import multiprocessing

from loops import Epoch, pure_step
from report import in_rounds, plain
from trainable.bench import Bench
from trainable.data import DataSet
from trainable.data.loading import PORTION_BYTES
from trainable.recipe import Recipe
from trainable.run import make_run

NETWORKS: dict[str, dict[str, Any]] = {
    "ResNet-8 x 16": {"model.kind": "resnet_small", "model.depth": 8, "model.width": 16},
    "ResNet-18": {"model.kind": "torchvision", "model.name": "resnet18"},
}
ASKED = {"ResNet-8 x 16": 18_000, "ResNet-18": 12_000}
# Images/s with all techniques on one H100 or H200: of one trial, and of eight together
ASKED_TOGETHER = {"ResNet-8 x 16": 80_000}

PLAIN = {
    "augmentation.crop.kind": "none",
    "augmentation.flip_probability": 0.0,
    "evaluation.norm_batches": 0,
    "precision.kind": "bf16",
    "loop.epochs": 10_000,
}
TECHNIQUES = {
    **PLAIN,
    "augmentation.crop.kind": "pad",
    "augmentation.flip_probability": 0.5,
    "augmentation.policy.kind": "randaugment",
    "augmentation.mixing.kind": "cutmix",
    "augmentation.masking.kind": "erasing",
    "regularisation.averaging.kind": "ema",
    "regularisation.clipping.kind": "norm",
}

MakeData = Callable[[], DataSet]


def small(
    options: argparse.Namespace, device: torch.device, make_data: MakeData
) -> tuple[dict[str, Any], str]:
    """Return what each network's arms measured, and a page of it."""
    record, rows = {}, []
    for name, network in NETWORKS.items():
        base = {**network, "loop.batch_size": options.batch or 128}
        slices = in_rounds(_alone(base, make_data(), device), options.rounds)
        together = _together({**base, **TECHNIQUES}, make_data, options)
        record[name] = {"slices": plain(slices), "together": together}
        rates = {arm: [each.rate for each in arms] for arm, arms in slices.items()}
        rates[f"{options.processes} processes, with techniques"] = together
        asked = {
            "Run, with techniques": ASKED[name],
            f"{options.processes} processes, with techniques": ASKED_TOGETHER.get(name),
        }
        rows += [
            f"| {name} | {arm} | {np.median(each):,.0f} | {min(each):,.0f} to {max(each):,.0f} | "
            f"{asked.get(arm) or ''} |"
            for arm, each in rates.items()
        ]
    table = "\n".join(rows)
    page = (
        f"## The step of small networks\n\nBatch {options.batch or 128}, n = {options.rounds} epochs an arm, "
        "in turns; processes train as many epochs at once.\n\n"
        f"| network | arm | images/s, median | range | asked |\n|-|-|-|-|-|\n{table}\n"
    )
    return record, page


def _alone(base: dict[str, Any], data: DataSet, device: torch.device) -> dict[str, Epoch]:
    plainly = Recipe().with_values({**base, **PLAIN})
    techniques = Recipe().with_values({**base, **TECHNIQUES})
    with patch.dict(PORTION_BYTES, clear=True):  # every batch is a portion of its own
        by_batches = make_run(techniques, data=data, bench=Bench(device_name=str(device)))
    images = float(data.info.train_images // plainly.loop.batch_size * plainly.loop.batch_size)
    arms: dict[str, Callable[[], Any]] = {
        "Run, plain": make_run(plainly, data=data, bench=Bench(device_name=str(device))).step,
        "Run, with techniques": make_run(techniques, data=data, bench=Bench(device_name=str(device))).step,
        "Run, with techniques, batch by batch": by_batches.step,
        "bare step": _repeated(pure_step(plainly, data, device), plainly, data),
    }
    if device.type == "cuda":
        graph = captured(pure_step(plainly, data, device))
        arms["bare step, as a CUDA graph"] = _repeated(graph, plainly, data)

    def timed_whole(arm: Callable[[], Any]) -> Epoch:
        def epoch() -> float:
            arm()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            return images

        return epoch

    return {name: timed_whole(arm) for name, arm in arms.items()}


def _repeated(step: Callable[[], None], recipe: Recipe, data: DataSet) -> Callable[[], None]:
    def epoch() -> None:
        for _ in range(data.info.train_images // recipe.loop.batch_size):
            step()

    return epoch


def captured(step: Callable[[], None]) -> Callable[[], None]:
    """Return a step that replays what one step launched (torch's notes on CUDA graphs)."""
    torch.set_autocast_cache_enabled(False)  # weights cast once, before the capture, would never change
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    torch.set_autocast_cache_enabled(True)
    return graph.replay


def _together(values: dict[str, Any], make_data: MakeData, options: argparse.Namespace) -> list[float]:
    """Return the images a second of several processes, in each of as many epochs as there are rounds."""
    context = multiprocessing.get_context("spawn")
    start, answers = context.Barrier(options.processes), context.Queue()
    arguments = (values, make_data, options.device, options.rounds, start, answers)
    processes = [context.Process(target=_trained, args=arguments) for _ in range(options.processes)]
    for each in processes:
        each.start()
    spans = [answers.get() for _ in processes]
    for each in processes:
        each.join()
    return [
        sum(images for images, _, _ in epochs)
        / (max(ended for _, _, ended in epochs) - min(began for _, began, _ in epochs))
        for epochs in zip(*spans, strict=True)
    ]


def _trained(
    values: dict[str, Any], make_data: MakeData, device: str, rounds: int, start: Any, answers: Any
) -> None:
    torch.set_num_threads(1)
    run = make_run(recipe := Recipe().with_values(values), data=make_data(), bench=Bench(device_name=device))
    images = run.info.train_images // recipe.loop.batch_size * recipe.loop.batch_size
    run.step()
    spans = []
    for _ in range(rounds):
        start.wait()
        began = time.monotonic()
        run.step()  # it reads the epoch's loss and scores at its end, and so waits for the device
        spans.append((images, began, time.monotonic()))
    answers.put(spans)
