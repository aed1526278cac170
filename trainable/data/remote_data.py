"""Copies data behind a URI to each machine once, from s3://bucket/flowers, s3://bucket/flowers.npz,
or the single files that a manifest names."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from trainable.errors import DataError, listed
from trainable.files.locks import alone
from trainable.files.paths import SPARE_BYTES, cache_root, usable_path
from trainable.files.store import Store, StoreError, escaped, unescaped

COMING = ".coming-"
OBJECTS = "files"
GETTING_THREADS = 16
ATTEMPTS = 10  # each request is tried so often: there is nothing to train on before all files are here


def data_root() -> Path:
    """Return the folder of the copies."""
    return cache_root() / "data"


def cached(uri: str, expected: str | None = None) -> Path:
    """Return the copy of a folder or a file on this machine;
    makes it if it is missing or the files have changed.

    Processes that need the same copy at once wait for the first. Raises DataError if there is nothing at the
    URI, or if the files do not have the expected digest.
    """
    store = Store(uri, ATTEMPTS)
    digest = digest_of(store)
    if expected not in (None, digest):
        raise DataError(f"data.path: files of {uri} have changed since the search loaded them")
    copy = data_root() / digest / store.name
    with alone(copy.parent):
        if not copy.exists():
            _check_room(str(store), sum(size for size, _ in store.files().values()), copy.parent)
            _copy_into(copy, store.get_all)
    return copy


def cached_objects(uris: Sequence[str], expected: str | None = None) -> tuple[Path, dict[str, str]]:
    """Return a folder of this machine with copies of single files behind URIs, and each one's path in it;
    makes it if it is missing or the files have changed.

    Raises DataError as `cached` does, also for files that are not there.
    """
    stores, found = _by_folder(uris), list[_Object]()
    for store, names in stores.items():
        sizes = store.sizes_and_times(names)
        found += [_Object(store, name, *sizes[name]) for name in names if name in sizes]
    if len(found) < len(set(uris)):
        here = {each.uri for each in found}
        missing = [each for each in uris if each not in here]
        raise DataError(
            f"data.path: {len(missing):,} files of the manifest are not there: {listed(missing, 3)}"
        )
    digest = _digest(found)
    if expected not in (None, digest):
        raise DataError("data.path: files of the manifest have changed since the search loaded them")
    folder = data_root() / digest / OBJECTS
    with alone(folder.parent):
        if not folder.exists():
            _check_room("the manifest's files", sum(each.size for each in found), folder.parent)
            _copy_into(folder, lambda coming: _get_each(found, coming))
    return folder, {each.uri: each.path for each in found}


def objects_digest(uris: Sequence[str]) -> str:
    """Return a digest of every URI with its file's size and time; files that are not there have none."""
    return _digest(
        [
            _Object(store, name, *found)
            for store, names in _by_folder(uris).items()
            for name, found in store.sizes_and_times(names).items()
        ]
    )


class _Object(NamedTuple):
    """One file behind a URI."""

    store: Store
    name: str
    size: int
    time: float

    @property
    def uri(self) -> str:
        return self.store.at(self.name).uri

    @property
    def path(self) -> str:
        """Where a copy lies: by the URI without its scheme and escapes, whose options do not
        count."""
        return unescaped(str(self.store.at(self.name))).partition("://")[2].lstrip("/")


def _by_folder(uris: Sequence[str]) -> dict[Store, list[str]]:
    """Return the names of files, each once, by the folder that they are in. Raises DataError for a path that
    leaves its folder, or that no file here can have."""
    found = defaultdict[Store, list[str]](list)
    for uri in dict.fromkeys(map(escaped, uris)):
        path = unescaped(uri.partition("?")[0])
        if {"..", "."} & set(path.split("/")):
            raise DataError(f"data.path: {uri}: expected a URI without .. and .")
        try:
            store = Store(uri, ATTEMPTS)
            usable_path(path)
            found[store.parent].append(store.name)
        except StoreError as error:
            raise DataError(f"data.path: {error}") from None
        except ValueError as error:
            raise DataError(f"data.path: {uri}: {error}") from None
    return found


def _digest(objects: Sequence[_Object]) -> str:
    followed = sorted((each.uri, each.size, each.time) for each in objects)
    return hashlib.sha256(json.dumps(followed).encode()).hexdigest()[:16]


def _get_each(objects: Sequence[_Object], folder: Path) -> None:
    with ThreadPoolExecutor(GETTING_THREADS) as pool:
        for _ in pool.map(lambda each: each.store.get(each.name, folder / each.path), objects):
            pass


def digest_of(store: Store) -> str:
    """Return a digest of the URI and of every file there, with its size and time.
    Raises DataError if there is none."""
    try:
        files = store.files()
    except StoreError as error:
        raise DataError(f"data.path: {error}") from None
    if not files:
        raise DataError(f"data.path: {store}: nothing is there")
    followed = json.dumps([store.at().uri, sorted(files.items())])
    return hashlib.sha256(followed.encode()).hexdigest()[:16]


def _check_room(what: str, needed: int, folder: Path) -> None:
    """Raise DataError if the disk cannot hold the copy."""
    free = shutil.disk_usage(folder).free
    if needed + SPARE_BYTES > free:
        raise DataError(
            f"data.path: {what}: a copy needs {needed:,} bytes in {folder}, which has {free:,} free, and "
            f"{SPARE_BYTES:,} of them stay free; set XDG_CACHE_HOME to a folder on a larger disk"
        )


def _copy_into(copy: Path, get: Callable[[Path], None]) -> None:
    """Get files under another name, and rename the copy when it is whole; what a killed process has left is
    removed first."""
    for left in copy.parent.glob(f"{COMING}*"):
        shutil.rmtree(left)
    coming = Path(tempfile.mkdtemp(dir=copy.parent, prefix=COMING))
    try:
        get(coming / copy.name)
        (coming / copy.name).rename(copy)
    except StoreError as error:
        raise DataError(f"data.path: {error}") from None
    finally:
        shutil.rmtree(coming)
