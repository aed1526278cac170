"""This module names a search for which nobody chose a name."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from search.study import Study
from trainable.files.store import name_in


def default_name(study: Study) -> str:
    """Returns the data's name followed by the time, so that searches of one storage have different names."""
    stem = Path(study.data.name or name_in(study.data.path)).stem or "search"
    clean = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in stem).strip("-")
    return f"{clean or 'search'}-{datetime.now():%Y%m%d-%H%M%S}"
