"""Writes the bundle of a search's trial, or of a recipe that was trained alone: `tunebook bundle`."""

from __future__ import annotations

from pathlib import Path

from search.commands.trained_input import find_trained
from trainable.bundle.write import write_bundle
from trainable.new_folder import check_new
from trainable.terminal import tell


def run_bundle(folder: Path, out: Path, trial: int | None) -> None:
    """Write the bundle to a new folder, and print what was checked. Raises UserError, ExportError among
    them."""
    check_new(out, "the bundle")
    write_bundle(find_trained(folder, trial), out, say=tell)
    tell(f"bundle -> {out}")
