"""The Recipe: one training run as typed, frozen data.

A Recipe is what a search varies, what `best.yaml` holds and what `Run` trains. It is plain data: no string
in it is imported, evaluated or interpolated, and every fault is reported with its dotted path.

Three conventions hold everywhere:

* `loop.batch_size` is the effective batch, over all ranks and accumulated micro-batches.
* `optimizer.lr` is the learning rate at a batch of 256; `optimizer.scaling` says how it follows the batch.
* Durations are epochs (fractions allowed) or fractions of the run, never steps.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import ValidationError, model_validator

from trainable.errors import Fault, RecipeError, faults_of
from trainable.recipe.augmentations import Augmentation
from trainable.recipe.base import Spec
from trainable.recipe.data import Classification, Data
from trainable.recipe.models import Model, ResNetSmall
from trainable.recipe.optimizers import SGD, Optimizer
from trainable.recipe.schedules import Cosine, Schedule
from trainable.recipe.training import Evaluation, Loop, Precision, Provenance, Regularisation

REFERENCE_BATCH = 256
"""The batch at which every learning rate is stated (Goyal et al., arXiv 1706.02677, section 2.1)."""


class Recipe(Spec):
    """One training run, whole.

    Equal digests mean equal runs on the same data, weights to begin from, machine and versions.
    """

    version: Literal[1] = 1
    task: Classification = Classification()
    data: Data = Data()
    model: Model = ResNetSmall()
    optimizer: Optimizer = SGD()
    schedule: Schedule = Cosine()
    regularisation: Regularisation = Regularisation()
    augmentation: Augmentation = Augmentation()
    precision: Precision = Precision()
    loop: Loop = Loop()
    evaluation: Evaluation = Evaluation()
    provenance: Provenance | None = None

    @model_validator(mode="after")
    def fields_agree(self) -> Self:
        if self.evaluation.weights == "ema" and self.regularisation.ema_decay is None:
            raise ValueError("evaluation.weights is ema, so regularisation.ema_decay must be a number")
        if self.schedule.warmup_epochs >= self.loop.epochs and self.schedule.warmup_epochs > 0:
            raise ValueError(
                f"schedule.warmup_epochs {self.schedule.warmup_epochs:g} must be below "
                f"loop.epochs {self.loop.epochs}"
            )
        if self.loop.micro_batch is not None and self.loop.micro_batch > self.loop.batch_size:
            raise ValueError(
                f"loop.micro_batch {self.loop.micro_batch} is above loop.batch_size {self.loop.batch_size}"
            )
        return self

    @classmethod
    def from_tree(cls, tree: Mapping[str, Any], where: str = "") -> Recipe:
        """The recipe that a nested mapping describes; fields left out take their defaults.

        Raises RecipeError with every fault at once, each with its dotted path; `where` names the source.
        """
        try:
            whole = _with_kinds(tree, _DEFAULTS)
            text = json.dumps(whole)
        except (TypeError, ValueError) as error:
            raise RecipeError([Fault("", f"not plain data: {error}")], where) from error
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise RecipeError(faults_of(error, whole, cls), where) from None

    def tree(self) -> dict[str, Any]:
        """The recipe as nested plain data, every field written; provenance only where there is one."""
        whole = self.model_dump(mode="json")
        if self.provenance is None:
            del whole["provenance"]
        return whole

    def digest(self) -> str:
        """Twelve hexadecimal digits over every field but the provenance."""
        tree = self.model_dump(mode="json", exclude={"provenance"})
        return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()[:12]

    def get(self, path: str) -> Any:
        """The value at a dotted path, such as `optimizer.lr`. Raises RecipeError naming the known fields."""
        node: Any = self.tree()
        for depth, name in enumerate(parts := path.split(".")):
            if not isinstance(node, dict) or name not in node:
                raise RecipeError([Fault(path, _unknown(".".join(parts[:depth]), name, node))])
            node = node[name]
        return node

    def with_values(self, values: Mapping[str, Any]) -> Recipe:
        """A copy with values set by dotted path, e.g. `{"optimizer.kind": "adamw", "optimizer.lr": 1e-3}`.

        Setting a `kind` to another one first resets that section to the new kind's defaults. Raises
        RecipeError with every fault.
        """
        tree = self.tree()
        set_values(tree, values)
        return Recipe.from_tree(tree)


def _with_kinds(tree: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """A copy in which every section that leaves out its `kind` has the default one."""
    copy = {
        name: _with_kinds(value, defaults[name])
        if isinstance(value, Mapping) and isinstance(defaults.get(name), Mapping)
        else value
        for name, value in tree.items()
    }
    return {"kind": defaults["kind"], **copy} if "kind" in defaults and "kind" not in copy else copy


def set_values(tree: dict[str, Any], values: Mapping[str, Any]) -> None:
    """Set dotted paths of a recipe's tree in place, kinds first. Raises RecipeError for what is no field."""
    for path in sorted(values, key=lambda path: (not path.endswith(".kind"), path.count("."), path)):
        _set(tree, path, values[path])


def _set(tree: dict[str, Any], path: str, value: Any) -> None:
    """Set one dotted path in place; a changed `kind` empties its section, so that its defaults apply."""
    *sections, name = path.split(".")
    node = tree
    for depth, section in enumerate(sections):
        child = node.get(section)
        if child is None and "kind" in node:  # a kind just set has the section, or is refused for it by name
            child = node[section] = {}
        if not isinstance(child, dict):
            raise RecipeError([Fault(path, _unknown(".".join(sections[:depth]), section, node))])
        node = child
    if name == "kind" and node.get("kind") != value:
        node.clear()
    node[name] = value


def _unknown(section: str, name: str, node: Any) -> str:
    known = ", ".join(node) if isinstance(node, dict) else "none, it is a single value"
    return f"no field {name!r} in {section or 'the recipe'}; known: {known}"


_DEFAULTS = Recipe().tree()
