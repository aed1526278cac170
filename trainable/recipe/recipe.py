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
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, Self, assert_never

from pydantic import ValidationError, model_validator

from trainable.errors import Fault, RecipeError, faults_of
from trainable.recipe import version1
from trainable.recipe.augmentations import Augmentation
from trainable.recipe.base import Purpose, Spec
from trainable.recipe.data import Data, decisive
from trainable.recipe.distillation import (
    DEFAULT_KIND,
    MODEL,
    OF_ANY_KIND,
    SECTION,
    TEACHER,
    Distillation,
    FeaturesTaught,
)
from trainable.recipe.models import Model, ResNetSmall, network_in_words, path_in_words, weights_in_words
from trainable.recipe.optimizers import SGD, Optimizer
from trainable.recipe.provenance import Provenance
from trainable.recipe.schedules import Cosine, Schedule
from trainable.recipe.tasks import TASKS, Classification, Segmentation, TaskSpec
from trainable.recipe.training import Evaluation, Loop, Precision, Regularisation
from trainable.recipe.trees import NoSuchPath, NotPlain, Tree, as_json, leaves, value_at, with_value

REFERENCE_BATCH = 256  # at which every learning rate is stated (Goyal et al., arXiv 1706.02677, section 2.1)
LEARNING_RATES = ("optimizer.lr", "optimizer.sgd_lr")  # fields with a rate at this batch
OPTIONAL = (SECTION, "provenance")  # sections of which a recipe may have no trace
NO_MASKS = ("digits", "idx", "datasets")  # formats of data


