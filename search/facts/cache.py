"""Facts, and what is known of the data, in the person's cache folder for later commands.

A file is named by a digest of everything that its content depends on. So what has changed is measured again,
and the cache never has to be cleared. Each file has a few kilobytes.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from pydantic import TypeAdapter

from search.record.folder import facts_in, facts_text
from spaces.facts import Facts
from trainable.bench import DeviceKind
from trainable.data import DataInfo
from trainable.data.excluded import exclusions_digest
from trainable.data.image_files import fingerprint, line_of
from trainable.data.manifest import is_manifest, manifest_fingerprint
from trainable.data.remote_data import digest_of
from trainable.data.saved_dataset import fingerprint as saved_fingerprint
from trainable.data.saved_dataset import is_saved_dataset
from trainable.errors import UserError
from trainable.files.paths import cache_root, without_tilde
from trainable.files.store import Store, is_uri
from trainable.recipe import Recipe
from trainable.recipe.data import Data
from trainable.recipe.models import Model, folder_of_name, is_published
from trainable.recipe.network_cost import Speed
from trainable.recipe.tasks import Masks
from trainable.recipe.yamlfile import write_whole

SPEEDS = TypeAdapter(tuple[Speed, ...])
FORM = 4  # a version: raise it when the same data and model would give other facts


def cache_folder() -> Path:
    """Return the folder that holds the stored facts."""
    return cache_root() / "facts"


def cache_file(base: Recipe, device: DeviceKind, cpus: int = 1) -> Path:
    """Return the cache file for a recipe's images and model on a device of this kind; it need not exist.

    How fast the model trains depends on the processors of a trial, too, where that is measured.
    """
    from trainable.origins import versions  # it imports torch, for which `show` need not wait
    from trainable.training.devices import machine_name

    masks = base.task.masks
    names = None if masks is None else masks.classes
    tree, (path, files) = base.tree(), _images_of(base.data, masks)
    follows_from = {
        "form": FORM,
        "task": tree["task"],
        "data": {**tree["data"], "path": path},
        "resize": tree["evaluation"]["resize"],
        "model": tree["model"],
        "weights": _local_network(base.model),
        "precision": tree["precision"],
        "device": device,
        "compile": tree["loop"]["compile"],
        "cpus": cpus if base.awaits_timing else None,
        "machine": machine_name(),
        "files": files,
        "excluded": exclusions_digest(base.data),
        "class_names": None if names is None else line_of(str(without_tilde(names))),
        "versions": versions(),
    }
    return cache_folder() / f"{name_by(follows_from)}.json"


def speeds_file(base: Recipe, info: DataInfo, device: DeviceKind, cpus: int) -> Path:
    """Return the file of how fast a recipe's network trains on images of a shape; it need not exist."""
    from trainable.origins import versions
    from trainable.training.devices import machine_name

    follows_from = {
        "model": base.model.model_dump(mode="json", exclude={"weights"}),
        "precision": base.precision.model_dump(mode="json"),
        "compile": base.loop.compile,
        "folder": _local_network(base.model),
        "images": (info.channels, info.image_size, len(info.classes), base.task.masks is not None),
        "device": device,
        "cpus": cpus,
        "machine": machine_name(),
        "versions": versions(),
    }
    return cache_root() / "speeds" / f"{name_by(follows_from)}.json"


def name_by(follows_from: Mapping[str, object]) -> str:
    """Return a file's name, without its ending, for what its content follows from."""
    return hashlib.sha256(json.dumps(follows_from, sort_keys=True).encode()).hexdigest()[:32]


def _images_of(data: Data, masks: Masks | None) -> tuple[str, str]:
    """Return where the images lie, and a fingerprint of the files there, and of their masks.

    The bundled digits are identified by their name, not by a folder.
    """
    if data.bundled:
        return data.path, fingerprint(Path(data.path))
    if is_manifest(data):
        return data.path, manifest_fingerprint(data, None if masks is None else masks.column)
    if is_uri(data.path):
        return data.path, digest_of(Store(data.path))
    path = without_tilde(data.path).absolute()
    found = [fingerprint(path)]
    if data.root is not None and is_saved_dataset(path):
        found.append(saved_fingerprint(path, data))
    if masks is not None:  # either may be named by a path that leads elsewhere
        folders = [Path(os.path.normpath(path / each)) for each in (masks.images, masks.folder)]
        found += [fingerprint(each) for each in folders if not each.is_relative_to(path)]
    return str(path), " ".join(found)


def _local_network(model: Model) -> str | None:
    """Return a fingerprint of the folder of timm's form, or of the file or folder of weights, that a model
    names on this machine."""
    local = folder_of_name(getattr(model, "name", None))
    if local is None and model.weights is not None and not is_published(model.weights):
        local = model.weights
    if local is None:
        return None
    path = without_tilde(local)
    return line_of(str(path)) if path.is_file() else fingerprint(path)


def read_cached(file: Path) -> tuple[Facts, DataInfo] | None:
    """Return what the file holds; None where there is no file, or none that can be read."""
    try:
        return facts_in(file)
    except UserError:
        return None


def read_speeds(file: Path) -> tuple[Speed, ...]:
    """Return what the file holds; nothing where there is no file, or none that can be read."""
    try:
        return SPEEDS.validate_json(file.read_bytes())
    except (OSError, ValueError):
        return ()


def write_speeds(file: Path, speeds: tuple[Speed, ...]) -> None:
    """Write the file, where the cache folder can be written."""
    with suppress(UserError, OSError):
        write_whole(file, SPEEDS.dump_json(speeds))


def write_cached(file: Path, facts: Facts, info: DataInfo) -> None:
    """Write the file. A cache folder that cannot be written is ignored, because only time is lost."""
    with suppress(UserError, OSError):
        write_whole(file, facts_text(facts, info))
