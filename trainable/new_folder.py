"""Writes new folders whole or not at all."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from trainable.errors import UserError
from trainable.files.temporary import PREFIX, temporary_folder
from trainable.recipe.yamlfile import sync_folder


def check_new(out: Path, what: str) -> None:
    """Raises UserError if the folder exists and is not empty: it is written whole, over nothing."""
    if out.exists() and not (out.is_dir() and is_empty(out)):
        raise UserError(f"{out}: exists already; give a new folder for {what}")


def is_empty(folder: Path) -> bool:
    """Return whether a folder has nothing but what a killed command left when it began to fill it."""
    return all(each.name.startswith(f".{PREFIX}") for each in folder.iterdir())


@contextmanager
def moved_to(out: Path, last: str = "") -> Iterator[Path]:
    """Yield a temporary folder beside `out` that becomes `out` at the end; after an error it is removed, and
    after a kill by the next one there that this machine makes, whatever its name.

    An empty folder `out` stays, since it may be a disk or where a shell stands: what was made in it is moved
    up at the end, `last` after all else.
    """
    root = out if out.is_dir() else out.parent
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
        if out.is_dir() and not is_empty(out):
            raise UserError(f"{out}: another command has filled it meanwhile; give a new folder")
        if root == out:
            for each in sorted(made.iterdir(), key=lambda path: path.name == last):
                os.replace(each, out / each.name)
            sync_folder(out)
        else:
            made.chmod(0o755)  # it was private
            os.replace(made, out)
