"""Makes facts and recipes of many kinds, and values drawn from the rules, for the tests of the rules."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from spaces.domains import Value
from spaces.facts import Facts
from spaces.priors import Weights, quantile_value
from spaces.rules.heuristics import fixed_by_rule
from spaces.rules.rules import RULES, Rule
from spaces.rules.rulings import Distribution
from tests.spaces.small_facts import MILLION, base_recipe, digits_facts, imagenet_facts, masks_facts
from trainable.recipe import Recipe

PRETRAINED = {"model__kind": "torchvision", "model__name": "resnet50", "model__weights": "default"}

TUNED_MASKS = masks_facts(
    train_images=10_582,
    classes=21,
    image_size=512,
    longer_side=500,
    parameters=32_500_000,
    epochs=45,
    gpus=1.0,
    pretrained=True,
)
TUNED_UNET = {"model__kind": "smp", "model__encoder": "resnet50", "model__weights": "default"}

# Facts, and what a person pinned, with `__` for the dot
CASES: dict[str, tuple[Facts, dict[str, Any]]] = {
    "digits": (digits_facts(), {}),
    "Fashion-MNIST": (digits_facts(train_images=10_000, image_size=28, epochs=6), {}),
    "signs": (digits_facts(train_images=1_442, image_size=32, channels=3), {}),
    "CIFAR with ResNet18": (
        imagenet_facts(train_images=45_000, classes=10, image_size=32, parameters=11_200_000, epochs=200),
        {},
    ),
    "ImageNet with ResNet50": (imagenet_facts(epochs=90), {}),
    "the same at batch 4,096": (imagenet_facts(epochs=90, gpus=8.0), {"loop__batch_size": 4096}),
    "MobileNet": (imagenet_facts(parameters=3_500_000, epochs=240), {}),
    "a transformer": (
        imagenet_facts(parameters=86 * MILLION, attention=True, epochs=300),
        {"model__kind": "timm", "model__name": "vit_base_patch16_224", "loop__batch_size": 1024},
    ),
    "500 images, pretrained": (imagenet_facts(train_images=500, epochs=20, pretrained=True), PRETRAINED),
    "200,000 images, pretrained": (
        imagenet_facts(train_images=200_000, epochs=10, pretrained=True, largest_micro_batch=8),
        PRETRAINED,
    ),
    "unequal classes": (digits_facts(class_balance=0.01, classes_count_alike=True), {}),
    "one epoch": (digits_facts(epochs=1), {}),
    "two classes": (digits_facts(classes=2, image_size=64, parameters=30 * MILLION), {}),
    "a sweep's band": (imagenet_facts(lr_band=(0.3, 3.0), lr_band_kind="sgd"), {}),
    "masks": (masks_facts(), {}),
    "masks, one epoch": (masks_facts(epochs=1, classes_count_alike=False), {}),
    "masks, pretrained": (TUNED_MASKS, TUNED_UNET),
    "masks, dilated": (TUNED_MASKS, {**TUNED_UNET, "model__name": "deeplabv3plus"}),
    "three images": (digits_facts(train_images=3, epochs=1), {}),
}


def settled_recipe(facts: Facts, **pinned: Any) -> Recipe:
    """Return the documented recipe for the facts, around what is pinned."""
    base = base_recipe(facts, **pinned)
    return base.with_values(fixed_by_rule(facts, base, {path.replace("__", ".") for path in pinned}))


def settled(facts: Facts, **pinned: Any) -> dict[str, Any]:
    """Return every value of the documented recipe, by dotted path."""
    return dict(settled_recipe(facts, **pinned).leaves())


def rule(name: str) -> Rule:
    """Return the rule of this name that needs no request; else the optional one."""
    return named(name)[0]


def named(name: str) -> list[Rule]:
    """Return the rules of this name, of which one at most speaks; the optional ones last."""
    return sorted((each for each in RULES if each.name == name), key=lambda each: each.optional)


def asked(name: str, facts: Facts, **values: Any) -> Distribution:
    """Return what the rule of a name says for facts and for values set by dotted path (`__` for the dot)."""
    changes = {path.replace("__", "."): values[path] for path in values}
    said = [each.of(facts, settled(facts) | changes) for each in named(name)]
    found = next((each for each in said if each is not None), None)
    assert found is not None, f"{name} says nothing"
    return found


def silent(name: str, facts: Facts, **values: Any) -> bool:
    """Say whether the rules of a name say nothing, of which optional ones count only where all are."""
    changes = {path.replace("__", "."): values[path] for path in values}
    asked_first = [each for each in named(name) if each.optional == rule(name).optional]
    return all(each.of(facts, settled(facts) | changes) is None for each in asked_first)


def centre(found: Distribution) -> float:
    """Return the centre of a prior of numbers."""
    assert not isinstance(found.prior, Weights)
    return float(getattr(found.prior, "centre"))  # noqa: B009


def shares(found: Distribution) -> dict[Value, float]:
    """Return how likely each option is."""
    assert isinstance(found.prior, Weights)
    return dict(zip(found.domain.extremes(), found.prior.shares, strict=True))


def draws(facts: Facts, values: Mapping[str, Any], fractions: Mapping[str, float]) -> dict[str, Value]:
    """Return a value of every rule that speaks, optional ones too, each at its fraction of its prior."""
    found: dict[str, Value] = {}
    for each in RULES:
        known = {**values, **found}
        if each.when is not None and known.get(each.when.path) not in each.when.values:
            continue
        if each.path not in found and (said := each.of(facts, known)) is not None:
            found[each.path] = quantile_value(said.domain, said.prior, fractions[each.name])
    return found


def logarithmic(low: float, high: float) -> st.SearchStrategy[int]:
    """Return whole numbers spread evenly over their logarithm."""
    return st.floats(math.log(low), math.log(high)).map(lambda each: round(math.exp(each)))


bands = st.tuples(st.floats(1e-5, 1.0), st.floats(1.5, 1e4)).map(lambda pair: (pair[0], pair[0] * pair[1]))

# Facts of any size; the documented recipe fits them
any_facts: st.SearchStrategy[Facts] = st.builds(
    digits_facts,
    task=st.sampled_from(("classification", "segmentation")),
    train_images=logarithmic(1, 1e7),
    classes=st.integers(2, 1000),
    channels=st.sampled_from((1, 3)),
    image_size=st.integers(4, 512),
    parameters=logarithmic(1e3, 1e9),
    epochs=logarithmic(1, 1000),
    gpus=st.sampled_from((0.0, 0.5, 1.0, 8.0)),
    pretrained=st.booleans(),
    attention=st.booleans(),
    batch_norm=st.booleans(),
    class_balance=st.floats(0.001, 1.0),
    classes_count_alike=st.booleans(),
    largest_micro_batch=st.none() | logarithmic(1, 4096),
    lr_band=st.none() | bands,
)
