"""What a search is called where nobody says."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from search.study import Study
from trainable.files.store import name_in


def default_name(study: Study) -> str:
    """The data's name and the time: searches of one storage never collide."""
    stem = Path(study.data.name or name_in(study.data.path)).stem or "search"
    clean = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in stem).strip("-")
    return f"{clean or 'search'}-{datetime.now():%Y%m%d-%H%M%S}"
