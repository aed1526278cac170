"""Reads a data set's images as a run's network takes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import final

import torch
from torch import Tensor, nn

from trainable.data import Split
from trainable.data.loading import PORTION_BATCHES, Batch, Loader
from trainable.data.source import Integers


@final
class Images:
    """The batches of a loader, on the device of a run, in its network's number format and memory layout.

    `on_batch` is called before each.
    """

    def __init__(
        self,
        loader: Loader,
        model: nn.Module,
        *,
        device: torch.device,
        layout: torch.memory_format,
        on_batch: Callable[[], None],
    ) -> None:
        self.loader, self.on_batch = loader, on_batch
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
