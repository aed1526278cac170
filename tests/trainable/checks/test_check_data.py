"""Tests checks of images and labels alone: what they measure, and where their bounds lie."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tests.lite_weights import write_weights
from tests.trainable.small_images import truncate, write_noise_jpeg
from tests.trainable.small_runs import data_set, small_recipe
from trainable.checks.check import check, check_data
from trainable.checks.duplicates import Comparison, check_duplicates
from trainable.checks.finding import CheckName, Finding, Level, counts
from trainable.checks.images import check_decoding, check_normalisation, check_pixels
from trainable.checks.imbalance import check_accuracy
from trainable.checks.labels import check_labels
from trainable.checks.sampling import in_memory, largest_classes, pixels
from trainable.checks.shuffled_labels import check_shuffled
from trainable.checks.subject import make_subject
from trainable.data import ArrayPart, DataSet, FilePart
from trainable.data.assembly import from_arrays, load
from trainable.errors import listed
from trainable.models.pretrained_input import pretrained_input
from trainable.recipe import Recipe
from trainable.recipe.data import Data
from trainable.training.pixels import resolved

CPU = torch.device("cpu")


def by_name(findings: list[Finding]) -> dict[str, Finding]:
    return {finding.check: finding for finding in findings}


def folder(root: Path, each: int = 12) -> DataSet:
    """Write noise photographs of two classes to files, which are not held in memory."""
    for label, name in enumerate(("cat", "dog")):
        for number in range(each):
            write_noise_jpeg(root / name / f"{number}.jpg", seed=100 * label + number, size=32)
    return load(Data(path=str(root), in_memory=False, image_size=16))


# --- labels -------------------------------------------------------------------------------------------


def test_images_that_pretrained_weights_know_otherwise_are_told(tmp_path: Path) -> None:
    model = {"kind": "timm", "name": write_weights(tmp_path), "weights": str(tmp_path)}
    recipe = Recipe().with_values({"data.path": "arrays", "model": model})
    known = pretrained_input(recipe.model)
    data = data_set()
    own = recipe.with_values({"data.normalisation": "data"})
    (found,) = check_normalisation(data, own, CPU, known)
    assert found.level == "warning"
    assert "in pretraining they were by mean (0.5) and std (0.5)" in found.what
    (found,) = check_normalisation(data, resolved(recipe, data), CPU, known)
    assert found.level == "passed"


def test_the_smallest_and_the_largest_class_are_named_with_their_counts() -> None:
    data = data_set(90)
    assert isinstance(data.train, ArrayPart)
    chosen = np.flatnonzero((data.train.labels != 1) | (np.arange(90) < 6))
    rare = replace(data, train=ArrayPart(data.train.images[chosen], data.train.labels[chosen]))
    found = by_name(list(check_labels(rare)))["class balance"]
    assert found.level == "warning"
    assert "from 2 training images of class 1 to 30 of 0" in found.what
    assert "val_balanced_accuracy" in found.do


@pytest.mark.parametrize(("images", "level"), [(90, "warning"), (99, "warning"), (120, "passed")])
def test_validation_parts_are_small_where_accuracy_is_uncertain_by_more_than_five_points(
    images: int, level: str
) -> None:
    assert by_name(list(check_labels(data_set(48, images))))["validation size"].level == level


def test_a_class_that_training_lacks_is_named() -> None:
    data = data_set(48)
    assert isinstance(data.train, ArrayPart)
    without = replace(data, train=replace(data.train, labels=np.minimum(data.train.labels, 1)))
    found = [each for each in check_labels(without) if each.level == "error"]
    assert "1 of 3 classes have no train image: 2" in found[0].what
    assert "data.min_images: 1" in found[0].do


def test_a_class_that_the_test_part_alone_lacks_is_no_matter_of_its_training_images() -> None:
    data = data_set(48)
    assert isinstance(data.test, ArrayPart)
    without = replace(data, test=replace(data.test, labels=np.minimum(data.test.labels, 1)))
    (found,) = (each for each in check_labels(without) if "no test image" in each.what)
    assert "data.test: none leaves the test part out" in found.do
    assert "min_images" not in found.do


@pytest.mark.parametrize(
    ("names", "warned"),
    [
        (("-1", "0", "1"), "a class is called -1 (16 training images)"),
        (
            ("NA", "cat", "unlabeled"),
            "2 classes are called NA (16 training images), unlabeled (16 training images)",
        ),
        (("cat", "nan", "unknown"), "a class is called nan (16 training images)"),
        (("0", "1", "2"), ""),
    ],
)
def test_a_class_that_is_called_as_if_images_had_no_label_is_a_warning(
    names: tuple[str, ...], warned: str
) -> None:
    data = data_set(48)
    named = replace(data, info=replace(data.info, classes=names, class_counts=(16, 16, 16)))
    found = [each for each in check_labels(named) if "no label" in each.means]
    assert [(each.level, each.what) for each in found] == ([("warning", warned)] if warned else [])
    assert all("data.exclude" in each.do for each in found)


def test_a_class_without_training_images_is_not_said_to_be_learnt() -> None:
    data = data_set(48)
    assert isinstance(data.train, ArrayPart)
    without = replace(data.train, labels=np.minimum(data.train.labels, 1))
    named = replace(data, train=without, info=replace(data.info, classes=("cat", "dog", "none")))
    assert not [each for each in check_labels(named) if "no label" in each.means]


def test_minus_one_beside_one_is_a_class() -> None:
    data = from_arrays((np.zeros((8, 4, 4), np.uint8), np.resize([-1, 1], 8)), spec=Data(test_fraction=0.0))
    assert data.info.classes == ("-1", "1")
    assert not [each for each in check_labels(data) if "no label" in each.means]


# --- pixels -------------------------------------------------------------------------------------------


def test_normalised_images_have_mean_0_and_deviation_1_and_a_little_off_is_a_warning_only() -> None:
    data = data_set(240)
    found = list(check_normalisation(data, small_recipe(), CPU))
    assert [each.level for each in found] == ["passed"]
    assert "mean -0.00; deviation 1.00" in found[0].what.replace("mean 0.00", "mean -0.00")
    wide = replace(data, info=replace(data.info, std=(data.info.std[0] / 1.5,)))
    assert [each.level for each in check_normalisation(wide, small_recipe(), CPU)] == ["warning"]
    raw = replace(data, info=replace(data.info, mean=(0.0,), std=(1.0,)))
    assert [each.level for each in check_normalisation(raw, small_recipe(), CPU)] == ["error"]


def test_grey_images_stored_in_colour_are_a_note() -> None:
    grey = np.random.default_rng(0).integers(0, 256, (40, 6, 6, 1), dtype=np.uint8)
    data = from_arrays((grey.repeat(3, axis=3), np.arange(40) % 2))
    notes = [each for each in check_pixels(data) if each.level == "note"]
    assert [each.do for each in notes] == ["data.channels: 1"]


def test_a_channel_that_was_lost_is_a_warning_and_all_of_them_an_error() -> None:
    colour = np.random.default_rng(0).integers(0, 256, (40, 6, 6, 3), dtype=np.uint8)
    colour[..., 2] = 7
    levels = {each.level for each in check_pixels(from_arrays((colour, np.arange(40) % 2)))}
    assert "warning" in levels
    colour[:] = 7
    assert "error" in {each.level for each in check_pixels(from_arrays((colour, np.arange(40) % 2)))}


# --- copies -------------------------------------------------------------------------------------------


def leaking(count: int, validation: int = 200) -> DataSet:
    data = data_set(240, validation)
    assert isinstance(data.validation, ArrayPart)
    assert isinstance(data.train, ArrayPart)
    images, labels = data.validation.images.copy(), data.validation.labels.copy()
    images[:count], labels[:count] = data.train.images[:count], data.train.labels[:count]
    return replace(data, validation=ArrayPart(images, labels))


@pytest.mark.parametrize(("count", "level"), [(0, "passed"), (1, "note"), (4, "warning"), (20, "error")])
def test_how_bad_a_leak_is_goes_by_what_it_adds_to_the_score(count: int, level: str) -> None:
    found = by_name(list(check_duplicates(leaking(count))))["duplicates"]
    assert found.level == level
    if count:
        assert f"{count} validation images ({count / 200:.1%}) are also in train: validation 0 = train 0" in (
            found.what
        )


@pytest.mark.parametrize("colour", [0, 255, (200, 0, 0)])
@pytest.mark.parametrize("in_memory", [True, False])
def test_what_follows_from_images_of_one_colour_is_one_finding(
    tmp_path: Path, colour: Any, in_memory: bool
) -> None:
    luck = np.random.default_rng(0)
    for number in range(60):
        pixels = luck.integers(0, 256, (8, 8, 3), dtype=np.uint8)
        pixels[:] = colour if number % 10 < 3 else pixels
        path = tmp_path / ("train", "val")[number % 3 == 0] / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
    data = load(Data(path=str(tmp_path), in_memory=in_memory))
    compared = Comparison(data)
    found = [*check_pixels(data, compared.sample), *check_duplicates(data, compared=compared)]
    (fault,) = (each for each in found if each.level != "passed")
    assert (fault.check, fault.level) == ("pixel values", "warning")
    assert "are of one colour" in fault.what
    assert sum(map(len, compared.without_blank.values())) == 60


def test_above_fifty_thousand_images_a_sample_is_compared_and_the_finding_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("trainable.checks.duplicates.MOST", 100)
    found = by_name(list(check_duplicates(leaking(20))))["duplicates"]
    assert "a sample of 100 of 460 compared" in found.what
    assert "all 460 compared" in by_name(list(check_duplicates(leaking(20), full=True)))["duplicates"].what


@pytest.mark.parametrize("decoded", [2_000, 0])
def test_equal_files_in_two_parts_are_found_whether_decoded_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, decoded: int
) -> None:
    monkeypatch.setattr("trainable.checks.duplicates.DECODED", decoded)
    data = folder(tmp_path)
    assert by_name(list(check_duplicates(data)))["duplicates"].level == "passed"
    assert isinstance(data.train, FilePart)
    assert isinstance(data.validation, FilePart)
    source, indices = data.train.selection
    original = tmp_path / source.name(int(indices[0]))
    copy = tmp_path / source.name(int(data.validation.selection.indices[0]))
    copy.write_bytes(original.read_bytes())
    found = by_name(list(check_duplicates(data)))["duplicates"]
    assert source.name(int(indices[0])) in found.what


def test_files_that_only_end_alike_are_not_taken_for_equal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainable.checks.duplicates.DECODED", 0)
    monkeypatch.setattr("trainable.checks.duplicates.TAIL_BYTES", 2)  # every JPEG ends in FF D9
    data = folder(tmp_path)
    assert by_name(list(check_duplicates(data)))["duplicates"].level == "passed"


def test_full_decodes_every_file_and_names_those_that_are_cut_off(tmp_path: Path) -> None:
    data = folder(tmp_path)
    assert [each.level for each in check_decoding(data)] == ["passed"]
    truncate(tmp_path / "dog" / "3.jpg")
    (found,) = check_decoding(data)
    assert found.level == "error"
    assert "1 of 24 images" in found.what
    assert "dog/3.jpg" in found.what


# --- samples ------------------------------------------------------------------------------------------


def test_a_sample_to_learn_from_keeps_images_and_labels_together() -> None:
    data = data_set(48)
    sample = in_memory(data, train=10, validation=5, classes=np.array([0, 2]))
    assert isinstance(sample.train, ArrayPart)
    assert isinstance(data.train, ArrayPart)
    labels = {
        image.tobytes(): label for image, label in zip(data.train.images, data.train.labels, strict=True)
    }
    assert sample.info.classes == ("0", "2")
    for image, label in zip(sample.train.images, sample.train.labels, strict=True):
        assert labels[image.tobytes()] == (0, 2)[label]


def test_the_classes_of_a_sample_are_the_largest_that_both_parts_have() -> None:
    data = data_set(60)
    assert isinstance(data.train, ArrayPart)
    labels = data.train.labels.copy()
    labels[:9] = 2
    skewed = replace(data, train=replace(data.train, labels=labels))
    assert 2 in largest_classes(skewed, 1)
    assert isinstance(data.validation, ArrayPart)
    only = replace(skewed, validation=replace(data.validation, labels=data.validation.labels % 2))
    assert largest_classes(only, 3).tolist() == [0, 1]


def test_pixels_of_files_are_those_of_the_same_images_in_memory(tmp_path: Path) -> None:
    data = folder(tmp_path)
    held = load(Data(path=str(tmp_path), in_memory=True, image_size=16))
    positions = np.array([1, 4, 5])
    assert np.array_equal(pixels(data, data.train, positions), pixels(held, held.train, positions))


def test_findings_are_counted_and_long_lists_are_cut() -> None:
    levels: tuple[Level, ...] = ("error", "warning", "warning", "note", "passed")
    assert counts([Finding("outputs", level, "") for level in levels]) == (1, 2)
    assert listed(["a", "b", "c"], 2) == "a, b and 1 more"


# --- what accuracy hides ------------------------------------------------------------------------------


def validated_on(held: tuple[int, ...]) -> DataSet:
    """Return a set whose validation part has so many images of each class."""
    labels = np.repeat(np.arange(len(held)), held)
    every = np.arange(len(held))
    return from_arrays(
        (np.zeros((len(held), 8, 8), np.uint8), every), (np.zeros((len(labels), 8, 8), np.uint8), labels)
    )


def test_what_guessing_scores_is_named_with_the_objective_that_shows_it() -> None:
    found = check_accuracy(validated_on((180, 12, 8)))
    assert found.level == "warning"
    assert "answering 0 to every validation image scores 90% accuracy, and 33% balanced" in found.what
    assert "objective.metric: val_balanced_accuracy" in found.do


def test_classes_whose_recall_nobody_can_see_are_named_with_its_interval() -> None:
    """Of 2 of 4 right, Wilson's interval is (p + z^2/2n ± z sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n)."""
    found = check_accuracy(validated_on((30, 4, 30)))
    assert found.level == "note"
    assert "1 of 3 classes have few validation images: 1" in found.what
    z, n, p = 1.96, 4, 0.5
    half = z * (p * (1 - p) / n + z**2 / (4 * n**2)) ** 0.5 / (1 + z**2 / n)
    assert (
        f"if half of the 4 of 1 are right, its recall is {0.5 - half:.0%} to {0.5 + half:.0%}" in found.what
    )
    assert "validation_fraction" in found.do


