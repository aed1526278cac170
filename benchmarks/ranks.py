"""Times how ranks sum their gradients: torch's DDP, as a run uses it, against one flat sum after backward.

Ranks are processes on this machine, joined by gloo. After each sum, a delay stands for the time that its
bytes would take on a slower network: sleeping takes no processor time, so the backward pass can go on
meanwhile, as on a GPU. For each arm the page gives the bytes that a rank exchanges in a step, the seconds of
all exchanges, how many of them the step waited for (exposed: its seconds beyond those of a step without any
exchange), and the rest, which passed during backward (overlapped).

    python benchmarks/ranks.py [--worlds 2 4] [--rounds 9] [--megabytes-a-second 400]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import torchvision
from torch import Tensor, distributed, nn
from torch.futures import Future
from torch.multiprocessing.spawn import spawn
from torch.nn.functional import cross_entropy

import report
from trainable.ranks import Ranks, of_process_group
from trainable.training.gradients import Reduction

BATCH, SIDE, CLASSES = 32, 64, 10
Measured = dict[str, list[tuple[float, float, float]]]
"""Of each arm and round: the seconds of a step, the seconds of its exchanges, and their bytes."""
STEPS = 3
"""So many steps of an arm are timed together in a round."""


@dataclass
class Network:
    """Sums tensors over ranks, then waits as long as their bytes would take on a network."""

    ranks: Ranks
    bytes_a_second: float
    exchanged_bytes: int = 0
    exchange_seconds: float = 0.0
    line: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))
    """One sum goes after the other, as on a network."""

    def reduce(self, tensor: Tensor) -> Tensor:
        began = time.perf_counter()
        self.ranks.reduce(tensor)
        time.sleep(tensor.nbytes / self.bytes_a_second)
        self.exchanged_bytes += tensor.nbytes
        self.exchange_seconds += time.perf_counter() - began
        return tensor

    def start_reduce(self, tensor: Tensor) -> Future[Tensor]:
        future: Future[Tensor] = Future()
        self.line.submit(lambda: future.set_result(self.reduce(tensor)))
        return future


class Flat:
    """Sums all gradients at once, after the backward pass."""

    def __init__(self, model: nn.Module, ranks: Ranks) -> None:
        self.model, self._ranks = model, ranks

    def begin(self) -> None:
        """Needs no preparation."""

    def part(self, *, last: bool) -> nullcontext[None]:
        return nullcontext()

    def agree(self, out_of_memory: bool) -> None:
        self._ranks.any_of([out_of_memory])
        self._ranks.sum_in_place([each.grad for each in self.model.parameters() if each.grad is not None])


class Alone(Flat):
    """Exchanges nothing."""

    def agree(self, out_of_memory: bool) -> None:
        pass


def arms(model: nn.Module, ranks: Ranks) -> dict[str, Any]:
    return {
        "no exchange": Alone(model, ranks),
        "flat": Flat(model, ranks),
        "DDP": Reduction(model, ranks),
        "DDP, bf16": Reduction(model, ranks, in_bf16=True),
    }


def stepping(reduction: Any, model: nn.Module) -> Callable[[], float]:
    """Return a function that takes STEPS steps, without an optimizer, which every arm needs alike."""
    images = torch.rand(BATCH, 3, SIDE, SIDE).to(memory_format=torch.channels_last)
    labels = torch.randint(0, CLASSES, (BATCH,))

    def steps() -> float:
        for _ in range(STEPS):
            model.zero_grad(set_to_none=True)
            reduction.begin()
            with reduction.part(last=True):
                cross_entropy(reduction.model(images), labels).backward()
            reduction.agree(False)
        return float(STEPS)

    return steps


def work(rank: int, world: int, rounds: int, bytes_a_second: float, folder: str) -> None:
    """Time all arms as one of the ranks; rank 0 writes what it measured."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world)
    network = Network(of_process_group(), bytes_a_second)
    ranks = replace(network.ranks, reduce=network.reduce, start_reduce=network.start_reduce)
    torch.manual_seed(0)
    model = torchvision.models.resnet18(num_classes=CLASSES).to(memory_format=torch.channels_last)
    measured: Measured = {}
    for name, reduction in arms(model, ranks).items():
        steps = stepping(reduction, model)
        steps()
        measured[name] = [_round(steps, network) for _ in range(rounds)]
        if isinstance(reduction, Reduction):
            reduction.close()
    if rank == 0:
        torch.save(measured, Path(folder) / "measured.pt")
    distributed.barrier()
    distributed.destroy_process_group()


