"""Finds the network that a name of timm means: one of its own list, of a folder, or of the Hugging Face Hub.

A name of timm is `resnet50`, `resnet50.a1_in1k` (with the tag of its weights), `local-dir:PATH` or
`hf-hub:OWNER/NAME[@REVISION]`.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainable.errors import ModelError, first_line
from trainable.files.paths import without_tilde
from trainable.files.regular import read_regular
from trainable.recipe.models import HUB, LOCAL_FOLDER, MODEL_NAME
from trainable.recipe.tasks import CLASSIFICATION, Labelled, TaskSpec

CONFIGURATION = "config.json"
LARGEST_CONFIGURATION = 2**20  # so many bytes are read
SNAPSHOTS = "snapshots"  # the Hub's cache keeps the copies of a network's folder below one of this name
# A folder has its weights in the first of these files that exists
WEIGHTS = ("model.safetensors", "pytorch_model.bin", "pytorch_model.pth", "model.pth")
EXAMPLES: dict[Labelled, str] = {"image": "resnet18, resnet50", "pixel": "fcn_resnet50, deeplabv3_resnet50"}


def located(name: str, *, may_fetch: bool = False) -> str:
    """Return a name that timm builds from what is on this machine: a Hub's name becomes the folder of its
    copy in the cache, which is fetched first only with `may_fetch`.

    Raises ModelError for a name that timm does not have, for a folder without a configuration of a network of
    timm's, and for a Hub's network that is not on this machine.
    """
    if name.startswith(LOCAL_FOLDER):
        return LOCAL_FOLDER + str(
            _checked_folder(without_tilde(name.removeprefix(LOCAL_FOLDER)).absolute(), name)
        )
    if name.startswith(HUB):
        return LOCAL_FOLDER + str(_checked_folder(_snapshot(name, may_fetch=may_fetch), name))
    check_known(name)
    return name


def configuration_of(name: str) -> Mapping[str, Any]:
    """Return what timm knows of the weights of a `located` network, empty if there are none: where they are
    (`url`, `hf_hub_id`), and how images looked to them (`mean`, `std`, `input_size`, `interpolation`)."""
    if name.startswith(LOCAL_FOLDER):
        return _pretrained(_read(Path(name.removeprefix(LOCAL_FOLDER)), name))
    import timm

    found = timm.get_pretrained_cfg(name)
    return {} if found is None else found.to_dict()


def weights_in(name: str) -> Path | None:
    """Return the file of weights in the folder of a `located` network, or None if it is in no folder."""
    if not name.startswith(LOCAL_FOLDER):
        return None
    folder = Path(name.removeprefix(LOCAL_FOLDER))
    for each in WEIGHTS:
        if (folder / each).is_file():
            return folder / each
    fetch = "; add --download to `tunebook check` to fetch one" if folder.parent.name == SNAPSHOTS else ""
    raise ModelError(f"model.weights: expected one of {', '.join(WEIGHTS)} in {folder}, found none{fetch}")


def is_known(name: str) -> bool:
    """Say whether a name, with or without a tag, is in timm's own list."""
    try:
        check_known(name)
    except ModelError:
        return False
    return True


def check_known(name: str, field: str = MODEL_NAME) -> None:
    """Raise ModelError, which names a field of the recipe, unless a name is in timm's own list, and its tag
    among those of its weights."""
    import timm

    architecture, dot, tag = name.partition(".")
    if not timm.is_model(architecture):
        raise unknown("timm", name, timm.list_models(), field=field)
    tags = [each.partition(".")[2] for each in timm.list_models(f"{architecture}.*", pretrained=True)]
    if dot and tag not in tags:
        known = ", ".join(tags) or "none"
        raise ModelError(f"{field}: timm's {architecture} has no weights {tag!r}; it has {known}")


def unknown(
    library: str, name: str, known: list[str], *, field: str = MODEL_NAME, task: TaskSpec = CLASSIFICATION
) -> ModelError:
    """Return the fault of a name that a library does not have for a task, with close ones."""
    ours, examples = task.networks[0], EXAMPLES[task.labelled]
    close = difflib.get_close_matches(name.partition(".")[0], [*known, ours], n=5, cutoff=0.5)
    hint = f"did you mean {', '.join(close)}?" if close else f"it has {len(known)}, such as {examples}"
    if library == "timm" and "/" in name:
        hint = f"write {HUB}{name} for a network of the Hugging Face Hub, {LOCAL_FOLDER}{name} for a folder"
    return ModelError(f"{field}: {library} has no {task.kind} model {name!r}; {hint}")


def _snapshot(name: str, *, may_fetch: bool) -> Path:
    """Return the folder of a Hub's network in the cache. Raises ModelError."""
    repository, _, revision = name.removeprefix(HUB).partition("@")
    from huggingface_hub import hf_hub_download, try_to_load_from_cache

    try:
        found = try_to_load_from_cache(repository, CONFIGURATION, revision=revision or None)
        if isinstance(found, str) and (not may_fetch or _has_weights(Path(found).parent)):
            return Path(found).parent
        if not may_fetch:
            raise ModelError(
                f"model.name: {name} is not on this machine: add --download to fetch it (to `tunebook "
                f"check`, `search` or `train`), or name a folder by {LOCAL_FOLDER}PATH"
            )
        configuration = hf_hub_download(repository, CONFIGURATION, revision=revision or None)
        _fetch_weights(repository, revision or None)
        return Path(configuration).parent
    except ModelError:
        raise
    except Exception as error:  # of huggingface_hub, httpx or the file system
        raise ModelError(f"model.name: {name} cannot be fetched: {first_line(error)}") from error


def _fetch_weights(repository: str, revision: str | None) -> None:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError

    for file in WEIGHTS[:2]:
        try:
            hf_hub_download(repository, file, revision=revision)
        except EntryNotFoundError:
            continue
        return


def _has_weights(folder: Path) -> bool:
    return any((folder / each).is_file() for each in WEIGHTS)


def _checked_folder(folder: Path, name: str) -> Path:
    import timm

    architecture = str(_read(folder, name).get("architecture", ""))
    if not timm.is_model(architecture):
        raise ModelError(
            f"model.name: {folder / CONFIGURATION}: expected `architecture` to be a model of timm's, got "
            f"{architecture!r}"
        )
    return folder


def _read(folder: Path, name: str) -> Mapping[str, Any]:
    file = folder / CONFIGURATION
    try:
        content = json.loads(read_regular(file, LARGEST_CONFIGURATION))
    except (OSError, ValueError) as error:
        raise ModelError(f"model.name: {name}: {file} cannot be read: {first_line(error)}") from None
    if not isinstance(content, dict):
        raise ModelError(f"model.name: {name}: {file}: expected a mapping, got {type(content).__name__}")
    return content


def _pretrained(configuration: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the part that describes the weights; older files have everything at the top."""
    inner = configuration.get("pretrained_cfg", configuration)
    return inner if isinstance(inner, dict) else {}
