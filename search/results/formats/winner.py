"""What is exported: one recipe with what is known of its images, and how its batch is cut."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from spaces.facts import Facts
from trainable.data import DataInfo
from trainable.errors import UserError
from trainable.recipe import Recipe
from trainable.recipe.base import Purpose

if TYPE_CHECKING:
    from search.results.formats.network import Network


class BatchCut(NamedTuple):
    """An effective batch, cut: `gpus` devices, each with `parts` turns of `at_once` images."""

    gpus: int
    parts: int
    at_once: int

    @property
    def batch(self) -> int:
        """The effective batch that this makes."""
        return self.gpus * self.parts * self.at_once


def no_segmentation(form: str) -> UserError:
    """Return the fault of a recipe for segmentation in a format of programs that classify images."""
    return UserError(
        f"--format {form}: its program classifies images, and this recipe segments them (task.kind); "
        "expected --format tunebook"
    )


@dataclass(frozen=True)
class Winner:
    """A recipe whose `data` are resolved, and what formats ask of it.

    `facts` are those of its search or, for a recipe's file, of its data and this machine; `title` says in
    words which recipe this is, and `images` is the folder with its parts as class folders, if it was written.
    """

    recipe: Recipe
    info: DataInfo
    facts: Facts
    title: str
    reasons: Mapping[str, Purpose] = field(default_factory=dict)
    varied: frozenset[str] = frozenset()  # the fields that the search drew
    changes: tuple[str, ...] = ()  # what was changed for other hardware, a field on each line
    warnings: tuple[str, ...] = ()  # what was not seen of it
    gpus: int = 1
    images: str | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """What was changed for other hardware, and what was not seen of it, as lines."""
        return (
            *(f"Moved: {change}." for change in self.changes),
            *(f"Not seen: {warning}." for warning in self.warnings),
        )

    @property
    def device(self) -> str:
        """The kind of device that the recipe was trained on, or is to be: cuda or cpu."""
        return "cuda" if self.facts.gpus or self.gpus > 1 else "cpu"

    @property
    def cut(self) -> BatchCut:
        """How the batch is cut: in as few equal parts as memory allows, where that is known."""
        share = math.ceil(self.recipe.loop.batch_size / self.gpus)
        provenance = self.recipe.provenance
        fitted = self.recipe.loop.micro_batch or (provenance and provenance.micro_batch) or share
        parts = next(
            count for count in range(1, share + 1) if share % count == 0 and share // count <= fitted
        )
        return BatchCut(self.gpus, parts, share // parts)

    @property
    def steps(self) -> int:
        """How many steps an epoch takes: the images that do not fill a batch are left out."""
        return self.info.train_images // self.recipe.loop.batch_size

    @cached_property
    def network(self) -> Network:
        """The network of the recipe, drawn as its library draws it."""
        from search.results.formats.network import build

        return build(self.recipe.model, self.info)
