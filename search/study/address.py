"""Defines how a study names a folder: a path on a machine, or a URI in an object store."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from trainable.files.paths import usable_path, without_tilde
from trainable.files.store import is_uri, without_credentials

Address = Annotated[
    str, Field(min_length=1), AfterValidator(without_credentials), AfterValidator(usable_path)
]


def absolute(address: str) -> str:
    """Return the same folder's address, absolute; `~` is a home folder, a URI stays as it is."""
    return address if is_uri(address) else str(without_tilde(address).absolute())
