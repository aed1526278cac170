"""Where a run's recipe comes from, and in what this run differs from the one that it was found by."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib import metadata
from itertools import zip_longest
from typing import Any

import torch
from torch import nn

from trainable.data.info import DataInfo
from trainable.data.measure import comparable
from trainable.errors import quoted
from trainable.models.own import source_digest
from trainable.models.weights import file_digest, weights_digest
from trainable.recipe import Recipe
from trainable.recipe.distillation import TEACHER
from trainable.recipe.provenance import Provenance
from trainable.recipe.trained_files import teacher_files
from trainable.training.devices import device_name
from trainable.training.run import Run

# A run's numbers depend on these packages; their versions are written into the provenance.
PACKAGES = ("tunebook", "torch", "torchvision", "timm", "numpy")
DIGITS = "the last digits of its numbers will differ"  # what another device or version means
# These fields of a provenance hold figures of runs that trained the recipe again
OF_OTHER_RUNS = ("final", "simplified", "finalized", "verification")


@dataclass(frozen=True)
class Origins:
    """What a recipe's figures rest on, by digests; None for what it does not use or is not known."""

    images: str | None = None  # which image is in which part, with which label
    files: str | None = None  # the names, classes and sizes of their files: `images` reads some of many
    weights: str | None = None  # the file of weights that the run begins from
    teacher: str | None = None  # the teacher's weights
    teacher_recipe: str | None = None
    code: Mapping[str, str] = field(default_factory=dict)  # a person's own functions, by what each gives
    classes: tuple[str, ...] = ()  # the names of the classes, which the digest of the images does without

    @classmethod
    def of(cls, provenance: Provenance | None) -> Origins:
        """Return what a provenance says."""
        if provenance is None:
            return cls()
        return cls(
            provenance.data_digest,
            provenance.files_digest,
            provenance.weights_digest,
            provenance.teacher_digest,
            provenance.teacher_recipe,
            provenance.code,
            provenance.class_names,
        )

    @classmethod
    def of_run(cls, run: Run, code: Mapping[str, str] | None = None) -> Origins:
        """Return what a new run has loaded, with the digests of the sources of a person's own functions: the
        file of weights is read once more."""
        return cls(
            run.info.digest,
            run.info.files,
            None if run.own_network else weights_digest(run.recipe.model),
            *run.task.teacher_digests(),
            code or {},
            run.info.classes,
        )

    @classmethod
    def of_files(cls, recipe: Recipe, info: DataInfo) -> Origins:
        """Return what a run of the recipe with these images would use now. Raises ModelError for a teacher
        that is not there."""
        taught = recipe.distillation
        files = None if taught is None else teacher_files(taught)
        return cls(
            info.digest,
            info.files,
            weights_digest(recipe.model),
            None if files is None else file_digest(files.weights),
            None if files is None or files.recipe is None else files.recipe.digest(),
            classes=info.classes,
        )

    def with_images(self, info: DataInfo) -> Origins:
        """Replace where the images come from by that of a data set."""
        return replace(self, images=info.digest, files=info.files, classes=info.classes)

    def provenance(self) -> dict[str, Any]:
        """Return these origins as fields of a provenance."""
        return {
            "data_digest": self.images,
            "files_digest": self.files,
            "weights_digest": self.weights,
            "teacher_digest": self.teacher,
            "teacher_recipe": self.teacher_recipe,
            "code": dict(self.code),
            "class_names": self.classes,
        }

    def comparable(self, now: Origins) -> bool:
        """Return whether equal images would have equal digests; those of an earlier version have not."""
        return not self.images or not now.images or comparable(self.images, now.images)

    def changes(self, now: Origins, recipe: Recipe) -> Iterator[str]:
        """Yield a line for each of these that a recipe uses and that is another one now."""
        data, found = f"data.path {recipe.data.path}", "that the recipe was found with"
        images = f"{data}: these are not the images {found}, or they have other labels or another split"
        files = f"{data}: the files of the images have other names, classes or sizes than those {found}"
        if not self.comparable(now):
            yield (
                f"{data}: the recipe was found by an earlier version, whose digest of the images cannot be "
                f"compared with today's {_both(self.images, now.images)}"
            )
        elif self.images not in (None, now.images):
            yield f"{images} {_both(self.images, now.images)}"
        elif self.files and now.files and self.files != now.files:
            yield f"{files} {_both(self.files, now.files)}"
        elif renamed := first_renamed(self.classes, now.classes):
            yield f"{data}: the classes have other names than those {found} ({renamed})"
        if self.weights not in (None, now.weights):
            weights = "model.weights: these are not the weights that the recipe was trained from"
            yield f"{weights} {_both(self.weights, now.weights)}"
        if recipe.distillation is not None:
            where, taught = f"{TEACHER}: {recipe.distillation.teacher}", "of the teacher that the recipe was"
            if self.teacher not in (None, now.teacher):
                both = _both(self.teacher, now.teacher)
                yield f"{where}: these are not the weights {taught} trained with {both}"
            if self.teacher_recipe not in (None, now.teacher_recipe):
                both = _both(self.teacher_recipe, now.teacher_recipe)
                yield f"{where}: this is not the recipe {taught} trained with {both}"
        for word, digest in now.code.items():
            if (before := self.code.get(word, digest)) != digest:
                source = f"{word}: the source of this function is not that of the one {found}"
                yield f"{source} {_both(before, digest)}"


