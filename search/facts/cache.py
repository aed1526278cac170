"""Facts and what is known of the data, kept between commands in the person's cache folder.

A file is named by a digest of all that its content follows from: what has changed is measured anew, and
nothing is ever to be cleared. Files are a few kilobytes each.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path

from search.folder import facts_in, facts_text
from spaces.facts import Facts
from trainable.data import DataInfo
from trainable.datasets.fingerprint import fingerprint
from trainable.datasets.measure import DeviceKind
from trainable.errors import UserError
from trainable.recipe import Recipe
from trainable.specs.data import Data
from trainable.yamlfile import write_whole

FORM = 1
"""Raised when the same data and model would give other facts."""


def cache_folder() -> Path:
    """$XDG_CACHE_HOME/tunebook/facts, or ~/.cache/tunebook/facts (XDG Base Directory Specification)."""
    home = os.environ.get("XDG_CACHE_HOME", "")
    root = Path(home) if os.path.isabs(home) else Path.home() / ".cache"
    return root / "tunebook" / "facts"


def place_of(base: Recipe, device: DeviceKind) -> Path:
    """The file for a recipe's images and model on such a device, whether it is there or not."""
    from trainable.train import versions  # torch: seconds that `show` need not wait

    path, tree = _images_of(base.data), base.tree()
    follows_from = {
        "form": FORM,
        "data": {**tree["data"], "path": str(path)},
        "resize": tree["evaluation"]["resize"],
        "model": tree["model"],
        "device": device,
        "files": fingerprint(path),
        "versions": versions(),
    }
    digest = hashlib.sha256(json.dumps(follows_from, sort_keys=True).encode()).hexdigest()
    return cache_folder() / f"{digest[:32]}.json"


def _images_of(data: Data) -> Path:
    """Where the images lie; of the bundled digits just the name, wherever it is written."""
    if data.bundled:
        return Path(data.path)
    return Path(data.path).expanduser().absolute()


def recall(place: Path) -> tuple[Facts, DataInfo] | None:
    """What was kept there; None where there is nothing, or nothing that can be read."""
    try:
        return facts_in(place)
    except UserError:
        return None


def keep(place: Path, facts: Facts, info: DataInfo) -> None:
    """Write it; a cache folder that cannot be written is done without, for nothing is lost but time."""
    with suppress(UserError, OSError):
        write_whole(place, facts_text(facts, info))
