"""Writes new folders whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from trainable.errors import UserError
from trainable.files.temporary import PREFIX, temporary_folder
from trainable.recipe.yamlfile import sync_folder


def check_new(out: Path, what: str) -> None:
    """Raises UserError if the folder exists and is not empty: it is written whole, over nothing."""
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise UserError(f"{out}: exists already; give a new folder for {what}")


@contextmanager
def moved_to(out: Path) -> Iterator[Path]:
    """Yield a temporary folder beside `out` that becomes `out` at the end; after an error it is removed, and
    after a kill by the next one beside `out`, whatever its name."""
    with ExitStack() as at_end:
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            made = at_end.enter_context(temporary_folder(f".{PREFIX}", out.parent))
        except OSError as error:
            raise UserError(f"{out}: cannot be written: {error.strerror}") from None
        yield made
        made.chmod(0o755)  # it was private
        sync_folder(made)
        os.replace(made, out)
