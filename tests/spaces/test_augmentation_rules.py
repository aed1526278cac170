"""Which random changes are tried, by the size of the images, of the model and of the run: as tables."""

from typing import Any

import pytest

from spaces import augmentations
from spaces.domains import Choice, Float, Integer
from tests.spaces.small_facts import MILLION, digits_facts, imagenet_facts


@pytest.mark.parametrize(
    ("side", "kind"),
    [(8, "none"), (15, "none"), (16, "pad"), (28, "pad"), (64, "pad"), (65, "resized"), (224, "resized")],
)
def test_the_crop_suits_the_images(side: int, kind: str) -> None:
    assert augmentations.crop_kind(digits_facts(image_size=side)).what == kind


@pytest.mark.parametrize("side", [8, 28, 224])
def test_short_runs_see_the_images_whole(side: int) -> None:
    assert augmentations.crop_kind(digits_facts(image_size=side, epochs=9)).what == "none"


@pytest.mark.parametrize(
    ("side", "low", "high"), [(8, 1, 2), (16, 1, 3), (28, 1.75, 5.25), (32, 2, 6), (64, 4, 12)]
)
def test_shifts_lie_around_4_of_32_pixels(side: int, low: float, high: float) -> None:
    facts = digits_facts(image_size=side)
    assert augmentations.crop_fractions(facts).what == Float(low / side, high / side)
    assert augmentations.crop_fraction(facts).what == 4 / 32


@pytest.mark.parametrize(
    ("model", "parameters", "own", "lowest"),
    [
        ("MobileNetV2 x0.25", 1.5 * MILLION, 0.2, 0.1),
        ("MobileNetV2", 3.5 * MILLION, 0.16, 0.08),
        ("ResNet18", 11.7 * MILLION, 0.08, 0.08),
        ("ResNet50", 25.6 * MILLION, 0.08, 0.08),
    ],
)
def test_very_small_nets_get_larger_crops(model: str, parameters: float, own: float, lowest: float) -> None:
    facts = imagenet_facts(parameters=int(parameters))
    assert augmentations.crop_scale(facts).what == own, model
    assert augmentations.crop_scales(facts).what == Float(lowest, 0.6, log=True), model


def test_pretrained_weights_get_larger_crops() -> None:
    facts = imagenet_facts(pretrained=True)
    assert augmentations.crop_scale(facts).what == 0.35
    assert augmentations.crop_scales(facts).what == Float(0.175, 0.6, log=True)


@pytest.mark.parametrize(
    ("parameters", "low", "high"),
    [(77_754, 1, 9), (1.5 * MILLION, 1, 9), (5 * MILLION, 2, 11), (25 * MILLION, 5, 15), (1e9, 5, 15)],
)
def test_larger_nets_get_stronger_distortions(parameters: float, low: int, high: int) -> None:
    assert augmentations.magnitudes(imagenet_facts(parameters=int(parameters))).what == Integer(low, high)


@pytest.mark.parametrize(
    ("changes", "policies"),
    [
        ({}, ("none", "randaugment")),
        ({"image_size": 24}, ("none", "randaugment")),
        ({"image_size": 23}, None),
        ({"epochs": 10}, ("none", "randaugment")),
        ({"epochs": 9}, None),
        ({"parameters": 10_000}, ("none", "randaugment")),
    ],
)
def test_a_policy_is_tried_in_long_runs_on_images_that_bear_it(
    changes: dict[str, Any], policies: tuple[str, ...] | None
) -> None:
    ruling = augmentations.policies(imagenet_facts(**changes))
    assert (ruling.what if ruling else None) == (Choice(policies) if policies else None)


@pytest.mark.parametrize(
    ("changes", "tried"),
    [({}, True), ({"image_size": 8}, False), ({"epochs": 9}, False), ({"parameters": 1_000_000}, False)],
)
def test_erasing_is_not_for_very_small_nets(changes: dict[str, Any], tried: bool) -> None:
    ruling = augmentations.maskings(imagenet_facts(**changes))
    assert (ruling.what if ruling else None) == (Choice(("none", "erasing")) if tried else None)


def test_at_most_half_of_the_images_are_erased_as_in_the_paper() -> None:
    facts = imagenet_facts()
    assert augmentations.erasing_probability(facts).what == 0.5
    assert augmentations.erasing_probabilities(facts).what == Choice((0.25, 0.5))


@pytest.mark.parametrize(
    ("changes", "kinds", "alphas"),
    [
        ({}, ("none", "mixup", "cutmix"), (0.1, 1.0)),
        ({"parameters": 10 * MILLION}, ("none", "mixup", "cutmix"), (0.074, 0.5)),
        ({"parameters": 10 * MILLION - 1}, ("none", "mixup"), (0.074, 0.5)),
        ({"parameters": 77_754}, ("none", "mixup"), (0.05, 0.2)),
        ({"epochs": 9}, None, (0.1, 1.0)),
    ],
)
def test_small_nets_mix_weakly_and_never_cut(
    changes: dict[str, Any], kinds: tuple[str, ...] | None, alphas: tuple[float, float]
) -> None:
    facts = imagenet_facts(**changes)
    ruling = augmentations.mixings(facts)
    assert (ruling.what if ruling else None) == (Choice(kinds) if kinds else None)
    assert augmentations.mixup_alphas(facts).what == Float(*alphas, log=True)


def test_the_reason_names_the_flips_that_are_allowed() -> None:
    assert "none here" in augmentations.flip_probability(digits_facts()).reason
    assert "horizontal" in augmentations.flip_probability(imagenet_facts()).reason
