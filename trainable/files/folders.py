"""Makes folders whole or not at all, and folders for the time being, which outlive no kill.

A folder for the time being is locked by the process that uses it. What is not locked any more was left by
one that was killed; the next one that makes such a folder removes it first.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from trainable.errors import UserError
from trainable.files.paths import without_tilde
from trainable.files.regular import sync_folder
from trainable.processes import undisturbed

PREFIX = "tunebook-tmp-"
OLD = ".replaced"  # a folder that is replaced has this name until the new one is in its place
LOCKED_SECONDS = 60.0  # after so long a folder that is in use has been locked for certain

Remove = Callable[[str], None]
rmtree: Remove = partial(shutil.rmtree, ignore_errors=True)


class LockedFolder(NamedTuple):
    """A folder, and the open descriptor that holds its lock; None on a file system without locks."""

    path: Path
    lock: int | None

    def close(self) -> None:
        """Remove the folder, if it is still there, and release its lock."""
        rmtree(str(self.path))
        if self.lock is not None:
            os.close(self.lock)


@contextmanager
def temporary_folder(prefix: str = PREFIX, root: Path | None = None) -> Iterator[Path]:
    """Yield a new folder that this user alone can open, in `root` or where temporary files are; afterwards it
    is removed, unless the block has moved it. Raises OSError where none can be made."""
    with ExitStack() as at_end:
        with undisturbed():
            found = locked_folder(root or Path(tempfile.gettempdir()), prefix)
            at_end.callback(found.close)
        yield found.path


def locked_folder(root: Path, prefix: str, remove: Remove = rmtree) -> LockedFolder:
    """Make a folder of mode 0700 and lock it; those of this prefix that nobody uses any more are removed."""
    _remove_abandoned(root, prefix, remove)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=root))
    lock = None
    with suppress(OSError):  # some network file systems lock no folders
        lock = _locked(str(folder))
    return LockedFolder(folder, lock)


def _remove_abandoned(root: Path, prefix: str, remove: Remove) -> None:
    with os.scandir(root) as entries:
        names = [each.path for each in entries if each.name.startswith(prefix)]
    for name in names:
        with suppress(OSError):  # another process removes it, or it is on a file system without locks
            found = os.lstat(name)
            old = time.time() - found.st_mtime > LOCKED_SECONDS
            if not (stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and old):
                continue
            if (lock := _locked(name)) is not None:
                try:
                    remove(name)
                finally:
                    os.close(lock)


def _locked(folder: str) -> int | None:
    """Return the descriptor that holds the folder's lock; None where another process has it. Raises OSError
    where the file system has no locks."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(opened)
        return None
    except OSError:  # a file system without locks
        os.close(opened)
        raise
    return opened


def check_can_be_made(folder: Path, option: str = "") -> None:
    """Raise UserError for a folder that cannot be made or written to, by the option that names it: hours of
    work must not be lost to a misspelt one."""
    named = f"{option} {folder}".strip()
    there = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    if not there.is_dir():
        raise UserError(f"{named}: cannot be made: {there} is a file")
    if not os.access(there, os.W_OK):
        raise UserError(f"{named}: {there} cannot be written to")


def check_new(out: Path, what: str, replaces: str | None = None) -> None:
    """Raise UserError if the folder exists and is not empty: it is written whole, over nothing.

    An earlier folder of the same kind may be replaced where a person says so: it is known by a file in it,
    whose name is `replaces`.
    """
    if not out.exists() or (out.is_dir() and is_empty(out)):
        check_can_be_made(out)
        return
    if replaces is None:
        raise UserError(f"{out}: exists already; give a new folder for {what}")
    if not (out / replaces).is_file():
        raise UserError(f"{out}: --force replaces an earlier result, and this has no {replaces}; remove it")


def new_file(option: str, path: Path, *, force: bool | None, endings: Sequence[str] = ()) -> Path:
    """Return where the file that an option names is to be written: with a home folder for its first `~`.

    Raises UserError before any work is done for it: where the name has none of the `endings`, where it is a
    folder's or that of a file which exists and which `force` does not replace (None: there is no --force),
    and where no folder for it can be made.
    """
    file = without_tilde(str(path))
    if endings and file.suffix.lower() not in endings:
        expected = " or ".join([", ".join(endings[:-1]), endings[-1]])
        raise UserError(f"{option} {path}: expected a name that ends in {expected}")
    if file.is_dir():
        raise UserError(f"{option} {path}: is a folder; give a file")
    if force is None and os.path.lexists(file):
        raise UserError(f"{option}: {file} exists already; give another name, or remove it")
    if not force:
        refuse_existing(option, file)
    check_can_be_made(file.parent, f"{option} {file}: folder")
    return file


def refuse_existing(option: str, file: Path) -> None:
    """Raise UserError where an option names a file that exists: it may be an earlier result."""
    if os.path.lexists(file):  # a link to nothing is somebody's, too
        raise UserError(f"{option}: {file} exists already; give another name, or --force to overwrite it")


def is_empty(folder: Path) -> bool:
    """Return whether a folder has nothing but what a killed command left when it began to fill it."""
    return all(each.name.startswith(f".{PREFIX}") for each in folder.iterdir())


@contextmanager
def moved_to(out: Path, last: str = "", replaces: str | None = None) -> Iterator[Path]:
    """Yield a temporary folder beside `out` that becomes `out` at the end; after an error it is removed, and
    after a kill by the next one there that this machine makes, whatever its name.

    An empty folder `out` stays, since it may be a disk or where a shell stands: what was made in it is moved
    up at the end, `last` after all else. A folder with the file `replaces` is one that may be replaced.
    """
    old = replaces is not None and (out / replaces).is_file()
    root = out if out.is_dir() and not old else out.parent
    # Locks may not reach the other machines that share a disk: none removes what may be another's
    prefix = f".{PREFIX}{socket.gethostname()}-"
    with ExitStack() as at_end:
        try:
            root.mkdir(parents=True, exist_ok=True)
            made = at_end.enter_context(temporary_folder(prefix, root))
        except OSError as error:
            raise UserError(f"{out}: cannot be written: {error.strerror}") from None
        yield made
        sync_folder(made)
        if old:
            os.replace(out, made / OLD)
            made.chmod(0o755)
            os.replace(made, out)
            shutil.rmtree(out / OLD)
            return
        if out.is_dir() and not is_empty(out):
            raise UserError(f"{out}: another command has filled it meanwhile; give a new folder")
        if root == out:
            for each in sorted(made.iterdir(), key=lambda path: path.name == last):
                os.replace(each, out / each.name)
            sync_folder(out)
        else:
            made.chmod(0o755)  # it was private
            os.replace(made, out)
