"""Facts and recipes that the tests of the spaces share."""

from typing import Any

from spaces.facts import Facts
from trainable.recipe import Recipe

MILLION = 1_000_000
# They describe a ResNet50 on ImageNet-1k: the documents' numbers were found on it
IMAGENET: dict[str, Any] = {
    "train_images": 1_280_000,
    "classes": 1000,
    "channels": 3,
    "image_size": 224,
    "flips": ("horizontal",),
    "parameters": 25_600_000,
    "epochs": 120,
    "cpus": 8,
    "gpus": 1.0,
    "gpu_memory_bytes": 80 * 2**30,
}


def digits_facts(**changes: Any) -> Facts:
    """Return the facts of scikit-learn's digits on two cores, with changes."""
    digits: dict[str, Any] = {
        "train_images": 1257,
        "classes": 10,
        "class_balance": 0.95,
        "channels": 1,
        "image_size": 8,
        "parameters": 77_754,
        "epochs": 20,
        "cpus": 1,
        "gpus": 0.0,
    }
    return Facts(**{**digits, **changes})


def imagenet_facts(**changes: Any) -> Facts:
    """Return the facts of a ResNet50 on ImageNet-1k and one GPU, with changes."""
    return digits_facts(**{**IMAGENET, **changes})


def masks_facts(**changes: Any) -> Facts:
    """Return the facts of 42 images of nuclei with masks and a small U-Net on a CPU, with changes."""
    masks: dict[str, Any] = {
        "task": "segmentation",
        "train_images": 42,
        "classes": 2,
        "class_balance": 0.09,
        "classes_count_alike": True,
        "channels": 3,
        "image_size": 128,
        "longer_side": 256,
        "parameters": 482_834,
    }
    return digits_facts(**{**masks, **changes})


def base_recipe(facts: Facts, **values: Any) -> Recipe:
    """Return the default recipe of the facts' length, with values by dotted path (`__` for the dot)."""
    written = {path.replace("__", "."): value for path, value in values.items()}
    plain = Recipe.from_tree({"task": {"kind": facts.task}})
    return plain.with_values({"loop.epochs": facts.epochs, **written})