def _round(steps: Callable[[], float], network: Network) -> tuple[float, float, float]:
    """Return the seconds of a step, the seconds of its exchanges and their bytes. Ranks begin together."""
    distributed.barrier()
    network.exchanged_bytes, network.exchange_seconds = 0, 0.0
    seconds = report.timed(steps).wall_seconds
    return seconds / STEPS, network.exchange_seconds / STEPS, network.exchanged_bytes / STEPS


def measured_in(world: int, rounds: int, bytes_a_second: float) -> Measured:
    with tempfile.TemporaryDirectory() as folder:
        spawn(work, (world, rounds, bytes_a_second, folder), nprocs=world)
        found: Measured = torch.load(Path(folder) / "measured.pt")
        return found


def rows(measured: Measured) -> list[dict[str, Any]]:
    """Return each arm's medians, and the least and most of its steps."""
    alone = statistics.median(seconds for seconds, _, _ in measured["no exchange"])
    found = []
    for name, rounds in measured.items():
        seconds, exchanges, sizes = (statistics.median(column) for column in zip(*rounds, strict=True))
        exposed = max(0.0, seconds - alone)
        found.append(
            {
                "arm": name,
                "bytes": round(sizes),
                "step_seconds": seconds,
                "least_step_seconds": min(each for each, _, _ in rounds),
                "most_step_seconds": max(each for each, _, _ in rounds),
                "exchange_seconds": exchanges,
                "exposed_seconds": exposed,
                "overlapped_seconds": max(0.0, exchanges - exposed),
            }
        )
    return found


def table(found: Sequence[dict[str, Any]]) -> str:
    lines = [
        "| arm | MB a step | step, s (least to most) | exchanges, s | exposed, s | overlapped, s |",
        "|-|-|-|-|-|-|",
    ]
    lines += [
        f"| {row['arm']} | {row['bytes'] / 1e6:.1f} "
        f"| {row['step_seconds']:.3f} ({row['least_step_seconds']:.3f} to {row['most_step_seconds']:.3f}) "
        f"| {row['exchange_seconds']:.3f} | {row['exposed_seconds']:.3f} | {row['overlapped_seconds']:.3f} |"
        for row in found
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--worlds", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--megabytes-a-second", type=float, default=400.0)
    options = parser.parse_args()
    report.refuse_busy_machine(1)
    where = report.environment(threads=1)
    results = {
        world: rows(measured_in(world, options.rounds, options.megabytes_a_second * 1e6))
        for world in options.worlds
    }
    pages = [f"## {world} ranks\n\n{table(found)}\n" for world, found in results.items()]
    about = (
        f"ResNet-18, {SIDE} x {SIDE}, {BATCH} images a rank, one thread a rank; {STEPS} steps a round, "
        f"n = {options.rounds} rounds, medians. Ranks are processes of one machine; after each sum a "
        f"delay of its bytes at {options.megabytes_a_second:g} MB/s stands for a network. Exposed: a step's "
        "seconds beyond those of a step without exchange. Overlapped: the rest of the exchanges' seconds."
    )
    page = "\n".join(["# How ranks sum their gradients", "", about, "", *pages, report.described(where)])
    report.write("ranks", {"environment": where, "results": results, "options": vars(options)}, page)


if __name__ == "__main__":
    main()
