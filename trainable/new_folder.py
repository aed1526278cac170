"""Writes new folders whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainable.errors import UserError
from trainable.recipe.yamlfile import sync_folder


def check_new(out: Path, what: str) -> None:
    """Raises UserError if the folder exists and is not empty: it is written whole, over nothing."""
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise UserError(f"{out}: exists already; give a new folder for {what}")


@contextmanager
def moved_to(out: Path) -> Iterator[Path]:
    """Yields a temporary folder beside `out` that becomes `out` at the end; after an error it is removed."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}."))
    except OSError as error:
        raise UserError(f"{out}: cannot be written: {error.strerror}") from None
    try:
        yield folder
        folder.chmod(0o755)  # mkdtemp makes it private
        sync_folder(folder)
        os.replace(folder, out)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
