"""What work is done with on one machine, in one value that is handed on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Literal

from trainable.errors import UserError

if TYPE_CHECKING:  # torch takes seconds to import
    import torch

DeviceKind = Literal["cpu", "cuda"]
Say = Callable[[str], None]


class DeviceChoice(StrEnum):
    """What a person may choose to train on."""

    AUTO = "auto"
    CPU = "cpu"
    CUDA = "cuda"


def silent(line: str) -> None:
    """Say nothing."""


@dataclass(frozen=True, kw_only=True)
class Bench:
    """The device, threads, downloads and listener of whatever trains, measures or reads images.

    `kind` needs no torch where the device is named.
    """

    device_name: str | None = None  # as torch spells it; None: the first CUDA device, or else the CPU
    gpu_share: float = 1.0  # of the GPU's memory, in (0, 1]: what this work may count as its own
    threads: int | None = None  # of torch within one operation, where no recipe says it; None: torch's own
    may_fetch: bool = False  # whether weights and data sets that a library publishes may be downloaded
    say: Say = silent  # gets each line that a person should read meanwhile

    @property
    def device(self) -> torch.device:
        import torch

        return torch.device(self.device_name or ("cuda" if torch.cuda.is_available() else "cpu"))

    @property
    def kind(self) -> DeviceKind:
        """The kind of the device: what can be computed on it, and how images are held for it."""
        if self.device_name is None:
            return "cuda" if self.device.type == "cuda" else "cpu"
        return "cuda" if self.device_name.startswith("cuda") else "cpu"


HERE = Bench()  # the first CUDA device or else the CPU, nothing is fetched, nobody listens
ON_CPU = Bench(device_name="cpu")


def bench_on(device: DeviceChoice | None, *, may_fetch: bool = False, say: Say = silent) -> Bench:
    """Return the bench with the device that a person has chosen; None chooses as `auto` does.

    Raises UserError for CUDA where torch finds no such device.
    """
    match device:
        case None | DeviceChoice.AUTO:
            return Bench(may_fetch=may_fetch, say=say)
        case DeviceChoice.CPU:
            return Bench(device_name="cpu", may_fetch=may_fetch, say=say)
        case DeviceChoice.CUDA:
            import torch

            if not torch.cuda.is_available():
                raise UserError("--device cuda: torch finds no CUDA device here; leave it out, or give cpu")
            return Bench(device_name="cuda", may_fetch=may_fetch, say=say)