class Recipe(Spec):
    """One training run, whole.

    Equal digests mean equal runs on the same data, weights to begin from, machine and versions.
    """

    version: Annotated[Literal[2], Purpose("the file's format", "ours")] = 2
    task: TaskSpec = Classification()
    data: Data = Data()
    model: Model = ResNetSmall()
    optimizer: Optimizer = SGD()
    schedule: Schedule = Cosine()
    regularisation: Regularisation = Regularisation()
    augmentation: Augmentation = Augmentation()
    precision: Precision = Precision()
    loop: Loop = Loop()
    evaluation: Evaluation = Evaluation()
    distillation: Annotated[
        Distillation | None,
        Purpose("what is learnt from a teacher, beside the labels", "arXiv 1503.02531, 2106.05237"),
    ] = None
    provenance: Provenance | None = None

    @model_validator(mode="after")
    def fields_agree(self) -> Self:
        if self.schedule.warmup_epochs >= self.loop.epochs and self.schedule.warmup_epochs > 0:
            raise ValueError(
                f"schedule.warmup_epochs {self.schedule.warmup_epochs:g} must be below "
                f"loop.epochs {self.loop.epochs}"
            )
        if self.loop.micro_batch is not None and self.loop.micro_batch > self.loop.batch_size:
            raise ValueError(
                f"loop.micro_batch {self.loop.micro_batch} is above loop.batch_size {self.loop.batch_size}"
            )
        if problems := list(_misfits(self)):
            raise ValueError("; ".join(problems))
        return self

    @classmethod
    def from_tree(cls, tree: Mapping[str, Any], where: str = "") -> Recipe:
        """Return the recipe that a nested mapping describes; fields left out take their defaults.

        A mapping of version 1 is converted. Raises RecipeError with every fault at once, each with its dotted
        path; `where` names the source.
        """
        try:
            whole = _with_defaults(version1.converted(tree))
            text = as_json(whole)
        except RecipeError as error:
            raise RecipeError(error.faults, where) from None
        except NotPlain as error:
            raise RecipeError([Fault(error.path, str(error))], where) from error
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            in_its_words = version1.as_written if version1.is_version_1(tree) else version1.with_advice
            raise RecipeError(
                [in_its_words(fault) for fault in faults_of(error, whole, cls)], where
            ) from None

    def tree(self) -> dict[str, Any]:
        """Return the recipe as nested plain data: every field, and the provenance if there is one."""
        return self._dumped(set())

    def _dumped(self, without: set[str]) -> dict[str, Any]:
        absent = {name for name in OPTIONAL if getattr(self, name) is None}
        return self.model_dump(mode="json", exclude=absent | without)

    def leaves(self) -> Iterator[tuple[str, Any]]:
        """Yield every dotted path with its value, without the provenance; a list is one value."""
        return leaves(self._dumped({"provenance"}))

    @property
    def sentence(self) -> str:
        """What is trained, in words: "timm tf_efficientnet_lite0, pretrained, 64 px, Muon at 0.1 a batch of
        256, one cycle"."""
        model, optimizer, frozen = self.model, self.optimizer, self.model.freeze_epochs
        parts = [network_in_words(model), weights_in_words(model.weights)]
        if self.data.image_size is not None:
            parts.append(f"{self.data.image_size} px")
        parts += [
            f"{optimizer.title} at {optimizer.lr:.3g} a batch of {REFERENCE_BATCH}",
            self.schedule.title,
        ]
        if frozen >= self.loop.epochs:
            parts.append("body frozen")
        elif frozen:
            parts.append(f"body frozen for {frozen} of {self.loop.epochs} epochs")
        if self.distillation is not None:
            parts.append(f"taught by {path_in_words(self.distillation.teacher)}")
        return ", ".join(parts)

    def sentence_at(self, image_size: int) -> str:
        """Return the sentence with the side of images in pixels, which a recipe may leave to its data."""
        data = self.data.model_copy(update={"image_size": image_size})
        return self.model_copy(update={"data": data}).sentence

    @property
    def awaits_timing(self) -> bool:
        """Whether it leaves the number format, or whether to compile, to timed steps."""
        return self.precision.kind == "auto" or self.loop.compile == "auto"

    def digest(self) -> str:
        """Return twelve hexadecimal digits that depend on every field but the provenance, `data.cache`
        and `data.leaks`, which change no result."""
        return digest_of(self._dumped({"provenance"}))

    @property
    def short_digest(self) -> str:
        """The first eight digits of the digest, for people to tell recipes apart."""
        return self.digest()[:8]

    def get(self, path: str) -> Any:
        """Return the value at a dotted path, such as `optimizer.lr`. Raises RecipeError for unknown ones."""
        try:
            return value_at(self.tree(), path)
        except NoSuchPath as error:
            raise RecipeError([version1.with_advice(_unknown(path, error))]) from None

    def with_values(self, values: Mapping[str, Any]) -> Recipe:
        """Return a copy with other values by dotted path, such as `{"optimizer.lr": 1e-3}`.

        Setting a `kind` to another one first resets that section to the new kind's defaults; the teacher of a
        `distillation` stays. Raises RecipeError with every fault.
        """
        return Recipe.from_tree(tree_with_values(self.tree(), values))


def _misfits(recipe: Recipe) -> Iterator[str]:
    """Yield what is wrong with fields that the recipe's task, or what its teacher says, cannot have: which
    one, what was expected, and what was got."""
    task = recipe.task
    found = (
        ("model.kind", recipe.model.kind, task.networks),
        ("augmentation.mixing.kind", recipe.augmentation.mixing.kind, task.mixings),
        ("augmentation.crop.kind", recipe.augmentation.crop.kind, task.crops),
        *(("evaluation.metrics", each.kind, task.metrics) for each in recipe.evaluation.metrics),
    )
    for path, kind, known in found:
        if kind not in known:
            yield f"{path} {kind} does not go with task.kind {task.kind}: expected {', '.join(known)}"
    match task:
        case Classification():
            pass
        case Segmentation():
            yield from _of_masks(recipe)
        case _:
            assert_never(task)
    if isinstance(recipe.distillation, FeaturesTaught) and recipe.loop.compile:
        yield "loop.compile: distillation.kind features reads what a compiled network hides; set it to false"


