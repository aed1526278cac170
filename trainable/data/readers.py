"""Reads batches of images from their files, in processes that are kept from one run to the next."""

from __future__ import annotations

import multiprocessing
import sys
import types
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from multiprocessing.context import BaseContext
from typing import NamedTuple, final

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from trainable.array_types import Integers
from trainable.augmentation.augment import make_augment
from trainable.augmentation.draws import Change, Draws
from trainable.data.decode import REPAIR, Form, squares
from trainable.data.source import Flip, Selection, Source
from trainable.errors import BrokenImages
from trainable.processes import end_with_parent
from trainable.recipe.augmentations import Augmentation
from trainable.recipe.data import Split

# The server of forks imports these once, and not each of its forks. The last one is for policies.
PRELOADED = [__name__, "trainable.data.jpeg_decoder", "torchvision.transforms.v2.functional"]


class Reading(NamedTuple):
    """How many processes read images, how many batches each is ahead, and whether memory is pinned."""

    workers: int
    prefetch: int
    pinned: bool


class FileBatch(NamedTuple):
    """Images to read together: their part, their positions in it [B], and the side of their squares.

    Positions beyond a part are further showings of its images: `loading` says how.
    """

    part: Split
    positions: Integers
    side: int
    augmented: Augmented | None = None  # None for evaluation


class Augmented(NamedTuple):
    """How a training batch is augmented, except for masking."""

    spec: Augmentation
    flips: tuple[Flip, ...]
    seed: int
    epoch: int


class FileImages(Dataset[Tensor]):
    """What a reading process makes of its files: batches, uint8 [B, C, side, side], augmented.

    The whole batch is augmented at once, by the same changes as images in memory.
    """

    def __init__(self, selections: Mapping[Split, Selection], form: Form) -> None:
        self.selections = dict(selections)
        self.form = form

    def are(self, others: FileImages) -> bool:
        """Return whether others are the same images: the same objects, as comparing paths takes long."""
        known, theirs = self.selections, others.selections
        return (
            type(self) is type(others)
            and self.form == others.form
            and known.keys() == theirs.keys()
            and all(
                known[name].source is each.source and known[name].indices is each.indices
                for name, each in theirs.items()
            )
        )

    def __getitem__(self, batch: FileBatch) -> Tensor:
        images = torch.from_numpy(self._squares(batch))
        if (asked := batch.augmented) is not None:
            draws = Draws(asked.seed, asked.epoch, batch.positions)
            for change in _changes(asked.spec, asked.flips, self.form.side):
                images = change(images, draws)
        return images

    def _squares(self, batch: FileBatch) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
        source, indices = self.selections[batch.part]
        chosen = indices[batch.positions % len(indices)].tolist()
        pixels = np.empty((len(chosen), self.form.channels, batch.side, batch.side), np.uint8)
        for row, index in enumerate(chosen):
            with decoding(source, index), source.open(index) as image:
                (pixels[row],) = squares(image, self.form, [batch.side])
        return pixels


@contextmanager
def decoding(source: Source, index: int) -> Iterator[None]:
    """Turn whatever a decoder raises, as Pillow's plug-ins raise nearly anything, into a BrokenImages
    that names the image."""
    try:
        yield
    except Exception as error:
        raise BrokenImages(f"{source.name(index)} cannot be decoded: {error}; {REPAIR}") from error


@final
class Readers:
    """The `workers` processes that read batches; this process reads them if there are none.

    The processes come from a server without threads, CUDA or NCCL (forkserver), which has imported what they
    need: a fork of a process that has used CUDA may dead-lock, and keeps the device open. They start with the
    first batch, and end with this object or with this process.
    """

    def __init__(self, images: FileImages, how: Reading) -> None:
        self.images, self.how = images, how
        # That reading has raised an error: a process may have died, so no other run uses these
        self.failed = False
        self._batches: list[FileBatch] = []  # the processes read these batches, those of the current turn
        self._turn = 0
        parallel = how.workers > 0
        self._loader: DataLoader[Tensor] = DataLoader(
            images,
            sampler=self._batches,
            batch_size=None,  # a process reads a whole batch at once
            num_workers=how.workers,
            persistent_workers=parallel,
            prefetch_factor=how.prefetch if parallel else None,
            pin_memory=how.pinned,
            multiprocessing_context=_server(type(images).__module__) if parallel else None,
            worker_init_fn=_end_with_the_run if parallel else None,
            generator=torch.Generator(),  # else it would draw from the global one, and a resumed run differ
        )

    def read(self, batches: list[FileBatch]) -> Iterator[Tensor]:
        """Yield each batch's images. Read all batches of one call before the next call."""
        self._turn = turn = self._turn + 1
        self._batches[:] = batches
        try:
            with _without_main():
                read = iter(self._loader)
            for images in read:
                if turn != self._turn:  # the processes serve one turn at a time: these images are another's
                    raise RuntimeError("new batches were requested before the last ones were all read")
                yield images
        except Exception:
            self.failed = True
            raise


@lru_cache(maxsize=8)
def _changes(spec: Augmentation, flips: tuple[Flip, ...], side: int) -> tuple[Change, ...]:
    return make_augment(spec, flips, side)


def _end_with_the_run(_: int) -> None:
    """End this reading process with the one that it reads for. torch's own watch is for the parent, which is
    the server of forks here; and that lives as long as this."""
    end_with_parent()


def _server(reading: str) -> BaseContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([reading, *PRELOADED])
    return context


@contextmanager
def _without_main() -> Iterator[None]:
    """Hide the main module, which a new process would import: Ray's worker, or a person's script that trains
    without asking for `__name__ == "__main__"`. The readers need nothing of it."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
