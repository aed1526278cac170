"""Where a rank of a trial trains: on which machine, on which GPUs, in which process."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterable
from contextlib import suppress
from functools import cache

from trainable.recipe.base import Spec

DRIVER_SECONDS = 2.0  # NVIDIA's driver names a GPU within milliseconds, where it is loaded and well


class Gpu(Spec):
    """One GPU, or a MIG slice of one."""

    number: str  # Ray counts from 0, or has the names in CUDA_VISIBLE_DEVICES, as those of MIG slices
    name: str = ""  # as NVIDIA calls it, a slice with its profile; empty where the driver does not say

    def __str__(self) -> str:
        return f"GPU {self.number}"

    @property
    def in_full(self) -> str:
        """The GPU with its name, where that is known."""
        return f"{self} ({self.name})" if self.name else str(self)


class Place(Spec):
    """Where one rank trains."""

    machine: str  # the host's name
    address: str  # of the machine, for others
    node: str  # Ray's id of the machine; one that starts again has another one
    process: int
    gpus: tuple[Gpu, ...] = ()

    def __str__(self) -> str:
        """The machine and the GPUs, in words."""
        return ", ".join([self.on, *map(str, self.gpus)])

    @property
    def in_full(self) -> str:
        """The machine, the GPUs with their names, and the process, in words."""
        return ", ".join([self.on, *(each.in_full for each in self.gpus), f"process {self.process}"])

    @property
    def on(self) -> str:
        """The machine in words: its name and its address."""
        return on_machine(self.machine, self.address)

    @property
    def kind(self) -> str:
        """What kind of device trains there: the GPUs' names, or that there is none."""
        return " + ".join(each.name or "a GPU" for each in self.gpus) or "no GPU"


def on_machine(name: str, address: str) -> str:
    """Return a machine in words: its name and its address."""
    return name if name == address else f"{name} ({address})"


def this_process(node: str, address: str, numbers: Iterable[str]) -> Place:
    """Return the place of this process, to which Ray has given the GPUs of these numbers."""
    return Place(
        machine=socket.gethostname(),
        address=address,
        node=node,
        process=os.getpid(),
        gpus=tuple(Gpu(number=each, name=_name_of_gpu(each)) for each in numbers),
    )


def in_words(ranks: Iterable[Place]) -> str:
    """Return where the ranks of a trial train, each place once; nothing where that is not known."""
    return " and ".join(dict.fromkeys(map(str, ranks)))


def in_full(ranks: Iterable[Place]) -> str:
    """Return where each rank of a trial trains, with the GPUs' names and its process."""
    return "; ".join(each.in_full for each in ranks)


@cache
def _name_of_gpu(number: str) -> str:
    """Return a GPU's name; nothing where the driver does not answer soon: the search waits for it."""
    found: list[str] = []
    asks = threading.Thread(target=_ask_driver, args=(number, found), daemon=True)
    asks.start()
    asks.join(DRIVER_SECONDS)
    return "".join(found)


def _ask_driver(number: str, found: list[str]) -> None:
    import pynvml

    ask = pynvml.nvmlDeviceGetHandleByIndex if number.isdigit() else pynvml.nvmlDeviceGetHandleByUUID
    with suppress(pynvml.NVMLError):  # no driver, or one that does not know such a GPU
        pynvml.nvmlInit()
        try:
            found.append(str(pynvml.nvmlDeviceGetName(ask(int(number) if number.isdigit() else number))))
        finally:
            pynvml.nvmlShutdown()
