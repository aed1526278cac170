"""Tests the masks that `train --predict` writes: by name, size and value, whole or not at all."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from torch import Tensor

from tests.trainable.small_runs import data_set, finished, small_recipe
from tests.trainable.small_segmentations import drawn, mask_data, mask_recipe, write_masks
from trainable.__main__ import main
from trainable.errors import UserError
from trainable.recipe.yamlfile import write_recipe
from trainable.run import make_run
from trainable.tasks.exporters import exporter_of
from trainable.tasks.segmentation.data.parts import MaskedPart
from trainable.tasks.segmentation.data.stores import stored_values
from trainable.tasks.segmentation.predicted import PredictedMasks, mask_files, voc_colours


def trained(root: Path, *settings: str, out: str = "predicted") -> Path:
    """Train a moment's recipe with `--predict`; return the folder of masks."""
    write_recipe(root / "recipe.yaml", mask_recipe(root))
    arguments = [each for setting in settings for each in ("--set", setting)]
    assert main([str(root / "recipe.yaml"), "--predict", str(root / out), *arguments]) == 0
    return root / out


def values_in(file: Path) -> np.ndarray:
    with Image.open(file) as image:
        assert image.mode == "P"
        return stored_values(image)[0]


def test_masks_are_those_of_the_trained_weights_at_the_images_own_sizes(tmp_path: Path) -> None:
    root = write_masks(tmp_path, 24, sizes=((32, 32), (20, 40)))
    folder = trained(root)
    recipe = mask_recipe(root)
    run, shown = make_run(recipe, data=mask_data(recipe)), dict[int, Tensor]()
    finished(run)
    run.score("test", take=lambda at, outputs: shown.update(zip(at.tolist(), outputs.argmax(1), strict=True)))
    part = run.parts["test"]
    assert isinstance(part, MaskedPart)
    names = part.names
    assert sorted(folder.glob("*.png")) == sorted(folder / Path(name).name for name in names)
    for position, mask in shown.items():
        found = values_in(folder / Path(names[position]).name)
        assert np.array_equal(found, mask.numpy())


def test_without_a_test_part_the_masks_are_of_validation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = trained(write_masks(tmp_path), "data.test_fraction=0.0")
    count = len(list(folder.glob("*.png")))
    assert f"masks of the {count} images of the validation part -> {folder}" in capsys.readouterr().out


def test_a_binary_mask_is_0_or_255_and_can_be_learnt_from_again(tmp_path: Path) -> None:
    root = write_masks(tmp_path)
    for file in (root / "masks").iterdir():
        mask = np.asarray(Image.open(file))
        Image.fromarray(np.where(mask == 2, 255, 0).astype(np.uint8)).save(file)
    folder = trained(root, "task.masks={values: binary}", "loop.epochs=4")
    found = {value for file in folder.glob("*.png") for value in np.unique(values_in(file)).tolist()}
    assert found == {0, 255}


def test_a_class_has_the_value_of_its_own_masks_though_another_is_void(tmp_path: Path) -> None:
    folder = trained(write_masks(tmp_path), "task.masks.void=[ground]", "loop.epochs=1")
    found = {value for file in folder.glob("*.png") for value in np.unique(values_in(file)).tolist()}
    assert found <= {1, 2}


def test_sub_folders_are_kept_below_the_folder_that_all_images_are_in(tmp_path: Path) -> None:
    for name in ("images", "masks"):
        for day in ("monday", "tuesday"):
            (tmp_path / name / day).mkdir(parents=True)
    for number in range(24):
        image, mask = drawn(number, 24, 24)
        day = ("monday", "tuesday")[number % 2]
        Image.fromarray(image).save(tmp_path / "images" / day / f"{number}.png")
        Image.fromarray(mask).save(tmp_path / "masks" / day / f"{number}.png")
    (tmp_path / "classes.txt").write_text("ground\nsquare\ndisc\n")
    folder = trained(tmp_path)
    assert {each.name for each in folder.iterdir() if each.is_dir()} == {"monday", "tuesday"}
    assert not list(folder.glob("*.png"))


def test_the_scores_of_each_image_begin_with_the_worst(tmp_path: Path) -> None:
    folder = trained(write_masks(tmp_path))
    with (folder / "scores.csv").open() as file:
        rows = list(csv.DictReader(file))
    values = [float(row["mean_iou"]) for row in rows]
    assert values == sorted(values)
    assert {row["mask"] for row in rows} == {file.name for file in folder.glob("*.png")}
    assert all(row["image"].startswith("images/") for row in rows)


def test_a_run_that_diverges_writes_no_masks(tmp_path: Path) -> None:
    root = write_masks(tmp_path)
    write_recipe(root / "recipe.yaml", mask_recipe(root, {"optimizer.lr": 1e9}))
    assert main([str(root / "recipe.yaml"), "--predict", str(root / "masks of it")]) == 1
    assert not (root / "masks of it").exists()


@pytest.mark.parametrize(
    ("folder", "out", "message"),
    [
        ("images", None, "images: exists already; give a new folder for the masks"),
        ("new", "new", "is to hold masks alone; give another folder than --out"),
        ("new", "new/model", "is to hold masks alone; give another folder than --out"),
    ],
)
def test_a_folder_that_cannot_be_used_is_refused_before_training(
    folder: str, out: str | None, message: str, tmp_path: Path
) -> None:
    recipe = mask_recipe(write_masks(tmp_path))
    with pytest.raises(UserError, match=message):
        PredictedMasks(mask_data(recipe), tmp_path / folder, None if out is None else tmp_path / out)


def test_a_classification_is_refused_in_a_sentence(tmp_path: Path) -> None:
    data = data_set()
    with pytest.raises(UserError, match="--predict: it writes masks, which a segmentation predicts"):
        exporter_of(small_recipe(), data.info).predictions(data, tmp_path / "new", None)


def test_two_images_with_one_mask_are_refused(tmp_path: Path) -> None:
    part = mask_data(mask_recipe(write_masks(tmp_path))).validation
    assert isinstance(part, MaskedPart)
    names = (*(f"a/{number}.png" for number in range(len(part) - 2)), "a/x.png", "a/x.jpg")
    with pytest.raises(UserError, match=r"more than one image has the mask x\.png"):
        mask_files(replace(part, names=names))


def test_masks_stay_below_their_folder_wherever_a_manifest_found_the_images(tmp_path: Path) -> None:
    part = mask_data(mask_recipe(write_masks(tmp_path))).validation
    assert isinstance(part, MaskedPart)
    names = tuple(f"../{'left' if number % 2 else 'right'}/{number}.png" for number in range(len(part)))
    assert all(not file.startswith(("/", "..")) for file in mask_files(replace(part, names=names)))


def test_the_colours_are_those_of_pascal_voc() -> None:
    colours = voc_colours()
    known = {0: (0, 0, 0), 1: (128, 0, 0), 2: (0, 128, 0), 15: (192, 128, 128), 20: (0, 64, 128)}
    assert {value: tuple(colours[value].tolist()) for value in known} == known
    assert tuple(colours[255].tolist()) == (224, 224, 192)
    assert len(np.unique(colours, axis=0)) == 256