@pytest.mark.parametrize(
    ("held", "level"),
    [
        ((50, 50), "passed"),
        ((71, 29), "passed"),
        ((72, 28), "warning"),
        ((12, 12), "passed"),
        ((11, 11), "note"),
    ],
)
def test_nothing_is_hidden_where_classes_are_nearly_alike(held: tuple[int, ...], level: str) -> None:
    assert check_accuracy(validated_on(held)).level == level


# --- samples of many classes, and checks that crash -------------------------------------------------------


def of_classes(counts: list[int], side: int = 4) -> DataSet:
    """Noise of classes with so many training images, and one to validate."""
    labels = np.repeat(np.arange(len(counts)), counts)
    random = np.random.default_rng(0)
    images, others = (
        random.integers(0, 256, (count, side, side, 3), dtype=np.uint8)
        for count in (len(labels), len(counts))
    )
    return from_arrays((images, labels), (others, np.arange(len(counts))))


def test_a_sample_keeps_a_class_of_few_images_among_many() -> None:
    sample = in_memory(of_classes([600, 600, 3]), train=100, validation=3)

    assert (len(sample.train), len(sample.info.class_counts)) == (100, 3)
    assert min(sample.info.class_counts) >= 1
    assert sorted(sample.validation.labels.tolist()) == [0, 1, 2]


