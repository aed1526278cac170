"""Steps that learn masks or from a teacher, whose recipes and data need files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.trainable.small_runs import data_set, small_recipe
from tests.trainable.small_segmentations import mask_data, mask_recipe, write_masks
from trainable.bench import ON_CPU
from trainable.data import DataSet
from trainable.recipe import Recipe
from trainable.train import train


@dataclass(frozen=True)
class Lesson:
    """What is learnt, masks or classes, and whether a teacher with the same kind of network helps."""

    masks: bool = False
    taught: bool = False
    values: Mapping[str, Any] = field(default_factory=dict)


FP16 = {"precision.kind": "fp16"}
LESSONS = {
    "masks": Lesson(masks=True),
    "masks, scaled windows, classmix": Lesson(
        masks=True, values={"augmentation.crop.kind": "scaled", "augmentation.mixing.kind": "classmix"}
    ),
    "masks, cutmix": Lesson(masks=True, values={"augmentation.mixing.kind": "cutmix"}),
    "masks, trivialaugment": Lesson(masks=True, values={"augmentation.policy.kind": "trivialaugment"}),
    "masks, every loss": Lesson(
        masks=True,
        values={
            "task.loss.dice": 1.0,
            "task.loss.focal": 1.0,
            "task.loss.lovasz": 1.0,
            "regularisation.class_weights.kind": "inverse",
        },
    ),
    "masks, fp16, micro-batches": Lesson(masks=True, values={**FP16, "loop.micro_batch": 2}),
    "masks, loss at the size of the outputs": Lesson(masks=True, values={"task.loss.resolution": "outputs"}),
    "a teacher's logits": Lesson(taught=True),
    "a teacher's logits, mixed images": Lesson(taught=True, values={"augmentation.mixing.kind": "cutmix"}),
    "a teacher's decoupled logits": Lesson(taught=True, values={"distillation.kind": "dkd", **FP16}),
    "a teacher's features": Lesson(taught=True, values={"distillation.kind": "features"}),
    "a teacher's logits of masks": Lesson(masks=True, taught=True),
    "a teacher's features of masks": Lesson(
        masks=True, taught=True, values={"distillation.kind": "features", **FP16}
    ),
}

# Each step reads so many numbers that were never on a device: the seed of mixing
FROM_THE_HOST = {
    "masks, scaled windows, classmix": 1,
    "masks, cutmix": 1,
    "a teacher's logits, mixed images": 1,
}


def asked(lesson: Lesson, folder: Path) -> tuple[Recipe, DataSet]:
    """Return the recipe and the data of a lesson, with its files under a folder."""
    masks, teacher = folder / "masks", folder / "teacher"
    recipe = mask_recipe(write_masks(masks)) if lesson.masks else small_recipe()
    data = mask_data(recipe) if lesson.masks else data_set()
    values = dict(lesson.values)
    if lesson.taught:
        train(recipe, data=data, out=teacher, bench=ON_CPU)
        values["distillation.teacher"] = str(teacher)
    return recipe.with_values(values), data
