"""Keeps a data set's images decoded on a machine's disk, as arrays that all its trials and ranks map.

Each image is decoded once a machine. A folder holds an array for each side in pixels, and a mark for each
block of images that is whole. A block is on the disk before its mark is, so that after a kill, or a loss of
power, only blocks without a mark are decoded again.
The cache keeps within a part of its disk: sets that were used least recently are removed, and none that a
process uses.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from queue import SimpleQueue
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from trainable.array_types import Integers
from trainable.bench import Say
from trainable.data.decode import Broken, Form, decode_into, raise_broken
from trainable.data.measure import Membership, StoredFiles
from trainable.data.source import Pixels, Selection, changed_ns
from trainable.errors import DataError
from trainable.files.locks import alone
from trainable.files.paths import SPARE_BYTES, cache_root, free_bytes
from trainable.recipe.data import Split
from trainable.recipe.yamlfile import write_whole
from trainable.stages import track

VERSION = 1  # raise it when the same files would be decoded to other pixels: it is in the name of the folder

# These parts are stored, in this order. A test part is read once, after everything: from its files.
CACHED: tuple[Split, ...] = ("train", "validation")

# The larger squares of a block take so many bytes: each thread may lose so much at a kill
BLOCK_BYTES = 2**24

# After a day all blocks are compared with their checksums again when they are needed: a disk may lose bits
CHECKED_SECONDS = 86_400

TOLD_SECONDS = 2.0  # a check that takes longer is announced

DISK_SHARE = 2  # the cache may take one part in so many of what it has and what is free on its disk

THREADS = 16  # so many blocks are decoded at once, at most: each takes up to twice BLOCK_BYTES of memory


@dataclass(frozen=True)
class StoredArray:
    """Images uint8 [count, C, side, side] in a file, `block` images under each mark."""

    folder: Path
    count: int
    channels: int
    side: int
    block: int

    def marks(self) -> NDArray[np.uint8]:
        """Return 1 for each block that is whole, else 0."""
        blocks = -(-self.count // self.block)
        try:
            found = np.fromfile(self._marks_file, np.uint8)
            whole = self._pixels_file.stat().st_size == self.count * self.image_bytes
        except OSError:
            return np.zeros(blocks, np.uint8)
        return found if whole and len(found) == blocks else np.zeros(blocks, np.uint8)

    def pixels(self) -> Pixels | None:
        """Return the images, mapped and read-only, or None if some are missing.

        The map keeps a lock on the file for as long as it lives, so that nobody removes what is in use.
        """
        if not self.whole():
            return None
        shape = (self.count, self.channels, self.side, self.side)
        try:
            with self._pixels_file.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH)  # it belongs to the map's duplicate of this descriptor too
                return np.memmap(file, np.uint8, "r", shape=shape)
        except OSError:  # another process has just removed it
            return None

    def whole(self) -> bool:
        """Return whether every block is there, and nothing has written to the images since they were
        checked."""
        try:
            return bool(self.marks().all()) and self._is_as_checked()
        except OSError:
            return False

    def _is_as_checked(self) -> bool:
        known, now = self._checked_file.read_text(encoding="utf-8").split(), self._state().split()
        if os.access(self.folder, os.W_OK):
            return known == now
        return known[:2] == now[:2]  # nobody can check here: a copy, or another mount, has its own inodes

    def is_due(self) -> bool:
        """Return whether the images were last checked so long ago that the disk may have lost some."""
        try:
            return time.time() - self._checked_file.stat().st_mtime > CHECKED_SECONDS
        except OSError:
            return True

    def unmark_damaged(self, say: Say) -> int:
        """Take the mark from each block that has not its checksum any more; return how many there are.

        Other processes wait meanwhile: if it takes long, it says so.
        """
        marks, size = self.marks(), self.block * self.image_bytes
        try:
            sums = np.fromfile(self._sums_file, np.uint32)
        except OSError:
            sums = np.zeros(0, np.uint32)
        if not marks.any():
            return 0
        damaged, began, is_told = 0, time.monotonic(), False
        with self._pixels_file.open("rb") as file:
            for block in np.flatnonzero(marks).tolist():
                if not is_told and time.monotonic() - began > TOLD_SECONDS:
                    is_told = True
                    stored = f"{marks.sum() * size / 1e6:,.0f} MB of decoded images in {self.folder}"
                    say(f"checking {stored}, as once a day")
                file.seek(block * size)
                if block < len(sums) and zlib.crc32(file.read(size)) == sums[block]:
                    continue
                _write(self._marks_file, memoryview(b"\0"), block)
                damaged += 1
        return damaged

    def note_checked(self) -> None:
        """Remember that what is on the disk now is what was written."""
        write_whole(self._checked_file, self._state().encode())

    def prepare(self) -> None:
        """Make the files at their full length, without taking room on the disk yet.

        The marks come first: a file of a wrong length must not get the right one beside its old marks.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self._marks_file.write_bytes(self.marks().tobytes())
        self._sums_file.touch()
        with self._pixels_file.open("ab") as opened:
            opened.truncate(self.count * self.image_bytes)

    def buffer(self) -> Pixels:
        """Return memory for a block's images."""
        return np.empty((min(self.block, self.count), self.channels, self.side, self.side), np.uint8)

    def write(self, block: int, pixels: Pixels) -> None:
        """Write a block's images, those beyond `count` left out, and mark it once it is on the disk."""
        start = block * self.block
        content = pixels[: self.count - start].reshape(-1).data
        _write(self._pixels_file, content, start * self.image_bytes)
        _write(self._sums_file, memoryview(np.array([zlib.crc32(content)], np.uint32).tobytes()), 4 * block)
        _write(self._marks_file, memoryview(b"\1"), block)

    @property
    def image_bytes(self) -> int:
        return self.channels * self.side * self.side

    @property
    def _pixels_file(self) -> Path:
        return self.folder / f"{self.side}.pixels"

    @property
    def _marks_file(self) -> Path:
        return self.folder / f"{self.side}.marks"

    @property
    def _sums_file(self) -> Path:
        return self.folder / f"{self.side}.sums"

    @property
    def _checked_file(self) -> Path:
        return self.folder / f"{self.side}.checked"

    def _state(self) -> str:
        found = self._pixels_file.stat()
        return f"{found.st_size} {found.st_mtime_ns} {changed_ns(found)}\n"


