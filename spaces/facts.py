"""What the heuristics need to know about the data, the model and the machine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, Field, ValidationError

from trainable.errors import Fault, FaultyInput, faults_of
from trainable.recipe.base import Spec
from trainable.recipe.models import OWN_WEIGHTS
from trainable.recipe.network_cost import Footprint, Speed
from trainable.recipe.optimizers import Optimizer, Positive
from trainable.recipe.tasks import TaskKind

OPTIMIZERS: tuple[str, ...] = tuple(
    each.model_fields["kind"].default for each in get_args(get_args(Optimizer)[0])
)


def rising(band: tuple[float, float]) -> tuple[float, float]:
    """Return the band unchanged. Raises ValueError unless its first end is below its second."""
    if band[0] >= band[1]:
        raise ValueError(f"expected a band [low, high] with low < high, got {list(band)}")
    return band


def known_optimizer(kind: str) -> str:
    """Return the kind unchanged. Raises ValueError for a kind that no recipe can have."""
    if kind not in OPTIMIZERS:
        raise ValueError(f"expected one of {', '.join(OPTIMIZERS)}, got {kind!r}")
    return kind


Count = Annotated[int, Field(ge=1)]
Bytes = Annotated[int, Field(ge=0)]
Band = Annotated[tuple[Positive, Positive], AfterValidator(rising)]
OptimizerName = Annotated[str, AfterValidator(known_optimizer)]

# Facts that a person cannot overwrite, since a search would contradict them: why, or which field to write
NOT_OVERWRITABLE = {
    "task": "write base.task.kind",
    "train_images": "it is counted; data.train_limit uses fewer images",
    "classes": "it is counted",
    "class_balance": "it is counted",
    "classes_count_alike": "write objective.metric",
    "channels": "write data.channels",
    "image_size": "write data.image_size",
    "flips": "write data.flips",
    "epochs": "write budget.epochs",
    "trials": "write budget.trials",
    "cpus": "write resources.cpus",
    "gpus": "write resources.gpus",
    "workers": "write resources.workers",
    "stored_side": "it is measured",
    "longer_side": "it is measured",
    "networks": "they are counted; write space.overrides.model.name",
    "backbone": "write base.model",
    "teacher_parameters": "they are counted; write base.distillation.teacher",
    "footprint": "it is measured; write resources.gpus",
    "speeds": "they are measured; write base.precision.kind or base.precision.channels_last",
}


class Backbone(Spec):
    """A pretrained network of timm's, by name, and its weights as in a recipe: `default`, or a path."""

    name: str = Field(min_length=1)
    weights: str = Field(OWN_WEIGHTS, min_length=1)

    @property
    def published(self) -> bool:
        return self.weights == OWN_WEIGHTS


class NetworkFacts(Spec):
    """What the rules ask of one of several networks that trials choose between."""

    name: str = Field(min_length=1)
    parameters: Count
    attention: bool = False
    batch_norm: bool = True


class FactsError(FaultyInput):
    """The faults of facts that are impossible."""

    subject, section = "facts", "facts"


class Facts(Spec):
    """What the ranges of a Space depend on, alone: measured once before a search, and stored with it.

    A field's description says what the fact is, to be read beside its value with the unit.
    """

    task: TaskKind = Field("classification", description="one label an image, or one a pixel")
    train_images: Count = Field(description="to train on")
    classes: Count = Field(description="of the labels")
    # In a segmentation, of their pixels
    class_balance: float = Field(gt=0.0, le=1.0, description="smallest class divided by largest")
    classes_count_alike: bool = Field(False, description="in the score: a small class as much as a large one")
    channels: Literal[1, 3] = Field(description="of an image")
    image_size: int = Field(ge=4, description="side, as the model sees it")
    flips: tuple[Literal["horizontal", "vertical"], ...] = Field(
        (), description="flips that keep the label true"
    )
    parameters: Count = Field(description="numbers that training adjusts")
    epochs: Count = Field(description="of the longest trial")
    trials: Count = Field(1, description="of the search")
    cpus: Count = Field(description="of a worker")
    gpus: float = Field(ge=0.0, description="of a worker")
    workers: Count = Field(1, description="of a trial")
    gpu_memory_bytes: Bytes | None = Field(None, description="memory of a GPU")
    # None where the study names the network, so that nobody has looked
    stored_side: Count | None = Field(None, description="shorter side of images as stored, if looked at")
    longer_side: Count | None = Field(None, description="longer side of images with masks, in most of them")
    backbone: Backbone | None = Field(None, description="network to start from, where the study names none")
    pretrained: bool = Field(False, description="starts from pretrained weights")
    attention: bool = Field(False, description="the model has attention layers")
    batch_norm: bool = Field(True, description="the model has BatchNorm layers")
    # The facts above are those of the first trial's
    networks: tuple[NetworkFacts, ...] = Field((), description="that model.name chooses between")
    largest_micro_batch: Count | None = Field(None, description="that fit into memory at once")
    # The usual way first; none where nothing was measured
    speeds: tuple[Speed, ...] = Field((), description="of steps, by number format and memory layout")
    # None where the base recipe has no section `distillation`
    teacher_parameters: Count | None = Field(None, description="numbers that the teacher was trained in")
    # None where it is not measured how many trials share a GPU
    footprint: Footprint | None = Field(None, description="that a trial takes of a GPU")
    lr_band: Band | None = Field(None, description="rates that a sweep recommends")  # at batch 256
    # None: the documented recipe's
    lr_band_kind: OptimizerName | None = Field(None, description="optimizer of that sweep")

    @classmethod
    def from_tree(cls, tree: Mapping[str, Any], where: str = "") -> Facts:
        """Return the facts from plain data, as `tree` writes them. Raises FactsError with every fault."""
        try:
            return cls.model_validate_json(json.dumps(tree))
        except (TypeError, ValueError) as error:
            faults = (
                faults_of(error, tree, cls)
                if isinstance(error, ValidationError)
                else [Fault("", f"not plain data: {error}")]
            )
            raise FactsError(faults, where) from None

    def of_network(self, name: object) -> Facts:
        """Return the facts of the trials that have this network; the same where it is none of `networks`."""
        found = next((each for each in self.networks if each.name == name), None)
        if found is None:
            return self
        return self.model_copy(update=found.model_dump(exclude={"name"}))

    def tree(self) -> dict[str, Any]:
        """Return the facts as plain data, ready for JSON."""
        return self.model_dump(mode="json")


class WrittenFacts(Spec):
    """The facts that a person writes to replace measured ones; None leaves a fact as measured."""

    parameters: Count | None = Field(None, description="of the network")
    gpu_memory_bytes: Bytes | None = Field(None, description="of one GPU")
    pretrained: bool | None = Field(None, description="whether the network starts from pretrained weights")
    attention: bool | None = Field(None, description="whether the network has attention")
    batch_norm: bool | None = Field(None, description="whether the network has BatchNorm")
    largest_micro_batch: Count | None = Field(None, description="images that fit into memory at once")
    lr_band: Band | None = Field(None, description="learning rates that train well, lowest and highest")
    lr_band_kind: OptimizerName | None = Field(None, description="the optimizer of lr_band")

    def values(self) -> dict[str, Any]:
        """Return the facts that are written, by name."""
        return {name: value for name, value in self if value is not None}