def test_a_sample_of_more_classes_than_images_has_no_counts() -> None:
    sample = in_memory(of_classes([1] * 30), train=20, validation=10)

    assert (len(sample.train), sample.info.class_counts, len(sample.info.classes)) == (20, (), 30)


def test_shuffled_labels_are_checked_with_more_classes_than_sampled_images(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("trainable.checks.shuffled_labels.TRAIN", 40)
    data = of_classes([1] * 60, side=8)
    subject = make_subject(small_recipe(), data, None, CPU, download=False)

    assert check_shuffled(subject, 60.0).check == "shuffled labels"


OF_DATA: dict[CheckName, str] = {
    "class balance": "check_labels",
    "label shares": "check_label_shares",
    "accuracy": "check_accuracy",
    "pixel values": "check_pixels",
    "parts alike": "check_parts_alike",
    "normalisation": "check_normalisation",
    "duplicates": "check_duplicates",
    "groups": "check_groups",
}


@pytest.mark.parametrize("name", OF_DATA)
def test_a_check_that_crashes_leaves_the_findings_of_the_others(
    name: CheckName, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*given: object, **named: object) -> None:
        raise ValueError("no images of class 7\nin line 3")

    monkeypatch.setattr(f"trainable.checks.check.{OF_DATA[name]}", crash)
    subject = make_subject(small_recipe(), data_set(), None, CPU, download=False)

    found = by_name(list(check_data(subject)))

    assert found[name].level == "error"
    assert found[name].what == "the check fails: ValueError: no images of class 7"
    assert OF_DATA.keys() <= found.keys()
    assert not [each for each in found.values() if each.what.startswith("not checked: the images show")]


@pytest.mark.parametrize("share", [0, 1], ids=["black", "one image"])
def test_of_equal_images_that_alone_is_found_and_nothing_that_follows(share: int) -> None:
    data = data_set()
    assert isinstance(data.train, ArrayPart)
    assert isinstance(data.validation, ArrayPart)
    image = data.train.images[:1] * np.uint8(share)
    equal = replace(
        data,
        train=replace(data.train, images=np.repeat(image, len(data.train), axis=0)),
        validation=replace(data.validation, images=np.repeat(image, len(data.validation), axis=0)),
    )

    found = check(small_recipe(), data=equal)

    assert [each.check for each in found if each.level == "error"] == ["pixel values"]
    assert not {"duplicates", "contradictions", "learning", "one batch"} & by_name(found).keys()
    assert "nor are duplicates, normalisation, or what can be learnt" in by_name(found)["parts alike"].what


@pytest.mark.parametrize(
    ("bits", "level", "words"),
    [
        (16, "passed", "values from"),
        (12, "warning", "16 levels are in use"),
        (10, "error", "values from 0 to 3 where 255 is white"),
    ],
)
def test_how_many_levels_are_left_of_sixteen_bits_is_told(
    tmp_path: Path, bits: int, level: str, words: str
) -> None:
    random = np.random.default_rng(0)
    for label in ("cat", "dog"):
        (tmp_path / label).mkdir()
        for number in range(6):
            pixels = random.integers(0, 2**bits, (40, 40), dtype=np.uint16)
            if bits == 12:
                pixels[0, 0] = 65_535  # a hot pixel hides nothing
            Image.fromarray(pixels).save(tmp_path / label / f"{number}.png")

    data = load(Data(path=str(tmp_path), image_size=40))
    found = list(check_pixels(data))

    assert bool(data.info.few_levels) == (level != "passed"), "a search and `train` say it, too"
    assert [each.level for each in found] == [level]
    assert words in found[0].what


@pytest.mark.parametrize(
    ("kind", "levels"),
    [
        ("scale bar", 16),
        ("others of 8 bits", 16),
        ("low contrast in 8 bits", 60),
        ("all bits used", None),
        ("black and white", None),
        ("dark ink on white", None),
        ("white on black", None),
        ("one stray pixel", None),
    ],
)
def test_few_levels_of_sixteen_bits_are_told_beside_marks_in_white_and_images_of_eight(
    tmp_path: Path, kind: str, levels: int | None
) -> None:
    random = np.random.default_rng(0)
    for number in range(12):
        image = random.integers(0, 2**12, (32, 32), dtype=np.uint16)
        match kind:
            case "scale bar":
                image[30:, 10:20] = 65_535  # 2 % of the pixels
            case "others of 8 bits":
                image = image if number % 2 else (image >> 4).astype(np.uint8)
            case "low contrast in 8 bits":
                image = (100 + image % 60).astype(np.uint8)
            case "all bits used":
                image *= 16
            case "black and white" | "one stray pixel":
                image = np.where(image < 2**11, 0, 65_535).astype(np.uint16)
                if kind == "one stray pixel" and not number:
                    image[5, 5] = 1_000
            case "dark ink on white":
                image = np.where(image < 2**10, image, 65_535).astype(np.uint16)
            case "white on black":
                image = np.where(image < 3_900, image // 8, 65_535).astype(np.uint16)
        folder = tmp_path / ("cat" if number < 6 else "dog")
        folder.mkdir(exist_ok=True)
        Image.fromarray(image).save(folder / f"{number}.png")

    data = load(Data(path=str(tmp_path), image_size=32))
    found = next(check_pixels(data))

    assert found.level == ("passed" if levels is None else "warning")
    if levels is None:
        assert not data.info.few_levels
    elif levels == 16:
        assert f"{levels} levels are in use by images of 16 bits, without rare white" in found.what
        assert f"images of 16 bits use {levels} levels of 256, without rare" in data.info.few_levels
    else:
        assert found.what.endswith(f"where 255 is white: {levels} levels are in use")
        assert data.info.few_levels.startswith(f"images use {levels} levels of 256: ")


def test_few_levels_of_arrays_are_not_told_as_of_sixteen_bits() -> None:
    """Two samples of such images differ in their levels: all of them use fewer here."""
    random = np.random.default_rng(5)
    means = random.normal(120, 5, (1_500, 1, 1))
    images = np.clip(random.normal(means, 4, (1_500, 4, 4)), 0, 255).astype(np.uint8)
    data = from_arrays((images, random.integers(0, 2, 1_500)), spec=Data())

    (found,) = check_pixels(data)

    assert re.search(r"where 255 is white: \d+ levels are in use$", found.what)
    assert data.info.few_levels.startswith("images use ")