@dataclass(frozen=True)
class ImageCache:
    """Where machines keep a data set's images, and in which form. It is cheap to pickle."""

    key: str  # it names the images' folder: a digest of what is in the files, their parts and their form
    root: str | None  # the folder that a person named, or None for the person's own cache on each machine
    form: Form
    counts: Mapping[Split, int]  # there are so many images in each part of CACHED
    # Training images are kept at this side too, for resized crops, if they have so much detail
    detail_size: int | None

    @property
    def folder(self) -> Path:
        root = Path(self.root) if self.root is not None else cache_root() / "images"
        return root / self.key

    def views(self) -> dict[tuple[Split, int], Pixels]:
        """Return the images of whole arrays, by part and side; none on a machine where nothing is stored."""
        found: dict[tuple[Split, int], Pixels] = {}
        ends = list(accumulate(self.counts.values()))
        if (plain := self._plain.pixels()) is not None:
            for part, start, end in zip(self.counts, [0, *ends], ends, strict=False):
                found[part, self._plain.side] = plain[start:end]
        if self._detail is not None and (detail := self._detail.pixels()) is not None:
            found["train", self._detail.side] = detail
        return found

    def fill(self, parts: Mapping[Split, Selection], *, detail: bool, say: Say) -> None:
        """Decode the images that are missing on this machine, with larger squares too if `detail`.

        Other processes that need them wait. If the disk cannot hold them it says so, and images are read from
        their files. Raises DataError with the broken images, and for want of room in a folder that a person
        named.
        """
        arrays = [self._plain, *([self._detail] if detail and self._detail is not None else [])]
        may_check = os.access(self.folder, os.W_OK)
        if all(array.whole() and not (may_check and array.is_due()) for array in arrays):
            with suppress(OSError):  # a cache that is only read has no order of removal
                (self.folder / ".lock").touch()
            return
        try:
            with alone(
                self.folder, lambda: say("waiting for another process that decodes or checks these images")
            ):
                self._fill(arrays, [parts[name] for name in self.counts], say)
        except (NoRoom, OSError) as error:
            if self.root is not None:
                raise DataError(f"data.cache: {error}") from None
            say(f"data.cache: {error}; images are read from their files")

    def _fill(self, arrays: Sequence[StoredArray], parts: Sequence[Selection], say: Say) -> None:
        unsure = [array for array in arrays if not array.whole() or array.is_due()]
        if damaged := sum(array.unmark_damaged(say) for array in unsure):
            say(f"{damaged:,} blocks of decoded images in {self.folder} are not what was written there")
        missing = {array: np.flatnonzero(array.marks() == 0) for array in arrays}
        blocks = sorted({int(block) for found in missing.values() for block in found})
        if blocks:
            self._decode(missing, blocks, parts, say)
        for array in unsure:
            array.note_checked()

    def _decode(
        self,
        missing: Mapping[StoredArray, Integers],
        blocks: Sequence[int],
        parts: Sequence[Selection],
        say: Say,
    ) -> None:
        needed = sum(len(found) * array.block * array.image_bytes for array, found in missing.items())
        if self.root is None:  # a folder that a person named is the person's to clear
            keep_within(limit_of(self.folder.parent), self.folder, needed, say)
        _check_room(needed, self.folder)
        for array in (each for each, found in missing.items() if len(found)):
            array.prepare()
        say(f"decoding {sum(map(_size, parts)):,} images once, to {self.folder} ({needed / 1e6:,.0f} MB)")
        raise_broken(self._store_all(blocks, missing, parts), sum(map(_size, parts)), "data.path")

    def _store_all(
        self, blocks: Sequence[int], missing: Mapping[StoredArray, Integers], parts: Sequence[Selection]
    ) -> list[Broken]:
        """Decode blocks in threads, a block in each, into the arrays where it is missing."""
        threads = min(THREADS, len(os.sched_getaffinity(0)), len(blocks))
        # Blocks use the same memory again: new pages for each took up to half as long as decoding into them.
        free = SimpleQueue[dict[StoredArray, Pixels]]()
        for _ in range(threads):
            free.put({array: array.buffer() for array in missing})

        def store(block: int) -> list[Broken]:
            buffers = free.get()
            try:
                wanted = {array: buffers[array] for array, found in missing.items() if block in found}
                return _store(block, wanted, parts, self.form)
            finally:
                free.put(buffers)

        pool = ThreadPoolExecutor(threads)
        try:
            # a block is of as many images, but for the last
            found = list(track(pool.map(store, blocks), "block", len(blocks)))
        finally:
            pool.shutdown(cancel_futures=True)  # after an error or Ctrl-C, most blocks would be for nothing
        return [fault for faults in found for fault in faults]

    @property
    def _block(self) -> int:
        side = self.detail_size or self.form.side
        return max(1, BLOCK_BYTES // (self.form.channels * side * side))

    @property
    def _plain(self) -> StoredArray:
        count = sum(self.counts.values())
        return StoredArray(self.folder, count, self.form.channels, self.form.side, self._block)

    @property
    def _detail(self) -> StoredArray | None:
        if self.detail_size is None:
            return None
        return StoredArray(
            self.folder, self.counts["train"], self.form.channels, self.detail_size, self._block
        )


def files_digest(which: Membership, stored: StoredFiles) -> str:
    """Return what tells the files of a data set, in their order, from all others.

    It is what is in them, so that a copy, or another mount, of the same files finds the images that one
    machine has decoded. Where a set is too large to be hashed whole, the files' times count: that of the
    inode's change among them, which nobody sets back, and which is another one for each copy.
    """
    return f"{which.in_order} {stored.sizes if which.whole else stored.times}"


def make_cache(
    spec: str, members: Mapping[Split, Selection], form: Form, detail_size: int | None, digest: str
) -> ImageCache | None:
    """Return the cache that `data.cache` asks for, or None if there is none: arrays need none.

    `digest` is that of the files in their order, and of which is in which part: `files_digest`.
    """
    if spec == "off" or not all(each.source.encoded for each in members.values()):
        return None
    root = None if spec == "auto" else os.path.abspath(os.path.expanduser(spec))
    what = [VERSION, digest, *form[:2], form.resize.model_dump(), form.interpolation, detail_size]
    key = hashlib.sha256(json.dumps(what).encode()).hexdigest()[:16]
    counts = {part: len(members[part].indices) for part in CACHED}
    return ImageCache(key, root, form, counts, detail_size)


def _store(
    block: int, buffers: Mapping[StoredArray, Pixels], parts: Sequence[Selection], form: Form
) -> list[Broken]:
    """Decode a block's images and write them into the arrays. Return the broken ones: then it writes none.

    The arrays count images alike, and the array with larger squares ends after the training part.
    """
    first = next(iter(buffers))
    start = block * first.block
    _check_room(sum(pixels.nbytes for pixels in buffers.values()), first.folder)
    broken, done = list[Broken](), 0
    for selection in _between(parts, start, start + first.block):
        end = done + len(selection.indices)
        targets = [pixels[done:end] for array, pixels in buffers.items() if start + done < array.count]
        broken += decode_into(targets, selection, form) if targets else []
        done = end
    if not broken:
        for array, pixels in buffers.items():
            array.write(block, pixels[:done])
    return broken


def _between(parts: Sequence[Selection], start: int, end: int) -> Iterator[Selection]:
    """Yield the images from `start` to `end`, counted over all parts."""
    for part in parts:
        chosen = part.indices[max(0, start) : max(0, end)]
        if len(chosen):
            yield Selection(part.source, chosen)
        start, end = start - len(part.indices), end - len(part.indices)


def _check_room(needed: int, folder: Path) -> None:
    """Raise NoRoom if so many more bytes would leave less than SPARE_BYTES of the folder's disk free."""
    free = free_bytes(folder)
    if needed + SPARE_BYTES > free:
        raise NoRoom(
            f"decoded images need {needed:,} bytes in {folder}, which has {free:,} free, and "
            f"{SPARE_BYTES:,} of them stay free"
        )


def _write(file: Path, content: memoryview, offset: int) -> None:
    """Write to a file, and return when it is on the disk. Raises NoRoom at a quota or a full disk."""
    handle = os.open(file, os.O_WRONLY)
    try:
        left = content
        while left:
            written = os.pwrite(handle, left, offset)
            left, offset = left[written:], offset + written
        os.fdatasync(handle)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise NoRoom(f"{file} cannot take {len(content):,} more bytes: {error.strerror}") from None
        raise
    finally:
        os.close(handle)


def _size(selection: Selection) -> int:
    return len(selection.indices)


class NoRoom(Exception):
    """The disk cannot hold the images."""


def limit_of(root: Path) -> int:
    """Return how many bytes the decoded images below `root` may take on its disk."""
    return (sum(map(taken, sets_of(root))) + free_bytes(root)) // DISK_SHARE


def sets_of(root: Path) -> list[Path]:
    """Return the folders of the decoded sets below `root`, those used least recently first."""
    found = {file.parent for file in root.glob("*/*.pixels") if (file.parent / ".lock").is_file()}
    return sorted(found, key=lambda folder: (folder / ".lock").stat().st_mtime_ns)


def taken(folder: Path) -> int:
    """Return how many bytes of the disk a set takes; what is not yet written takes none."""
    return sum(file.stat().st_blocks * 512 for file in folder.iterdir())


def keep_within(limit: int, folder: Path, needed: int, say: Say) -> None:
    """Remove other sets beside `folder` until it may take `needed` more bytes, and say which.

    Raises NoRoom, and removes nothing, if the limit is too low even without all sets that no process uses.
    """
    with alone(folder.parent), ExitStack() as held:
        sets = sets_of(folder.parent)
        excess, chosen = sum(map(taken, sets)) + needed - limit, list[Path]()
        for each in sets:
            if excess > 0 and each != folder and _is_free(each, held):
                chosen.append(each)
                excess -= taken(each)
        if excess > 0:
            raise NoRoom(
                f"decoded images need {needed:,} bytes in {folder}, {excess:,} more than remain of the "
                f"{limit:,} that all of them may take: one part in {DISK_SHARE} of what they take and "
                "what is free"
            )
        for each in chosen:
            say(f"removing {taken(each):,} bytes of decoded images, not used for the longest time: {each}")
            _remove(each)


def _is_free(folder: Path, held: ExitStack) -> bool:
    """Return whether no process fills or reads a set, and keep others from it while `held` is open."""
    files = (folder / ".lock", *_pixels(folder))
    return all(_locked(held.enter_context(file.open("r+b"))) for file in files)  # NFS locks only such files


def _locked(file: BinaryIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _remove(folder: Path) -> None:
    """Remove the marks first, without which nothing is taken for whole, and leave the lock: others may be
    waiting for it."""
    others = (file for ending in ("marks", "checked", "sums") for file in folder.glob(f"*.{ending}"))
    for file in (*others, *_pixels(folder)):
        file.unlink()


def _pixels(folder: Path) -> list[Path]:
    return list(folder.glob("*.pixels"))
