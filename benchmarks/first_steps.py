"""What the first step of a network costs in a new process, and what that earns in later ones.

    python benchmarks/first_steps.py [NAME ...] [--side 128] [--batch 128] [--processes 3] [--limit 120]

For each network of timm: in both memory layouts, with cuDNN's search for kernels (`cudnn.benchmark`) off and
on, and compiled, as a whole and by blocks. Each case has processes of its own, since one process keeps what
it has prepared. A step is forward, backward and update by `Run.train_on`, as in a trial. `--device cpu` tries
the script out: a CPU has no search for kernels.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import time
from collections.abc import Callable
from itertools import product
from typing import Any

import torch

from gpu import noise, synchronised
from report import described, environment, in_own_process, refuse_busy_machine, write
from trainable.bench import Bench
from trainable.recipe import Recipe
from trainable.run import make_run
from trainable.training.precision import kernel_search

NETWORKS = ("resnet18", "tf_efficientnet_lite0", "convnext_tiny")
CASES = (
    "channels_last, search off",
    "channels_last, search on",
    "contiguous, search off",
    "contiguous, search on",
    "channels_last, compiled",
    "channels_last, compiled by blocks",
)
STEPS = 30  # the rate is that of so many, after two

OVER = "over the limit"

Found = dict[str, float]


def main() -> None:
    options = _options()
    if options.case:
        print(json.dumps(measured(options.networks[0], options.case, options)))
        return
    refuse_busy_machine(1)
    where = environment(torch.get_num_threads())
    machine = where["gpu"] if options.device == "cuda" else "a CPU (a trial of the script)"
    found: dict[str, list[Found]] = {}
    for name, case, _ in product(options.networks, CASES, range(options.processes)):
        one = in_process(name, case, options)
        found.setdefault(f"{name}, {case}", []).extend([one] if one else [])
        head = f"# First steps on {machine}\n\n{options.side} px, batch {options.batch}, bf16 on a GPU.\n\n"
        write(
            options.name, {"environment": where, "cases": found}, head + page(found) + "\n" + described(where)
        )


def in_process(name: str, case: str, options: argparse.Namespace, code: str | None = None) -> Found | None:
    """Measure a case in a process of its own; None where it is not done within the limit. Compiled code is
    kept in the folder `code`, or else where a person has it."""
    kept = {} if code is None else {"TORCHINDUCTOR_CACHE_DIR": code}
    flags = [f"--side={options.side}", f"--batch={options.batch}", f"--device={options.device}"]
    try:
        found: Found = in_own_process(__file__, [name, "--case", case, *flags], kept, options.limit)
    except subprocess.TimeoutExpired:
        return None
    return found


def measured(name: str, case: str, options: argparse.Namespace) -> Found:
    """Return seconds of the first step and of the second, and then images a second."""
    device = torch.device(options.device)
    data = noise(2 * options.batch, side=options.side)
    recipe = Recipe().with_values(
        {
            "model.kind": "timm",
            "model.name": name,
            "loop.batch_size": options.batch,
            "loop.compile": "blocks" if case.endswith("by blocks") else case.endswith("compiled"),
            "precision.kind": "bf16" if device.type == "cuda" else "fp32",
            "precision.channels_last": case.startswith("channels_last"),
        }
    )
    run = make_run(recipe, data=data, bench=Bench(device_name=str(device)))
    with run.probing(), kernel_search(case.endswith("on")):
        window = next(run.windows())

        def seconds(steps: int) -> float:
            def some() -> float:
                for _ in range(steps):
                    run.train_on(window)
                return float(steps)

            return _seconds(synchronised(some, device))

        return {
            "first_seconds": seconds(1),
            "second_seconds": seconds(1),
            "images_per_second": STEPS * options.batch / seconds(STEPS),
        }


def _seconds(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def page(found: dict[str, list[Found]]) -> str:
    """Return the table of all cases, with medians and ranges over processes."""
    rows = [
        f"| {case} | {spread(each, 'first_seconds', '.1f')} | {spread(each, 'second_seconds', '.2f')} | "
        f"{spread(each, 'images_per_second', ',.0f')} | {len(each)} |"
        for case, each in found.items()
    ]
    head = "| case | first step, s | second, s | then images/s | processes in time |\n|-|-|-|-|-|\n"
    return head + "\n".join(rows) + "\n"


def spread(found: list[Found], key: str, form: str) -> str:
    """Return the median and the range over the processes that were done in time."""
    values = sorted(each[key] for each in found)
    if not values:
        return OVER
    return f"{statistics.median(values):{form}} ({values[0]:{form}} to {values[-1]:{form}})"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("networks", nargs="*", default=NETWORKS, metavar="NAME")
    parser.add_argument("--side", type=int, default=128)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for one process")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--name", default="first-steps")
    parser.add_argument("--case", choices=CASES, help="measure this case alone, in this process")
    return parser.parse_args()


if __name__ == "__main__":
    main()
