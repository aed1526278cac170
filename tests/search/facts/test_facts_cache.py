"""Tests that stored facts are found while nothing changes, and measured anew after a change or damage."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from search.facts.backbones import _cache_file
from search.facts.cache import cache_file, cache_folder, read_cached, speeds_file, write_cached
from search.facts.hardware import PerTrial
from search.facts.measured import cached_or_measured, measured_anew
from tests.spaces.small_facts import digits_facts
from tests.trainable.data_forms import saved_by_path, write_csv
from tests.trainable.small_images import write_classes, write_image
from tests.trainable.small_masks import bands, write_mask, write_pairs
from tests.trainable.small_runs import data_set
from tests.trainable.small_segmentations import mask_recipe
from trainable.data import DataSet
from trainable.data.assembly import load
from trainable.recipe import Recipe
from trainable.recipe.data import Data
from trainable.recipe.network_cost import Speed

CPU = PerTrial(cpus=1, gpus=0.0)


@pytest.fixture
def images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write an .npz file of random images, and begin with an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    return write_images(tmp_path / "data" / "pets.npz", 60)


def write_images(path: Path, count: int) -> Path:
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (count, 12, 12), np.uint8)
    np.savez(path, train_images=pixels, train_labels=np.arange(count) % 3)
    return path


def recipe(path: Path, **values: Any) -> Recipe:
    written = {name.replace("__", "."): value for name, value in values.items()}
    return Recipe().with_values({"data.path": str(path), "model.width": 4, **written})


@pytest.mark.slow("measures networks")
def test_a_second_look_measures_nothing_and_says_so(images: Path) -> None:
    first = cached_or_measured(recipe(images), CPU)
    again = cached_or_measured(recipe(images), CPU)
    assert not first.cached
    assert again.cached
    assert (again.facts, again.info) == (first.facts, first.info)


@pytest.mark.slow("measures networks")
def test_a_look_needs_no_image_while_nothing_has_changed(
    images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = cached_or_measured(recipe(images), CPU)
    monkeypatch.setattr("zipfile.ZipFile.open", None)  # nothing in the file can be read any more
    assert cached_or_measured(recipe(images), CPU).facts == first.facts


def test_a_file_that_is_painted_over_with_its_size_and_time_is_looked_at_anew(images: Path) -> None:
    first = cache_file(recipe(images), "cpu")
    found = images.stat()
    images.write_bytes(b"\0" * found.st_size)
    os.utime(images, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert cache_file(recipe(images), "cpu") != first


def test_other_weights_are_looked_at_anew_and_a_neighbour_of_theirs_changes_nothing(
    images: Path, tmp_path: Path
) -> None:
    weights = tmp_path / "weights" / "mine.pth"
    weights.parent.mkdir()
    weights.write_bytes(b"1")

    def file_of_facts() -> Path:
        return cache_file(recipe(images, model__weights=str(weights)), "cpu")

    first = file_of_facts()
    (weights.parent / "log.txt").touch()
    assert file_of_facts() == first
    weights.write_bytes(b"22")
    assert file_of_facts() != first


def test_a_changed_folder_of_a_network_is_looked_at_anew(images: Path, tmp_path: Path) -> None:
    folder = tmp_path / "network"
    folder.mkdir()
    values = {"model.kind": "timm", "model.name": f"local-dir:{folder}"}
    base = Recipe().with_values({"data.path": str(images), **values})
    first = cache_file(base, "cpu")
    (folder / "config.json").write_text("{}")
    assert cache_file(base, "cpu") != first


@pytest.mark.parametrize("columns", [("path", "mask"), ("path", "label", "mask")])
def test_a_manifest_whose_masks_are_painted_over_is_looked_at_anew(
    images: Path, columns: tuple[str, ...]
) -> None:
    folder = write_pairs(images.parent, dict.fromkeys("abcdef", (0, 1)))
    rows = [{"path": f"images/{name}.jpg", "label": "x", "mask": f"masks/{name}.png"} for name in "abcdef"]
    table = write_csv(folder / "pairs.csv", [{name: row[name] for name in columns} for row in rows])
    base = mask_recipe(table)
    first = cache_file(base, "cpu")
    write_mask(folder / "masks" / "c.png", bands(1, 0))
    assert cache_file(base, "cpu") != first


def test_masks_in_a_folder_elsewhere_that_are_painted_over_are_looked_at_anew(images: Path) -> None:
    folder = write_pairs(images.parent / "pairs", dict.fromkeys("abcdef", (0, 1)))
    (folder / "masks").rename(images.parent / "elsewhere")
    masks = {"folder": "../elsewhere"}
    base = mask_recipe(folder, {"task": {"kind": "segmentation", "masks": masks}})
    first = cache_file(base, "cpu")
    write_mask(images.parent / "elsewhere" / "c.png", bands(1, 0))
    assert cache_file(base, "cpu") != first


def test_an_image_that_a_saved_set_names_by_its_path_is_looked_at_anew(images: Path) -> None:
    photographs = images.parent / "photographs"
    for number in range(20):
        write_image(photographs / f"{number}.png", value=number)
    saved = saved_by_path(images.parent / "saved", [f"{number}.png" for number in range(20)])
    base = recipe(saved, data__root=str(photographs))
    first = cache_file(base, "cpu")
    write_image(photographs / "7.png", value=99)
    write_image(photographs / "none of them.png", value=99)
    second = cache_file(base, "cpu")
    assert second != first
    (photographs / "none of them.png").unlink()
    assert cache_file(base, "cpu") == second


def test_a_changed_file_of_class_names_is_looked_at_anew(images: Path) -> None:
    names = images.with_name("names.txt")
    names.write_text("sky\nroad\n")
    base = mask_recipe(images, {"task": {"kind": "segmentation", "masks": {"classes": str(names)}}})
    first = cache_file(base, "cpu")
    names.write_text("sky\nlane\n")
    assert cache_file(base, "cpu") != first


def test_what_follows_from_the_budget_and_the_machine_is_never_old(images: Path) -> None:
    cached_or_measured(recipe(images, precision__kind="fp32"), CPU)
    other = recipe(images, precision__kind="fp32", loop__epochs=77)
    longer = cached_or_measured(other, PerTrial(cpus=3, gpus=0.0))
    assert longer.cached
    assert (longer.facts.epochs, longer.facts.cpus) == (77, 3)


@pytest.mark.slow("measures networks")
def test_speeds_are_measured_for_each_number_of_processors(images: Path) -> None:
    cached_or_measured(recipe(images, precision__kind="auto"), CPU)
    assert not cached_or_measured(recipe(images, precision__kind="auto"), PerTrial(cpus=3, gpus=0.0)).cached


@pytest.mark.slow("measures networks")
@pytest.mark.parametrize(
    "change",
    [
        {"data__image_size": 8},
        {"data__validation_fraction": 0.3},
        {"data__flips": ["horizontal"]},
        {"model__width": 8},
        {"evaluation__resize": {"kind": "center_crop"}},
    ],
)
def test_other_data_or_another_model_are_measured_anew(images: Path, change: dict[str, Any]) -> None:
    cached_or_measured(recipe(images), CPU)
    assert not cached_or_measured(recipe(images, **change), CPU).cached


@pytest.mark.slow("measures networks")
def test_images_that_have_changed_are_measured_anew(images: Path) -> None:
    before = cached_or_measured(recipe(images), CPU)
    write_images(images, 90)
    after = cached_or_measured(recipe(images), CPU)
    assert not after.cached
    assert after.facts.train_images > before.facts.train_images


def test_the_kind_of_device_decides_what_is_measured(images: Path) -> None:
    assert cache_file(recipe(images), "cpu") != cache_file(recipe(images), "cuda")


@pytest.mark.parametrize("named", [{"precision__kind": "fp32"}, {"precision__channels_last": False}])
def test_speeds_are_remembered_for_what_a_recipe_leaves_open(images: Path, named: dict[str, Any]) -> None:
    plain, other = recipe(images, loop__compile="auto"), recipe(images, loop__compile="auto", **named)
    info = data_set().info
    assert speeds_file(other, info, "cpu", 1) != speeds_file(plain, info, "cpu", 1)
    assert cache_file(other, "cpu") != cache_file(plain, "cpu")


def test_a_search_times_nothing_but_the_number_format_and_layout_that_it_trains_in(
    images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setattr("trainable.probes.speed.SECONDS", 0.0)
    named = {"precision__kind": "fp32", "precision__channels_last": False}
    facts = cached_or_measured(recipe(images, loop__compile="auto", **named), CPU).facts
    assert [each.way for each in facts.speeds] == ["fp32 contiguous"]


def test_a_trials_own_values_do_not(images: Path) -> None:
    other = recipe(images, optimizer__lr=0.7, loop__epochs=3)
    assert cache_file(other, "cpu") == cache_file(recipe(images), "cpu")


def test_the_bundled_digits_are_the_same_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = cache_file(Recipe(), "cpu")
    monkeypatch.chdir(tmp_path)
    assert cache_file(Recipe(), "cpu") == here


@pytest.mark.slow("measures networks")
@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"facts": {}, "data": {}}', b"\xff\xfe"])
def test_a_broken_file_is_measured_over(images: Path, content: bytes) -> None:
    cached_or_measured(recipe(images), CPU)
    file = cache_file(recipe(images), "cpu")
    whole = file.read_bytes()
    file.write_bytes(content)
    assert not cached_or_measured(recipe(images), CPU).cached
    again, before = json.loads(file.read_bytes()), json.loads(whole)
    assert len(again["facts"].pop("speeds")) == len(before["facts"].pop("speeds")) > 0
    assert again == before


@pytest.mark.slow("measures networks")
def test_speeds_are_timed_once_and_the_rest_is_measured_again(images: Path) -> None:
    base = recipe(images)
    first = cached_or_measured(base, CPU)
    assert measured_anew(base, first.info, CPU) == first.facts


@pytest.mark.slow("measures networks")
def test_speeds_are_timed_once_whichever_images_of_a_shape_a_network_sees(images: Path) -> None:
    first = cached_or_measured(recipe(images), CPU).facts
    other = write_images(images.with_name("others.npz"), 90)
    assert cached_or_measured(recipe(other), CPU).facts.speeds == first.speeds
    assert cached_or_measured(recipe(other, model__width=8), CPU).facts.speeds != first.speeds


GPU = PerTrial(cpus=1, gpus=1.0)


@pytest.fixture
def a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let torch say that there is a GPU, on which nothing is computed."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(total_memory=2**36))


@pytest.mark.usefixtures("a_gpu")
def test_on_a_gpu_a_short_search_times_nothing_and_a_long_one_is_not_content_with_that(
    images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed = (Speed(number_format="bf16", channels_last=False, images_per_second=10.0),)
    monkeypatch.setattr("search.facts.measured._speeds", lambda *_: timed)
    short, long = 16, 1_000_000
    assert cached_or_measured(recipe(images), GPU, trials=short).facts.speeds == ()
    assert cached_or_measured(recipe(images), GPU, trials=short).cached
    assert cached_or_measured(recipe(images), GPU, trials=long).facts.speeds == timed
    assert (
        cached_or_measured(recipe(images), GPU, trials=short).facts.speeds == timed
    )  # what is known is used


@pytest.mark.slow("measures networks")
def test_a_cache_that_cannot_be_written_is_done_without(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert not cached_or_measured(recipe(images), CPU).cached
    assert not cached_or_measured(recipe(images), CPU).cached


def test_the_folder_is_the_persons_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert cache_folder() == Path("/elsewhere/tunebook/facts")
    for value in ("", "relative"):  # of no meaning, says the specification
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        assert cache_folder() == Path.home() / ".cache/tunebook/facts"


@pytest.mark.slow("measures networks")
def test_what_is_stored_comes_back(images: Path) -> None:
    found = cached_or_measured(recipe(images), CPU)
    file = cache_folder() / "other.json"
    assert read_cached(file) is None
    write_cached(file, digits_facts(), found.info)
    assert read_cached(file) == (digits_facts(), found.info)


@pytest.mark.parametrize("limit", [0, 2**32])
def test_features_of_a_set_that_is_not_hashed_whole_depend_on_the_times_of_all_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr("trainable.data.measure.DIGEST_BYTES", limit)
    folder = write_classes(tmp_path / "images", {"cat": 8, "dog": 8})

    def stored(data: DataSet) -> Path:
        return _cache_file(Recipe(), data, "cpu")

    before = load(Data(path=str(folder)))
    os.utime(folder / "cat" / "003.png", ns=(0, 10**18))
    after = load(Data(path=str(folder)))

    assert before.info.digest == after.info.digest
    assert (stored(before) == stored(after)) == (limit > 0)
