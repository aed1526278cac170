"""Tests that the same images are the same data as a folder, a manifest, a `datasets` folder or an .npz."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.trainable.data_forms import FORMS, labelled, write_datasets, write_forms
from tests.trainable.small_runs import numbers
from trainable.bench import ON_CPU
from trainable.data import ArrayPart, DataSet, FilePart
from trainable.data.assembly import load
from trainable.recipe import Recipe
from trainable.recipe.data import Data
from trainable.run import make_run
from trainable.tasks.kits import make_loader

SPLIT_HERE = {"train": [14] * 11}  # eleven classes: as text, 10 is before 2
GIVEN = {"train": [9, 7, 8], "validation": [3, 4, 3], "test": [2, 2, 3]}


@pytest.fixture(scope="module", params=[SPLIT_HERE, GIVEN], ids=["split here", "given parts"])
def forms(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_forms(labelled(request.param), tmp_path_factory.mktemp("forms"))


def recipe_of(path: Path, **values: Any) -> Recipe:
    plain = {
        "data.path": str(path),
        "model.width": 8,
        "precision.kind": "fp32",
        "loop.epochs": 2,
        "loop.batch_size": 16,
        "augmentation.crop.kind": "resized",
    }
    return Recipe().with_values(plain | values)


def pixels_of(data: DataSet) -> dict[str, np.ndarray]:
    return {name: part.images for name, part in data.parts.items() if isinstance(part, ArrayPart)}


@pytest.mark.parametrize("form", FORMS[1:])
def test_a_form_has_the_members_and_the_digest_of_the_folder(forms: dict[str, Path], form: str) -> None:
    folder, other = load(Data(path=str(forms["folder"]))), load(Data(path=str(forms[form])))

    expected = {"csv": "manifest", "parquet": "manifest"}.get(form, form)
    same = replace(folder.info, path=str(forms[form]), format=expected, stored=other.info.stored)
    assert other.info == same
    for name, images in pixels_of(folder).items():
        np.testing.assert_array_equal(pixels_of(other)[name], images)
        np.testing.assert_array_equal(other.parts[name].labels, folder.parts[name].labels)


@pytest.mark.slow("trains in each form")
@pytest.mark.parametrize("held", [True, False], ids=["in memory", "from files"])
def test_two_epochs_have_the_same_losses_in_each_form(forms: dict[str, Path], held: bool) -> None:
    curves = {}
    for form in FORMS:
        run = make_run(recipe_of(forms[form], **{"data.in_memory": held, "data.image_size": 8}))
        curves[form] = numbers((run.step(), run.step()))
        run.close()
    assert all(curve == curves["folder"] for curve in curves.values())


@pytest.mark.parametrize("form", ["csv", "datasets"])
def test_images_of_each_form_of_files_are_cached_decoded(
    forms: dict[str, Path], form: str, tmp_path: Path
) -> None:
    spec = Data(path=str(forms[form]), in_memory=False, cache=str(tmp_path / "cache"))
    data = load(spec)
    data.be_here()
    views = data.decoded_views()
    whole = load(Data(path=str(forms["folder"]), in_memory=True))
    for name in ("train", "validation"):
        np.testing.assert_array_equal(views[name, data.info.image_size], pixels_of(whole)[name])


@pytest.mark.integration
def test_processes_read_a_saved_data_set(forms: dict[str, Path]) -> None:
    data = load(Data(path=str(forms["datasets"]), in_memory=False, cache="off"))
    recipe = recipe_of(forms["datasets"], **{"loop.workers": 2})
    loader = make_loader(data, recipe, ON_CPU)
    ((images, labels),) = loader.train([torch.arange(8)], epoch=1)
    loader.close()
    assert len(images) == len(labels) == 8


def test_the_digest_changes_with_the_content_of_an_image_whatever_its_size(tmp_path: Path) -> None:
    images = labelled(GIVEN)
    first = load(Data(path=str(write_forms(images, tmp_path / "first")["folder"]))).info
    changed = [images[0]._replace(pixels=images[0].pixels + np.uint8(1)), *images[1:]]
    again = load(Data(path=str(write_forms(changed, tmp_path / "again")["npz"]))).info
    assert first.digest != again.digest


def test_the_digest_changes_with_a_label(tmp_path: Path) -> None:
    images = labelled(SPLIT_HERE)
    forms = write_forms(images, tmp_path)
    before = load(Data(path=str(forms["csv"]))).info.digest
    text = forms["csv"].read_text()
    forms["csv"].write_text(text.replace("folder/3/003.png,3", "folder/3/003.png,4"))
    assert load(Data(path=str(forms["csv"]))).info.digest != before


def test_a_source_of_arrow_files_travels_without_its_images(tmp_path: Path) -> None:
    images = labelled({"train": [20, 20]})
    write_forms(images, tmp_path)
    data = load(Data(path=str(tmp_path / "saved"), in_memory=False))
    assert isinstance(data.train, FilePart)
    source = data.train.selection.source
    source.open(0)
    copy = pickle.loads(pickle.dumps(source))
    np.testing.assert_array_equal(np.asarray(copy.open(3)), np.asarray(source.open(3)))
    assert len(pickle.dumps(source)) < 4000


def test_rows_of_a_saved_data_set_that_share_names_keep_their_order(tmp_path: Path) -> None:
    images = [
        each._replace(path=f"{each.label}/{each.path[2:5]}/x.png") for each in labelled({"train": [8, 8]})
    ]
    forms = write_forms(images, tmp_path)
    first = load(Data(path=str(forms["npz"]))).info.digest
    write_datasets(images, tmp_path / "in order")
    assert load(Data(path=str(tmp_path / "in order"))).info.digest == first
