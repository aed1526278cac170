"""Training on a GPU: Run against pure compute, formats, compilation, memory, time to an accuracy.

    python benchmarks/gpu.py [--cifar FOLDER] [--rounds 7] [--parts cifar resnet50 accuracy]

* cifar: ResNet-18 on 32 x 32 images held on the device (CIFAR-10's where `--cifar` names its class folders,
  else noise), batch 512.
* resnet50: ResNet-50 on synthetic images of 224 px, batch 256.
  In both, pure compute is the same model on one resident batch: forward, backward, step, nothing else.
  Formats and compilation are arms of the same rounds; peak memory is each arm's own.
* small: the step of ResNet-8 and ResNet-18 on 32 px images with every technique, alone and in `--processes`
  processes at once, and what a CUDA graph would gain (`small_networks.py`).
* sharing: trials an hour with `--at-once` 1, 2, 4, 8 of them on the GPU, with CUDA's MPS and without.
* compiled: for three networks of timm at 224 px, seconds of compiling, as a whole and by blocks, in a process
  that finds nothing on the disk and in later ones, and how many times as fast compiled steps are.
* accuracy: seconds until a run of ResNet-18 reaches 0.98 of the accuracy that the documented recipe ends at.

Every slice ends with a synchronisation. `--device cpu` with small `--images` tries the script out.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from loops import Epoch, bare_loop, our_run, pure_step
from report import described, environment, in_rounds, plain, ratio, refuse_busy_machine, write
from sharing import sharing
from small_networks import small
from trainable.bench import Bench
from trainable.data import DataSet
from trainable.data.assembly import from_arrays, load
from trainable.recipe import Recipe
from trainable.recipe.data import Data
from trainable.run import make_run

SHARE_OF_BASELINE = 0.98
COMPILED = ("resnet50", "convnext_tiny", "vit_small_patch16_224")
CLASSES = 10


def main() -> None:
    options = _options()
    device = torch.device(options.device)
    refuse_busy_machine(1)
    where = environment(torch.get_num_threads())
    machine = where["gpu"] if device.type == "cuda" else "a CPU (a trial of the script)"
    parts = {
        "cifar": cifar,
        "resnet50": resnet50,
        "compiled": compiled,
        "accuracy": accuracy,
        "sharing": sharing,
        "small": small_step,
    }
    record: dict[str, Any] = {"environment": where}
    pages = []
    for name in options.parts:
        record[name], page = parts[name](options, device)
        pages.append(page)
        head = f"# Training throughput on {machine}\n\n"
        write(options.name, record, head + "\n".join(pages) + "\n" + described(where))


def cifar(options: argparse.Namespace, device: torch.device) -> tuple[dict[str, Any], str]:
    data = cifar_images(
        options, validation_fraction=0.002
    )  # a run scores it each epoch; pure compute does not
    base = {"model.kind": "torchvision", "model.name": "resnet18", "loop.batch_size": options.batch or 512}
    return compared("ResNet-18 on 32 px images", base, data, device, options.rounds)


def resnet50(options: argparse.Namespace, device: torch.device) -> tuple[dict[str, Any], str]:
    batch = options.batch or 256
    data = noise(options.images or 8 * batch, side=options.side)
    base = {"model.kind": "torchvision", "model.name": "resnet50", "loop.batch_size": batch}
    return compared(f"ResNet-50 on {options.side} px images", base, data, device, options.rounds)


def compared(
    title: str, base: dict[str, Any], data: DataSet, device: torch.device, rounds: int
) -> tuple[dict[str, Any], str]:
    """Compare Run, pure compute and a bare loop in bf16; then Run in other formats, layouts and compiled."""
    plainly = {
        **base,
        "augmentation.crop.kind": "none",
        "augmentation.flip_probability": 0.0,
        "loop.epochs": 10_000,
        "evaluation.norm_batches": 0,
        "precision.kind": "bf16",
    }
    kinds: dict[str, dict[str, Any]] = {
        "Run, bf16": {},
        "Run, bf16, contiguous": {"precision.channels_last": False},
        "Run, fp16": {"precision.kind": "fp16"},
        "Run, fp32": {"precision.kind": "fp32"},
        "Run, tf32": {"precision.kind": "tf32"},
        "Run, bf16, compiled": {"loop.compile": True},
        "Run, bf16, augmented": {
            "augmentation.crop.kind": "pad",
            "augmentation.flip_probability": 0.5,
            "augmentation.masking.kind": "erasing",
        },
    }
    if device.type != "cuda":
        del kinds["Run, tf32"], kinds["Run, bf16, compiled"]
    recipe = Recipe().with_values(plainly)
    arms: dict[str, Callable[[], float]] = {
        "pure compute, bf16": synchronised(pure_compute(recipe, data, device), device),
        "bare loop, bf16": synchronised(bare_loop(recipe, data, device), device),
    }
    for name, values in kinds.items():
        arms[name] = synchronised(our_run(recipe.with_values(values), data, device), device)
    peaks = {name: _peak_bytes(arm, device) for name, arm in arms.items()}
    slices = in_rounds(arms, rounds)
    reference = slices["Run, bf16"]
    figures = {name: ratio(reference, arm, lambda each: each.rate) for name, arm in slices.items()}
    rates = {name: sorted(each.rate for each in arm) for name, arm in slices.items()}
    rows = "\n".join(
        f"| {name} | {np.median(rate):,.0f} | {rate[0]:,.0f} to {rate[-1]:,.0f} | "
        f"{figures[name]['median']:.3f} ({figures[name]['min']:.3f} to {figures[name]['max']:.3f}) | "
        f"{peaks[name] / 2**30:.2f} |"
        for name, rate in rates.items()
    )
    page = (
        f"## {title}\n\nBatch {recipe.loop.batch_size}, n = {rounds} rounds, a slice is one epoch.\n\n"
        "| arm | images/s, median | range | `Run, bf16` over it | peak memory, GiB |\n"
        f"|-|-|-|-|-|\n{rows}\n"
    )
    return {"ratios": figures, "peak_bytes": peaks, "slices": plain(slices)}, page


def compiled(options: argparse.Namespace, device: torch.device) -> tuple[dict[str, Any], str]:
    """Compare compiled steps with steps as they are; each measurement has a process of its own."""
    from first_steps import CASES, OVER, Found, in_process, spread

    batch = options.batch or 128
    asked = argparse.Namespace(side=options.side, batch=batch, device=options.device, limit=1200.0)
    record: dict[str, dict[str, list[Found]]] = {}
    rows = []
    for name in options.networks:
        plain = [each for _ in range(options.rounds) if (each := in_process(name, CASES[0], asked))]
        record[name] = {CASES[0]: plain}
        for case in (each for each in CASES if "compiled" in each):
            with TemporaryDirectory() as code:
                cold = in_process(name, case, asked, code)
                ones = (in_process(name, case, asked, code) for _ in range(options.rounds))
                warm = [each for each in ones if each]
            record[name] |= {f"{case}, cold": [cold] if cold else [], f"{case}, warm": warm}
            first = f"{cold['first_seconds']:.1f}" if cold else OVER
            rates = [[each["images_per_second"] for each in arm] for arm in (plain, warm)]
            gain = f"{np.median(rates[1]) / np.median(rates[0]):.2f}" if all(rates) else OVER
            rows.append(
                f"| {name} | {case} | {first} | {spread(warm, 'first_seconds', '.1f')} | "
                f"{spread(warm, 'images_per_second', ',.0f')} | {gain} |"
            )
    table = "\n".join(rows)
    page = (
        f"## Compiled steps, {options.side} px, batch {batch}\n\n"
        f"One process that finds no code on the disk, then n = {options.rounds} that do; as many uncompiled."
        "\n\n"
        "| network | case | first step, s | with the code on the disk | images/s | over uncompiled |\n"
        f"|-|-|-|-|-|-|\n{table}\n"
    )
    return record, page


def small_step(options: argparse.Namespace, device: torch.device) -> tuple[dict[str, Any], str]:
    return small(options, device, partial(noise, options.images or 51_200, side=32))


def pure_compute(recipe: Recipe, data: DataSet, device: torch.device) -> Epoch:
    """Take the bare step on one batch on the device, as often as an epoch has steps."""
    step, batch = pure_step(recipe, data, device), recipe.loop.batch_size
    steps = data.info.train_images // batch

    def epoch() -> float:
        for _ in range(steps):
            step()
        return float(steps * batch)

    return epoch


def synchronised(epoch: Epoch, device: torch.device) -> Epoch:
    """Return an epoch that ends only when the device is done."""

    def whole() -> float:
        done = epoch()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return done

    return whole


def _peak_bytes(arm: Epoch, device: torch.device) -> int:
    """Return the most device memory that an epoch adds to what the other arms hold."""
    if device.type != "cuda":
        arm()
        return 0
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    arm()
    return torch.cuda.max_memory_allocated(device) - before


# --- time to an accuracy ------------------------------------------------------------------------------

DOCUMENTED = {
    "model.kind": "torchvision",
    "model.name": "resnet18",
    "loop.batch_size": 256,
    "optimizer.weight_decay": 5e-4,
    "augmentation.crop.kind": "pad",
}
FAST = {
    **DOCUMENTED,
    "loop.batch_size": 512,
    "schedule.kind": "onecycle",
    "regularisation.label_smoothing": 0.1,
    "loop.compile": True,
}


def accuracy(options: argparse.Namespace, device: torch.device) -> tuple[dict[str, Any], str]:
    """Measure where the documented recipe ends, and how long a short one takes to reach 0.98 of it."""
    data = cifar_images(options, validation_fraction=0.1)
    warmup = min(5.0, options.epochs / 10)
    documented = {**DOCUMENTED, "loop.epochs": options.epochs, "schedule.warmup_epochs": warmup}
    baseline = _trained(documented, data, device)
    target = SHARE_OF_BASELINE * baseline["accuracies"][-1]
    rows, runs = [], {"documented": baseline}
    for epochs in (options.epochs // 4, options.epochs // 2):
        values = {**FAST, "loop.epochs": max(2, epochs), "loop.compile": device.type == "cuda"}
        runs[f"one cycle, {epochs} epochs"] = _trained(values, data, device)
    for name, run in runs.items():
        reached = next(
            (
                seconds
                for seconds, each in zip(run["seconds"], run["accuracies"], strict=True)
                if each >= target
            ),
            None,
        )
        rows.append(
            f"| {name} | {run['accuracies'][-1]:.4f} | {run['seconds'][-1]:.1f} | "
            f"{'not reached' if reached is None else f'{reached:.1f}'} |"
        )
    table = "\n".join(rows)
    page = (
        f"## Seconds to {SHARE_OF_BASELINE} of the documented recipe's accuracy ({target:.4f})\n\n"
        "Validation accuracy; scoring every epoch and compilation are in the seconds; n = 1 run an arm.\n\n"
        f"| recipe | ends at | after, s | reaches it after, s |\n|-|-|-|-|\n{table}\n"
    )
    return {"target": target, "runs": runs}, page


def _trained(values: dict[str, Any], data: DataSet, device: torch.device) -> dict[str, list[float]]:
    run = make_run(Recipe().with_values(values), data=data, bench=Bench(device_name=str(device)))
    started, seconds, accuracies = time.perf_counter(), [], []
    while not run.finished:
        accuracies.append(run.step().val_accuracy)
        seconds.append(time.perf_counter() - started)
    return {"seconds": seconds, "accuracies": accuracies}


# --- images -------------------------------------------------------------------------------------------


def cifar_images(options: argparse.Namespace, validation_fraction: float) -> DataSet:
    if options.cifar is None:
        return noise(options.images or 51_200, side=32)
    spec = Data(
        path=options.cifar, flips=("horizontal",), in_memory=True, validation_fraction=validation_fraction
    )
    return load(spec, bench=Bench(device_name="cuda"))


def noise(count: int, *, side: int) -> DataSet:
    """Return so many random images to train on, and one of each class, the fewest, to validate on."""
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (count + CLASSES, side, side, 3), dtype=np.uint8)
    labels = np.arange(count + CLASSES, dtype=np.int64) % CLASSES
    parts = (images[:-CLASSES], labels[:-CLASSES]), (images[-CLASSES:], labels[-CLASSES:])
    spec = Data(path="noise", image_size=side, flips=("horizontal",))
    return from_arrays(*parts, spec=spec, bench=Bench(device_name="cuda"))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Measure throughput, memory and time to an accuracy on a GPU."
    )
    parser.add_argument("--cifar", help="a folder with train/CLASS/ and test/CLASS/")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--images", type=int)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--side", type=int, default=224)
    parser.add_argument("--networks", nargs="+", default=COMPILED, help="of timm, for the part `compiled`")
    parser.add_argument("--parts", nargs="+", default=["cifar", "resnet50", "accuracy"])
    parser.add_argument("--processes", type=int, default=8, help="on a GPU at once, for the part `small`")
    parser.add_argument("--at-once", nargs="+", type=int, default=[1, 2, 4, 8], help="trials on a GPU")
    parser.add_argument("--trials", type=int, default=16, help="of each search that shares a GPU")
    parser.add_argument("--name", default="throughput-gpu")
    return parser.parse_args()


if __name__ == "__main__":
    main()
