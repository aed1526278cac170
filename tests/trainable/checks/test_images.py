"""Tests the checks of pixels: decoding, levels, normalisation."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from tests.lite_weights import write_weights
from tests.trainable.small_images import truncate, write_noise_jpeg
from tests.trainable.small_runs import data_set, small_recipe
from trainable.bench import ON_CPU
from trainable.check import make_subject
from trainable.checks.finding import Finding
from trainable.checks.images import check_decoding, check_normalisation, check_pixels
from trainable.checks.sampling import pixels
from trainable.data import DataSet
from trainable.data.assembly import from_arrays, load
from trainable.models.pretrained_input import PretrainedInput, pretrained_input
from trainable.recipe import Recipe
from trainable.recipe.data import Data

CPU = torch.device("cpu")


def folder(root: Path, each: int = 12) -> DataSet:
    """Write noise photographs of two classes to files, which are not held in memory."""
    for label, name in enumerate(("cat", "dog")):
        for number in range(each):
            write_noise_jpeg(root / name / f"{number}.jpg", seed=100 * label + number, size=32)
    return load(Data(path=str(root), in_memory=False, image_size=16))


def normalised(
    data: DataSet, recipe: Recipe | None = None, known: PretrainedInput | None = None
) -> list[Finding]:
    subject = make_subject(recipe or small_recipe(), data, None, ON_CPU)
    return list(check_normalisation(subject, known))


def test_images_that_pretrained_weights_know_otherwise_are_told(tmp_path: Path) -> None:
    model = {"kind": "timm", "name": write_weights(tmp_path), "weights": str(tmp_path)}
    recipe = Recipe().with_values({"data.path": "arrays", "model": model})
    known = pretrained_input(recipe.model)
    data = data_set()
    own = recipe.with_values({"data.normalisation": "data"})
    (found,) = normalised(data, own, known)
    assert found.level == "warning"
    assert "in pretraining they were by mean (0.5) and std (0.5)" in found.what
    (found,) = normalised(data, recipe, known)
    assert found.level == "passed"


def test_normalised_images_have_mean_0_and_deviation_1_and_a_little_off_is_a_warning_only() -> None:
    data = data_set(240)
    found = normalised(data)
    assert [each.level for each in found] == ["passed"]
    assert "mean -0.00; deviation 1.00" in found[0].what.replace("mean 0.00", "mean -0.00")
    wide = replace(data, info=replace(data.info, std=(data.info.std[0] / 1.5,)))
    assert [each.level for each in normalised(wide)] == ["warning"]
    raw = replace(data, info=replace(data.info, mean=(0.0,), std=(1.0,)))
    assert [each.level for each in normalised(raw)] == ["error"]


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


def test_full_decodes_every_file_and_names_those_that_are_cut_off(tmp_path: Path) -> None:
    data = folder(tmp_path)
    assert [each.level for each in check_decoding(data)] == ["passed"]
    truncate(tmp_path / "dog" / "3.jpg")
    (found,) = check_decoding(data)
    assert found.level == "error"
    assert "1 of 24 images" in found.what
    assert "dog/3.jpg" in found.what


def test_pixels_of_files_are_those_of_the_same_images_in_memory(tmp_path: Path) -> None:
    data = folder(tmp_path)
    held = load(Data(path=str(tmp_path), in_memory=True, image_size=16))
    positions = np.array([1, 4, 5])
    assert np.array_equal(pixels(data, data.train, positions), pixels(held, held.train, positions))
