"""Tests which random changes are tried, by the size of the images, the model and the run: as tables."""

from typing import Any

import pytest

from spaces.domains import Float, Integer
from spaces.rules import augmentations
from tests.spaces.rules.rule_facts import asked, centre, shares, silent
from tests.spaces.small_facts import MILLION, digits_facts, imagenet_facts

CROP, POLICY, MASKING, MIXING = (
    f"augmentation.{section}.kind" for section in ("crop", "policy", "masking", "mixing")
)
LONG = {"epochs": 300}


@pytest.mark.parametrize(
    ("side", "kind"),
    [(8, "none"), (15, "none"), (16, "pad"), (28, "pad"), (64, "pad"), (65, "resized"), (224, "resized")],
)
def test_the_crop_suits_the_images(side: int, kind: str) -> None:
    assert augmentations.crop_kind(digits_facts(image_size=side)).what == kind
    assert silent(CROP, digits_facts(image_size=side)) == (kind != "pad")


@pytest.mark.parametrize("side", [8, 28, 224])
def test_short_runs_see_the_images_whole(side: int) -> None:
    facts = digits_facts(image_size=side, epochs=9)
    assert augmentations.crop_kind(facts).what == "none"
    assert silent(CROP, facts)


@pytest.mark.parametrize(
    ("images", "epochs", "share"),
    [(1_000, 20, 0.6), (1_500, 20, 0.6), (30_000, 10, 0.693), (30_000, 100, 0.8), (45_000, 200, 0.8)],
)
def test_small_images_are_shifted_more_often_in_runs_that_see_many(
    images: int, epochs: int, share: float
) -> None:
    facts = digits_facts(image_size=32, train_images=images, epochs=epochs)
    assert shares(asked(CROP, facts))["pad"] == pytest.approx(share, abs=0.005)


@pytest.mark.parametrize("side", [8, 16, 28, 32, 64])
def test_shifts_lie_around_4_of_32_pixels_in_long_runs_and_nearer_in_short_ones(side: int) -> None:
    short, long = (
        asked("augmentation.crop.fraction", digits_facts(image_size=side, train_images=images, epochs=100))
        for images in (300, 30_000)
    )
    assert short.domain == long.domain == Float(1 / side, 0.25, log=True)
    assert centre(long) == pytest.approx(4 / 32)
    assert centre(short) == pytest.approx(max(1.5 / 32, 1 / side), rel=0.02)
    assert augmentations.crop_fraction(digits_facts(image_size=side)).what == 4 / 32


def test_shifts_of_the_tiniest_images_are_one_or_two_pixels() -> None:
    found = asked("augmentation.crop.fraction", digits_facts(image_size=4))
    assert (found.domain, centre(found)) == (Float(0.25, 0.5, log=True), 0.25)


@pytest.mark.parametrize(
    ("model", "parameters", "own"),
    [
        ("MobileNetV2 x0.25", 1.5 * MILLION, 0.2),
        ("MobileNetV2", 3.5 * MILLION, 0.16),
        ("ResNet18", 11.7 * MILLION, 0.08),
        ("ResNet50", 25.6 * MILLION, 0.08),
    ],
)
def test_very_small_nets_get_larger_crops(model: str, parameters: float, own: float) -> None:
    facts = imagenet_facts(parameters=int(parameters))
    found = asked("augmentation.crop.scale_min", facts)
    assert augmentations.crop_scale(facts).what == own, model
    assert (found.domain, centre(found)) == (Float(0.08, 0.8, log=True), own), model


def test_pretrained_weights_get_larger_crops() -> None:
    facts = imagenet_facts(pretrained=True)
    assert augmentations.crop_scale(facts).what == 0.35
    assert centre(asked("augmentation.crop.scale_min", facts)) == 0.35


@pytest.mark.parametrize(
    ("parameters", "ratio"),
    [(77_754, 0.9), (1.5 * MILLION, 0.9), (3 * MILLION, 0.82), (6 * MILLION, None), (25 * MILLION, None)],
)
def test_very_small_nets_get_crops_that_are_nearly_square(parameters: float, ratio: float | None) -> None:
    ruling = augmentations.crop_ratio(imagenet_facts(parameters=int(parameters)))
    assert (ruling.what if ruling else None) == ratio
    assert augmentations.crop_ratio(imagenet_facts(parameters=int(parameters), pretrained=True)) is None


@pytest.mark.parametrize(
    ("parameters", "magnitude"), [(77_754, 5), (1.5 * MILLION, 5), (25 * MILLION, 9), (1e9, 9)]
)
def test_larger_nets_get_stronger_distortions(parameters: float, magnitude: int) -> None:
    found = asked("augmentation.policy.magnitude", imagenet_facts(parameters=int(parameters)))
    assert (found.domain, centre(found)) == (Integer(1, 20), magnitude)


