"""Reads a data set's images as a run's network takes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, final

import torch
from torch import Tensor, nn

from trainable.array_types import Integers
from trainable.data.batch import PORTION_BATCHES, Batch
from trainable.recipe.data import Split


class BatchSource(Protocol):
    """What a run asks of a loader of `trainable.data.loading`."""

    portion_images: int  # so many images are augmented at once, or the batch that has more

    def train(self, batches: Sequence[Tensor], epoch: int) -> Iterator[Batch]: ...

    def evaluate(
        self, name: Split, chosen: Integers | None = None, batch: int | None = None
    ) -> Iterator[Batch]: ...

    def unchanged(self, chosen: Integers, batch: int) -> Iterator[Batch]: ...

    def close(self) -> None: ...


@final
class Images:
    """The batches of a loader, on the device of a run, in its network's number format and memory layout.

    `on_batch` is called before each. `decoded` says that images are decoded already, in memory or on this
    machine's disk.
    """

    def __init__(
        self,
        loader: BatchSource,
        model: nn.Module,
        *,
        device: torch.device,
        layout: torch.memory_format,
        decoded: bool,
        on_batch: Callable[[], None],
    ) -> None:
        self.loader, self.decoded, self.on_batch = loader, decoded, on_batch
        self._model, self._device, self._layout = model, device, layout

    def train(self, batches: Sequence[Tensor], epoch: int) -> Iterator[Batch]:
        """Yield augmented training batches: images at some positions, as an epoch shows them."""
        return self.taken(self.loader.train(batches, epoch))

    def evaluate(
        self, part: Split, positions: Integers | None = None, size: int | None = None
    ) -> Iterator[Batch]:
        """Yield a part's images as they are scored: all of them, or those at some positions, in order."""
        return self.taken(self.loader.evaluate(part, positions, size))

    def unchanged(self, positions: Integers, size: int) -> Iterator[Batch]:
        """Yield training images at some positions, not augmented, in batches of a training step's size."""
        return self.taken(self.loader.unchanged(positions, size))

    def batches_of_a_portion(self, size: int) -> int:
        """Return how many batches of a size share what it takes to augment a portion of images."""
        return min(PORTION_BATCHES, self.loader.portion_images // size)

    def close(self) -> None:
        """Free memory and processes. Nothing can be read afterwards."""
        self.loader.close()

    def taken(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """Yield batches as the network takes them."""
        dtype = next((each.dtype for each in self._model.parameters()), torch.float32)
        for images, labels in batches:
            self.on_batch()
            yield images.to(self._device, dtype, memory_format=self._layout), labels
