"""Finds which library has a network of a name, without importing the libraries, which takes seconds.

Their names are kept in a file of the person's cache folder, one for each version of the libraries, which the
first call writes.
"""

from __future__ import annotations

import difflib
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from trainable.errors import ModelError
from trainable.extras import INSTALL
from trainable.files.paths import cache_root
from trainable.files.regular import read_regular
from trainable.recipe import Recipe
from trainable.recipe.models import HUB, LOCAL_FOLDER, MODEL_NAME
from trainable.recipe.tasks import CLASSIFICATION, TASKS, AnyTask
from trainable.recipe.trees import Tree, leaves
from trainable.recipe.yamlfile import read_tree, write_whole

LARGEST_LIST = 2**20  # so many bytes are read
SMALL = ("resnet_small", "unet_small")  # networks of our own, by their kinds
MOST_CLOSE = 5  # so many close names are offered
TAGGED = "timm with the tags of its weights"  # a list of names such as resnet50.a1_in1k
CLOSE = 0.6  # how like a name these are, of 1


class Library(NamedTuple):
    """A library's networks for one task."""

    kind: str  # `torchvision` or `timm`, as in model.kind
    names: frozenset[str]


def model_named(name: str, task: AnyTask = CLASSIFICATION) -> dict[str, str]:
    """Return the model section that a name in one word stands for: `resnet_small`, `unet_small`,
    `torchvision/NAME`, `timm/NAME`, `smp/DECODER/ENCODER`, or the bare name of a library's network.

    Where torchvision and timm have a network of the same bare name, it is torchvision's. Raises ModelError
    for a name that no library has, with close ones.
    """
    if name in SMALL:
        return {"kind": name}
    library, slash, rest = name.partition("/")
    if library == "smp" and slash:
        decoder, _, encoder = rest.partition("/")
        if not encoder:
            raise ModelError(f"{MODEL_NAME} {name}: expected smp/DECODER/ENCODER, such as smp/unet/resnet18")
        return {"kind": "smp", "name": decoder, "encoder": encoder}
    if library in ("timm", "torchvision") and slash:
        check_name(library, rest, task)
        return {"kind": library, "name": rest}
    if name.startswith((HUB, LOCAL_FOLDER)):
        return {"kind": "timm", "name": name}
    if not _are_installed():
        raise ModelError(
            f"{MODEL_NAME}: {name!r} is looked up in torchvision and timm, which are not installed: "
            f"{INSTALL}; or write whose it is: torchvision/{name} or timm/{name}"
        )
    found = [each.kind for each in libraries(task) if _bare(name) in each.names]
    if "." in name:  # only timm's names have the tag of their weights behind a dot
        found = [each for each in found if each == "timm"]
    if not found:
        raise ModelError(
            f"{MODEL_NAME}: no library has a {task.kind} network {name!r}; {_advice(name, task)}"
        )
    check_name(found[0], name, task)
    return {"kind": found[0], "name": name}


def also_in(name: str, task: AnyTask = CLASSIFICATION) -> str:
    """Return what to say of a bare name that two libraries have: whose it is, and how the other's is named;
    empty for every other name."""
    kinds = [each.kind for each in libraries(task) if name in each.names] if _are_installed() else []
    if len(kinds) < 2:
        return ""
    first, other = kinds
    return f"{name} is {first}'s; {other}/{name} names {other}'s"


def other_library(name: object, kind: object, task: AnyTask = CLASSIFICATION) -> str | None:
    """Return the library of a bare name that is set as `model.name`, where the network's kind is another
    one's; None where the kind stays. Raises ModelError for a name that no library has."""
    if not isinstance(name, str) or "/" in name or kind in ("smp", "own") or not _are_installed():
        return None
    if any(each.kind == kind and _bare(name) in each.names for each in libraries(task)):
        return None
    found = model_named(name, task)["kind"]
    return None if found in SMALL else found


def check_name(kind: str, name: str, task: AnyTask = CLASSIFICATION) -> None:
    """Raise ModelError unless a library has a network of this name for the task; other libraries that have
    it, and close names, are offered."""
    if name.startswith((HUB, LOCAL_FOLDER)) or not _are_installed():  # whoever trains it looks it up
        return
    known = {each.kind: each.names for each in libraries(task)}.get(kind, frozenset())
    if known and _bare(name) not in known:
        raise ModelError(f"{MODEL_NAME}: {kind} has no {task.kind} network {name!r}; {_advice(name, task)}")
    architecture, dot, tag = name.partition(".")
    if kind == "timm" and dot and name not in (tagged := _lists()[TAGGED]):
        tags = sorted(each.partition(".")[2] for each in tagged if _bare(each) == architecture)
        has = ", ".join(tags) or "none"
        raise ModelError(f"{MODEL_NAME}: timm's {architecture} has no weights {tag!r}; it has {has}")


