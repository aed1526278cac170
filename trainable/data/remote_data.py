"""Copies data behind a URI to each machine once, from s3://bucket/flowers, or s3://bucket/flowers.npz."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from pathlib import Path

from trainable.errors import DataError
from trainable.files.alone import alone
from trainable.files.cache import SPARE_BYTES, cache_root
from trainable.files.store import Store, StoreError

COMING = ".coming-"
ATTEMPTS = 10
"""Each request is tried so often: there is nothing to train on before all files are here."""


def data_root() -> Path:
    """Returns the folder of the copies."""
    return cache_root() / "data"


def cached(uri: str, expected: str | None = None) -> Path:
    """Returns the copy of a folder or a file on this machine;
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
            _check_room(store, copy.parent)
            _copy(store, copy)
    return copy


def digest_of(store: Store) -> str:
    """Returns a digest of the URI and of every file there, with its size and time.
    Raises DataError if there is none."""
    try:
        files = store.files()
    except StoreError as error:
        raise DataError(f"data.path: {error}") from None
    if not files:
        raise DataError(f"data.path: {store}: nothing is there")
    followed = json.dumps([store.at().uri, sorted(files.items())])
    return hashlib.sha256(followed.encode()).hexdigest()[:16]


def _check_room(store: Store, folder: Path) -> None:
    """Raises DataError if the disk cannot hold the copy."""
    needed = sum(size for size, _ in store.files().values())
    free = shutil.disk_usage(folder).free
    if needed + SPARE_BYTES > free:
        raise DataError(
            f"data.path: {store}: a copy needs {needed:,} bytes in {folder}, which has {free:,} free, and "
            f"{SPARE_BYTES:,} of them stay free; set XDG_CACHE_HOME to a folder on a larger disk"
        )


def _copy(store: Store, copy: Path) -> None:
    """Copies a whole store, and renames the copy when it is whole;
    what a killed process has left is removed first."""
    for left in copy.parent.glob(f"{COMING}*"):
        shutil.rmtree(left)
    coming = Path(tempfile.mkdtemp(dir=copy.parent, prefix=COMING))
    try:
        store.get_all(coming / copy.name)
        (coming / copy.name).rename(copy)
    except StoreError as error:
        raise DataError(f"data.path: {error}") from None
    finally:
        shutil.rmtree(coming)