def _of_masks(recipe: Recipe) -> Iterator[str]:
    if recipe.data.format in NO_MASKS:
        yield f"data.format {recipe.data.format}: these data have no masks, which a segmentation needs"
    if recipe.evaluation.resize.kind != "stretch":
        yield "evaluation.resize: images with masks keep their size; leave it out"
    if recipe.model.frozen_views is not None:
        yield "model.frozen_views: features of pixels are not kept; leave it out"


def digest_of(recipe: Tree) -> str:
    """Return the digest of a whole recipe, without a provenance, that is plain data."""
    data = recipe.get("data")
    if isinstance(data, Mapping):
        recipe = {**recipe, "data": decisive(data)}
    task = recipe.get("task")
    if isinstance(task, Mapping) and isinstance(masks := task.get("masks"), Mapping):
        # Recipes of earlier versions have no threshold, and keep their digest.
        known = {name: value for name, value in masks.items() if name != "threshold" or value is not None}
        recipe = {**recipe, "task": {**task, "masks": known}}
    return hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()[:12]


def _with_defaults(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy with the kinds that are left out, among them the first network of the task."""
    task = tree.get("task")
    kind = task.get("kind") if isinstance(task, Mapping) else None
    if not isinstance(kind, str) or kind not in TASKS:
        return _with_kinds(tree, _DEFAULTS)
    return _with_kinds({"model": {}, **tree}, {**_DEFAULTS, "model": {"kind": TASKS[kind].networks[0]}})


def _with_kinds(tree: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy in which every section that leaves out its `kind` has the default one."""
    copy = {
        name: _with_kinds(value, defaults[name])
        if isinstance(value, Mapping) and isinstance(defaults.get(name), Mapping)
        else value
        for name, value in tree.items()
    }
    return {"kind": defaults["kind"], **copy} if "kind" in defaults and "kind" not in copy else copy


def tree_with_values(tree: Tree, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recipe's tree with other values by dotted path, kinds first. Raises RecipeError."""
    changed = _with_section(dict(tree), values)
    for path in sorted(values, key=lambda path: (not path.endswith(".kind"), path.count("."), path)):
        changed = _with_value(changed, path, values[path])
    return changed


def _with_value(tree: Tree, path: str, value: Any) -> dict[str, Any]:
    """Return a copy with one other value; a changed `kind` empties its section: its defaults apply."""
    *sections, name = path.split(".")
    try:
        changed = with_value(tree, [*sections, name], value, _has_kind)
        if sections and name == "kind" and tree != changed:
            return with_value(tree, sections, {**_of_any_kind(tree, sections), "kind": value}, _has_kind)
        return changed
    except NoSuchPath as error:
        raise RecipeError([version1.with_advice(_unknown(path, error))]) from None


def _with_section(tree: dict[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tree with a section `distillation` to write to, if values name a teacher that it has not.
    Raises RecipeError for values of that section which name none."""
    inside = sorted(path for path in values if path.startswith(f"{SECTION}."))
    if not inside or tree.get(SECTION) is not None:
        return tree
    if TEACHER not in values:
        message = f"this recipe learns from no teacher; write {TEACHER}, a folder that `train --out` left"
        raise RecipeError([Fault(path, message) for path in inside])
    return {**tree, SECTION: {"kind": DEFAULT_KIND}}


def _of_any_kind(tree: Tree, sections: Sequence[str]) -> dict[str, Any]:
    """Return the fields of a section that a change of its kind leaves as they are."""
    if list(sections) != [SECTION]:
        return {}
    return {name: value for name, value in tree[SECTION].items() if name in OF_ANY_KIND}


def _has_kind(section: Tree) -> bool:
    """Say where a section may be added: a kind that was just set has it, or the recipe refuses its name."""
    return "kind" in section


def _unknown(path: str, error: NoSuchPath) -> Fault:
    known = ", ".join(error.node) if isinstance(error.node, Mapping) else "none, it is a single value"
    return Fault(path, f"no field {error.name!r} in {error.section or 'the recipe'}; known: {known}")


_DEFAULTS = Recipe().tree()
_DEFAULTS[SECTION] = {"kind": DEFAULT_KIND, MODEL: _DEFAULTS["model"]}
