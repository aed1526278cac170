"""Keeps what `tunebook export --verify` has found in the folder of the search, for its report."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from search.record.home import VERIFICATION_FILE
from trainable.files.regular import read_regular
from trainable.recipe import Recipe
from trainable.recipe.base import Spec
from trainable.recipe.provenance import Verification
from trainable.recipe.yamlfile import write_whole

LARGEST_VERIFICATION = 2**24  # so many bytes are read


class Verified(Spec):
    """A recipe that was trained again, and what that has shown."""

    trial: int
    # the digest of the recipe: another one than the trial's where it was made simpler or finalized
    recipe: str
    found: Verification


def keep_verification(folder: Path, recipe: Recipe) -> None:
    """Write what the provenance of a trial's recipe says of its verification."""
    known = recipe.provenance
    assert known is not None
    assert known.trial is not None
    assert known.verification is not None
    kept = Verified(trial=known.trial, recipe=recipe.digest(), found=known.verification)
    write_whole(folder / VERIFICATION_FILE, f"{kept.model_dump_json(indent=2)}\n".encode())


def read_verification(folder: Path) -> Verified | None:
    """Return what was kept; None where there is nothing that this version can read."""
    try:
        return Verified.model_validate_json(read_regular(folder / VERIFICATION_FILE, LARGEST_VERIFICATION))
    except (OSError, ValidationError):
        return None