def first_renamed(before: tuple[str, ...], now: tuple[str, ...]) -> str | None:
    """Return in words the first class that has another name now; arrays have numbers in place of names."""
    if not before or not now or any(all(each.isdecimal() for each in names) for names in (before, now)):
        return None
    for number, names in enumerate(zip_longest(before, now)):
        old, new = ("none" if each is None else quoted(each) for each in names)
        if old != new:
            return f"class {number} was {old}, and is {new} now"
    return None


def _both(before: str | None, now: str | None) -> str:
    return f"(digest {before}, now {now or 'none'})"


def differences(provenance: Provenance | None, run: Run, origins: Origins) -> Iterator[str]:
    """Yield a line for each way in which a run, which rests on `origins`, differs from the one that a
    provenance describes."""
    if provenance is None:
        return
    device = device_name(run.device)
    if provenance.device is not None and not may_be_same(provenance.device, device):
        yield f"the recipe was trained on {provenance.device}, this is {device}: {DIGITS}"
    yield from Origins.of(provenance).changes(origins, run.recipe)
    now = versions()
    for name, version in provenance.versions.items():
        if name in now and now[name] != version:
            yield f"the recipe was trained with {name} {version}, this is {now[name]}: {DIGITS}"


def digests_of(**given: object) -> dict[str, str]:
    """Return the digests of the sources of the functions among these, where Python knows them."""
    functions = {
        word: each for word, each in given.items() if callable(each) and not isinstance(each, nn.Module)
    }
    found = {word: source_digest(function) for word, function in functions.items()}
    return {word: digest for word, digest in found.items() if digest is not None}


def may_be_same(recorded: str, device: str) -> bool:
    """Return whether two names from `device_name` may mean one model; a kind alone matches each of its
    models."""
    kind, _, model = recorded.partition(" ")
    return recorded == device or (not model and kind == device.partition(" ")[0])


def provenance_of(run: Run, scores: Mapping[str, float], origins: Origins) -> Provenance:
    """Return the recipe's provenance, updated with what this run used and scored.

    What the recipe came to in other runs is left out where these rested on other images, weights or code.
    """
    earlier = run.recipe.provenance or Provenance()
    changed = any(Origins.of(earlier).changes(origins, run.recipe))
    return earlier.model_copy(
        update={
            **(dict.fromkeys(OF_OTHER_RUNS) if changed else {}),
            **origins.provenance(),
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "metrics": dict(scores),
            "pruned": None,  # a run builds the recipe's own network
            "threads": torch.get_num_threads(),
            "device": device_name(run.device),
            "micro_batch": run.micro_batch,
            "versions": versions(),
        }
    )


def versions(*others: str) -> dict[str, str]:
    """Return the installed versions of Python, of what a run's numbers depend on, and of `others`."""
    found = {"python": platform.python_version()}
    for name in (*PACKAGES, *others):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:  # timm is optional, and a source tree is not a distribution
            continue
    return found
