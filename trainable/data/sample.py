"""Compares some images of a data set as two machines see them, and measures how fast one of them reads."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from trainable.data.dataset import DataSet
from trainable.data.measure import sample
from trainable.data.remote_data import data_root
from trainable.data.source import FileSource, Selection, Source
from trainable.errors import DataError, first_line
from trainable.files.regular import why
from trainable.files.store import Store, is_uri

OF_EACH_PART = 16
READ_SECONDS = 2.0  # no more images are decoded then: a machine that is slow is known by few


@dataclass(frozen=True)
class ReadThere:
    """What one machine read of the images."""

    problem: str = ""  # what keeps it from training on them, in words
    images_per_second: float | None = None  # read and decoded by one thread; None where it read none


@dataclass(frozen=True)
class DataSample:
    """Some images of each part of a data set, with digests of what is stored of them on the machine that took
    the sample. It is cheap to send to others."""

    path: str  # `data.path`
    images: tuple[Selection, ...]
    digests: tuple[bytes, ...]  # of the images, one part after the other
    copy: Path | None = None  # of the files, on the machine that took it, where they are behind a URI
    stored: tuple[str, str] | None = None  # then one of the stored files: a folder's URI and its name there

    @classmethod
    def of(cls, data: DataSet) -> DataSample | None:
        """Return a sample of a data set; None where its images travel with the trials.

        Images behind a URI are copied to a machine by its first trial, so nothing is compared before. Raises
        DataError for an image that cannot be read here.
        """
        if data.info.in_memory or any(each.source.travels for each in data.selections.values()):
            return None
        images = tuple(_some(selection) for selection in data.selections.values())
        if data.copy is not None:
            return cls(data.info.path, (), (), data.copy, _stored(data, images))
        digests = []
        for source, index in _each(images):
            try:
                digests.append(source.digest(index))
            except Exception as error:  # whatever a decoder of masks raises
                raise DataError(f"{data.info.path}: {source.name(index)}: {why(error)}") from error
        return cls(data.info.path, images, tuple(digests))

    def read(self) -> ReadThere:
        """Read the images on this machine, and compare them."""
        if self.copy is not None:
            return ReadThere("" if self.copy.exists() else self._problem_of_store(self.copy))
        differ, reason, began, decoded = [], "", time.monotonic(), 0
        for (source, index), expected in zip(_each(self.images), self.digests, strict=True):
            try:
                if source.digest(index) != expected:
                    differ.append(source.name(index))
                elif time.monotonic() - began < READ_SECONDS:
                    decoded += _is_decoded(source, index)
            except Exception as error:  # whatever a decoder raises for a file that is another one there
                differ.append(source.name(index))
                reason = reason or why(error)
        seconds = time.monotonic() - began
        rate = decoded / seconds if decoded and not differ else None
        if not differ:
            return ReadThere(images_per_second=rate)
        wrong = f"cannot be read ({reason})" if reason else "are other ones there"
        return ReadThere(
            f"{len(differ)} of {len(self.digests)} images of data.path {self.path} {wrong}, first "
            f"{differ[0]}: give it the same images at that path, in a shared folder or a copy"
        )

    def _problem_of_store(self, copy: Path) -> str:
        if data_root() != copy.parents[1]:
            return (
                f"it keeps copies of {self.path} in {data_root()} and the search in {copy.parents[1]}: set "
                "XDG_CACHE_HOME to the same folder on all machines"
            )
        if self.stored is None:
            return ""
        folder, name = self.stored
        try:
            found = Store(folder).sizes_and_times([name])
        except Exception as error:  # whatever a store's client raises, for want of a key or a route
            return f"it cannot read {self.path}: {first_line(error)}: give it the same keys and network"
        return "" if found else f"{self.path}: {name} is not there as this machine sees it"


def _is_decoded(source: Source, index: int) -> bool:
    """Decode an image; one that is broken is so on all machines, and named elsewhere."""
    try:
        source.open(index).load()
    except Exception:
        return False
    return True


def _some(selection: Selection) -> Selection:
    """Return some images of a selection; of a folder of files without the other files' paths."""
    chosen = sample(selection, OF_EACH_PART)
    source, indices = chosen
    if not isinstance(source, FileSource):
        return chosen
    paths = [source.paths[index] for index in indices.tolist()]
    return Selection(FileSource(source.root, paths, source.labels[indices]), np.arange(len(indices)))


def _each(images: Iterable[Selection]) -> Iterable[tuple[Source, int]]:
    return chain.from_iterable(((each.source, index) for index in each.indices.tolist()) for each in images)


def _stored(data: DataSet, images: Iterable[Selection]) -> tuple[str, str] | None:
    """Return the place of one stored file: enough to know that a machine reaches the store with its keys."""
    if data.objects:
        folder, _, name = data.objects[0].rpartition("/")
        return folder, name
    for source, indices in images:
        if isinstance(source, FileSource) and is_uri(data.info.path) and data.copy is not None:
            file = os.path.join(source.root, source.paths[int(indices[0])])
            return data.info.path, os.path.relpath(file, data.copy)
    return None
