"""Says where a run's recipe comes from, and in what this run differs from the one that it was found by."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from importlib import metadata

import torch
from torch import nn

from trainable.models.own import source_digest
from trainable.models.weights import weights_digest
from trainable.recipe.distillation import TEACHER
from trainable.recipe.provenance import Provenance
from trainable.training.devices import device_name
from trainable.training.run import Run

PACKAGES = ("tunebook", "torch", "torchvision", "timm", "numpy")
"""A run's numbers depend on these packages; their versions are written into the provenance."""
DIGITS = "the last digits of its numbers will differ"
"""This is what another device or version means."""


def differences(
    provenance: Provenance | None, run: Run, code: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Yields a line for each way in which a run differs from the one that a provenance describes.

    `code` holds the digests of the sources of a person's own functions.
    """
    if provenance is None:
        return
    device = device_name(run.device)
    if provenance.device is not None and not may_be_same(provenance.device, device):
        yield f"the recipe was trained on {provenance.device}, this is {device}: {DIGITS}"
    if provenance.data_digest is not None and provenance.data_digest != run.data.info.digest:
        yield "these are not the images that the recipe was found with, or another split of them"
    if provenance.weights_digest not in (None, _weights_digest(run)):
        yield "model.weights: these are not the weights that the recipe was trained from"
    yield from _of_teacher(provenance, run)
    for word, digest in (code or {}).items():
        if provenance.code.get(word, digest) != digest:
            yield f"{word}: the source of this function is not that of the one that the recipe was found with"
    now = versions()
    for name, version in provenance.versions.items():
        if name in now and now[name] != version:
            yield f"the recipe was trained with {name} {version}, this is {now[name]}: {DIGITS}"


def _of_teacher(provenance: Provenance, run: Run) -> Iterator[str]:
    """Yields a line where a run's teacher has other weights, or another recipe, than the one before."""
    if run.recipe.distillation is None:
        return
    where = f"{TEACHER}: {run.recipe.distillation.teacher}"
    for what, known, now in (
        ("these are not the weights", provenance.teacher_digest, _teacher_digest(run)),
        ("this is not the recipe", provenance.teacher_recipe, _teacher_recipe(run)),
    ):
        if known not in (None, now):
            yield (
                f"{where}: {what} of the teacher that the recipe was trained with (digest {known}, now "
                f"{now or 'none'})"
            )


def _weights_digest(run: Run) -> str | None:
    return None if run.own_network else weights_digest(run.recipe.model)


def _teacher_digest(run: Run) -> str | None:
    return None if run.teaching is None else run.teaching.teacher.digest


def _teacher_recipe(run: Run) -> str | None:
    return None if run.teaching is None else run.teaching.teacher.recipe_digest


def digests_of(**given: object) -> dict[str, str]:
    """Returns the digests of the sources of the functions among these, where Python knows them."""
    functions = {
        word: each for word, each in given.items() if callable(each) and not isinstance(each, nn.Module)
    }
    found = {word: source_digest(function) for word, function in functions.items()}
    return {word: digest for word, digest in found.items() if digest is not None}


def may_be_same(recorded: str, device: str) -> bool:
    """Returns whether two names from `device_name` may mean one model;
    a kind alone matches each of its models."""
    kind, _, model = recorded.partition(" ")
    return recorded == device or (not model and kind == device.partition(" ")[0])


def provenance_of(run: Run, scores: Mapping[str, float], code: Mapping[str, str] | None = None) -> Provenance:
    """Returns the recipe's provenance, updated with what this run used and scored."""
    earlier = run.recipe.provenance or Provenance()
    return earlier.model_copy(
        update={
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "metrics": dict(scores),
            "data_digest": run.data.info.digest,
            "weights_digest": _weights_digest(run),
            "pruned": None,  # a run builds the recipe's own network
            "teacher_digest": _teacher_digest(run),
            "teacher_recipe": _teacher_recipe(run),
            "class_names": run.data.info.classes,
            "threads": torch.get_num_threads(),
            "device": device_name(run.device),
            "micro_batch": run.micro_batch,
            "versions": versions(),
            "code": dict(code or {}),
        }
    )


def versions(*others: str) -> dict[str, str]:
    """Returns the installed versions of Python, of what a run's numbers depend on, and of `others`."""
    found = {"python": platform.python_version()}
    for name in (*PACKAGES, *others):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:  # timm is optional, and a source tree is not a distribution
            continue
    return found