def with_library(section: Tree, task_kind: object = None) -> dict[str, Any]:
    """Return the values of `model`, by dotted path from there, with the kind of the library that has its name
    where only the name is written. Raises ModelError for a name that its library, or none, has."""
    values = dict(leaves(section))
    task = TASKS[task_kind]() if isinstance(task_kind, str) and task_kind in TASKS else CLASSIFICATION
    name = values.get("name")
    if not isinstance(name, str) or any(path.startswith("arguments") for path in values):
        return values
    match values.get("kind"):
        case "timm" | "torchvision" as kind:
            check_name(kind, name, task)
        case None if "encoder" in values:
            values["kind"] = "smp"
        case None:
            values |= model_named(name, task)
            if values["kind"] in SMALL:
                del values["name"]
    return values


def read_named_recipe(path: str | Path) -> Recipe:
    """Return the recipe in a YAML file, whose model may have a name alone. Raises UserError."""
    tree = read_tree(path)
    values = dict(leaves(tree.get("model", {}))) if isinstance(tree.get("model"), Mapping) else {}
    if isinstance(values.get("name"), str):
        task = tree.get("task")
        found = with_library(values, task.get("kind") if isinstance(task, Mapping) else None)
        if "kind" not in values:
            named = {each: found[each] for each in ("kind", "name", "encoder") if each in found}
            kept = {each: value for each, value in tree["model"].items() if each not in ("name", "encoder")}
            tree = {**tree, "model": {**kept, **named}}
    return Recipe.from_tree(tree, where=str(path))


def libraries(task: AnyTask) -> list[Library]:
    """Return the libraries whose networks go with a task, the one that a bare name means first."""
    known = _lists()
    lists = {"torchvision": f"torchvision {task.labelled}", "timm": "timm"}
    return [Library(kind, known[lists[kind]]) for kind in lists if kind in task.networks]


def every_name() -> list[str]:
    """Return the names of all networks, also with their library; of our own alone where none is installed."""
    tasks = [task() for task in TASKS.values()] if _are_installed() else []
    named = [(each.kind, name) for task in tasks for each in libraries(task) for name in each.names]
    return sorted({*SMALL, *(name for _, name in named), *(f"{kind}/{name}" for kind, name in named)})


def _advice(name: str, task: AnyTask) -> str:
    """Return who has a network of this name, or of a close one, or how one of a library is named."""
    own = [each for each in SMALL if each in task.networks]
    every = {each: each for each in own} | {
        f"{each.kind}/{known}": known for each in libraries(task) for known in each.names
    }
    exact = [path for path, known in every.items() if known == _bare(name)]
    if exact:
        return f"expected {' or '.join(exact)}"
    if "encoder" not in name and "smp" in task.networks and _bare(name) in _lists()["timm"]:
        return f"it labels whole images; for masks it can stand below a decoder: smp/unet/{name}"
    close = difflib.get_close_matches(_bare(name), sorted(set(every.values())), MOST_CLOSE, CLOSE)
    if close:
        paths = [path for each in close for path, known in every.items() if known == each]
        return f"did you mean {', '.join(paths[:MOST_CLOSE])}?"
    return f"expected {', '.join(own)}, torchvision/NAME, timm/NAME or smp/DECODER/ENCODER"


def _bare(name: str) -> str:
    return name.partition(".")[0]


def _are_installed() -> bool:
    return all(find_spec(library) is not None for library in ("timm", "torchvision"))


def _lists() -> dict[str, frozenset[str]]:
    """Return the names of all networks: of timm, and of torchvision by what they label."""
    if "timm" in sys.modules and "torchvision" in sys.modules:  # somebody may have added their own
        return {name: frozenset(known) for name, known in _lists_of_libraries()}
    file = cache_root() / "networks" / f"timm-{version('timm')}-torchvision-{version('torchvision')}.json"
    with suppress(OSError, ValueError, AttributeError, TypeError):
        if TAGGED in (stored := json.loads(read_regular(file, LARGEST_LIST))):
            return {name: frozenset(known) for name, known in stored.items()}
    found = dict(_lists_of_libraries())
    with suppress(OSError):  # it is found again next time
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, json.dumps(found).encode())
    return {name: frozenset(known) for name, known in found.items()}


def _lists_of_libraries() -> Iterator[tuple[str, list[str]]]:
    import timm
    from timm.models._registry import get_deprecated_models
    from torchvision import models

    yield "timm", sorted({*timm.list_models(), *get_deprecated_models()})
    yield TAGGED, timm.list_pretrained()
    yield "torchvision image", list(models.list_models(module=models))
    yield "torchvision pixel", list(models.list_models(module=models.segmentation))