@pytest.mark.parametrize(
    ("changes", "tried"),
    [
        ({}, True),
        ({"image_size": 24}, True),
        ({"image_size": 23}, False),
        ({"epochs": 10}, True),
        ({"epochs": 9}, False),
        ({"parameters": 10_000}, True),
    ],
)
def test_a_policy_is_tried_in_long_runs_on_images_that_bear_it(changes: dict[str, Any], tried: bool) -> None:
    assert silent(POLICY, imagenet_facts(**changes)) == (not tried)


def test_policies_are_as_likely_as_the_table_of_gains_asks_in_a_long_run() -> None:
    likely = shares(asked(POLICY, imagenet_facts(**LONG)))
    assert likely == pytest.approx(
        {"none": 0.3, "trivialaugment": 0.3, "randaugment": 0.25, "autoaugment": 0.15}
    )


@pytest.mark.parametrize(
    ("changes", "tried"),
    [({}, True), ({"image_size": 8}, False), ({"epochs": 9}, False), ({"parameters": 1_000_000}, False)],
)
def test_masks_are_not_for_very_small_nets(changes: dict[str, Any], tried: bool) -> None:
    assert silent(MASKING, imagenet_facts(**changes)) == (not tried)


def test_masks_are_as_likely_as_the_record_in_a_long_run() -> None:
    likely = shares(asked(MASKING, imagenet_facts(**LONG)))
    assert likely == pytest.approx(
        {"none": 0.5, "erasing": 0.25, "cutout": 0.1, "gridmask": 0.1, "hide_and_seek": 0.05}
    )


@pytest.mark.parametrize("path", [POLICY, MASKING, MIXING])
def test_augmentation_grows_likelier_with_epochs_and_parameters(path: str) -> None:
    by_epochs = [shares(asked(path, imagenet_facts(epochs=n)))["none"] for n in (10, 20, 50, 100, 300)]
    sizes = (int(1.5 * MILLION), 5 * MILLION, 12 * MILLION, 25 * MILLION)
    by_size = [shares(asked(path, imagenet_facts(parameters=n, **LONG)))["none"] for n in sizes]
    assert by_epochs == sorted(by_epochs, reverse=True)
    assert by_size == sorted(by_size, reverse=True)
    assert by_epochs[0] > by_epochs[-1]
    assert by_size[0] > by_size[-1]


@pytest.mark.parametrize("path", [POLICY, MASKING])
def test_images_are_distorted_less_often_in_runs_that_see_few(path: str) -> None:
    found = [shares(asked(path, imagenet_facts(train_images=n)))["none"] for n in (250, 2_500, 25_000)]
    assert found == sorted(found, reverse=True)
    assert 1.0 - found[0] == pytest.approx(0.4 * (1.0 - found[2]))


@pytest.mark.parametrize(("parameters", "share"), [(1.5 * MILLION, 0.25), (25 * MILLION, 0.5), (1e9, 0.5)])
def test_half_of_the_images_are_erased_as_in_the_paper_and_fewer_for_small_nets(
    parameters: float, share: float
) -> None:
    facts = imagenet_facts(parameters=int(parameters))
    assert augmentations.erasing_probability(facts).what == 0.5
    assert centre(asked("augmentation.masking.probability", facts)) == share


@pytest.mark.parametrize(
    ("parameters", "likely"),
    [
        (25 * MILLION, {"none": 0.3, "mixup": 0.3, "cutmix": 0.4}),
        (10 * MILLION, {"none": 0.7, "mixup": 0.25, "cutmix": 0.05}),
        (10 * MILLION - 1, {"none": 0.7, "mixup": 0.3}),
        (77_754, {"none": 0.7, "mixup": 0.3}),
    ],
)
def test_large_nets_are_mixed_most_and_small_ones_never_cut(
    parameters: int, likely: dict[str, float]
) -> None:
    assert shares(asked(MIXING, imagenet_facts(parameters=parameters, **LONG))) == pytest.approx(likely)


def test_short_runs_are_not_mixed() -> None:
    assert silent(MIXING, imagenet_facts(epochs=9))


@pytest.mark.parametrize(
    ("changes", "alpha"),
    [
        ({}, 0.2),
        ({"train_images": 50_000, "parameters": 11_200_000}, 1.0),
        ({"train_images": 50_000, "parameters": 3 * MILLION}, 0.1),
        ({"parameters": 77_754}, 0.1),
    ],
)
def test_mixup_is_as_strong_as_the_paper_has_it_on_imagenet_and_cifar_and_weak_for_small_nets(
    changes: dict[str, Any], alpha: float
) -> None:
    assert centre(asked("augmentation.mixing.alpha[mixup]", imagenet_facts(**changes))) == pytest.approx(
        alpha
    )


def test_cutmix_pastes_even_shares() -> None:
    assert centre(asked("augmentation.mixing.alpha[cutmix]", imagenet_facts())) == 1.0


def test_the_reason_names_the_flips_that_are_allowed() -> None:
    assert "none here" in augmentations.flip_probability(digits_facts()).reason
    assert "horizontal" in augmentations.flip_probability(imagenet_facts()).reason
