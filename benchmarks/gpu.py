"""Training on a GPU: several trials on one, compiled steps, and the step of small networks.

    python benchmarks/gpu.py [--parts small sharing compiled] [--rounds 7]

* small: the step of ResNet-8 and ResNet-18 on 32 px images with every technique, alone and in `--processes`
  processes at once, and what a CUDA graph would gain (`small_networks.py`).
* sharing: trials an hour with `--at-once` 1, 2, 4, 8 of them on the GPU, with CUDA's MPS and without.
* compiled: for three networks of timm at 224 px, seconds of compiling, as a whole and by blocks, in a process
  that finds nothing on the disk and in later ones, and how many times as fast compiled steps are.

Every slice ends with a synchronisation. `--device cpu` with small `--images` tries the script out.
"""

from __future__ import annotations

import argparse
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from loops import Epoch
from report import described, environment, refuse_busy_machine, write
from sharing import sharing
from small_networks import small
from trainable.bench import Bench
from trainable.data import DataSet
from trainable.data.assembly import from_arrays
from trainable.recipe.data import Data

COMPILED = ("resnet50", "convnext_tiny", "vit_small_patch16_224")
CLASSES = 10


def main() -> None:
    options = _options()
    device = torch.device(options.device)
    refuse_busy_machine(1)
    where = environment(torch.get_num_threads())
    machine = where["gpu"] if device.type == "cuda" else "a CPU (a trial of the script)"
    parts = {"small": small_step, "sharing": sharing, "compiled": compiled}
    record: dict[str, Any] = {"environment": where}
    pages = []
    for name in options.parts:
        record[name], page = parts[name](options, device)
        pages.append(page)
        head = f"# Training throughput on {machine}\n\n"
        write(options.name, record, head + "\n".join(pages) + "\n" + described(where))


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


def synchronised(epoch: Epoch, device: torch.device) -> Epoch:
    """Return an epoch that ends only when the device is done."""

    def whole() -> float:
        done = epoch()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return done

    return whole


def noise(count: int, *, side: int) -> DataSet:
    """Return so many random images to train on, and one of each class, the fewest, to validate on."""
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (count + CLASSES, side, side, 3), dtype=np.uint8)
    labels = np.arange(count + CLASSES, dtype=np.int64) % CLASSES
    parts = (images[:-CLASSES], labels[:-CLASSES]), (images[-CLASSES:], labels[-CLASSES:])
    spec = Data(path="noise", image_size=side, flips=("horizontal",))
    return from_arrays(*parts, spec=spec, bench=Bench(device_name="cuda"))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure training on a GPU.")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--images", type=int)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--side", type=int, default=224)
    parser.add_argument("--networks", nargs="+", default=COMPILED, help="of timm, for the part `compiled`")
    parser.add_argument("--parts", nargs="+", default=["small", "sharing", "compiled"])
    parser.add_argument("--processes", type=int, default=8, help="on a GPU at once, for the part `small`")
    parser.add_argument("--at-once", nargs="+", type=int, default=[1, 2, 4, 8], help="trials on a GPU")
    parser.add_argument("--trials", type=int, default=16, help="of each search that shares a GPU")
    parser.add_argument("--name", default="throughput-gpu")
    return parser.parse_args()


if __name__ == "__main__":
    main()
