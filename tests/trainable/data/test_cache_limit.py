"""Tests that decoded images keep within their part of the disk, and that none in use are removed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from tests.trainable.small_images import write_noise_jpeg
from trainable.bench import ON_CPU
from trainable.data import DataSet, image_cache
from trainable.data.assembly import load
from trainable.data.image_cache import NoRoom, keep_within, limit_of, sets_of, taken
from trainable.data.loading import ArrayLoader
from trainable.files.locks import alone
from trainable.recipe import Recipe
from trainable.recipe.data import Data
from trainable.recipe.training import Loop
from trainable.run import make_run
from trainable.tasks.kits import load_for


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of this test's own cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(image_cache, "SPARE_BYTES", 0)
    return tmp_path / "cache" / "tunebook" / "images"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(24):
        part, name = ("train", "val")[number >= 16], ("a", "b")[number % 2]
        write_noise_jpeg(tmp_path / "pets" / part / name / f"{number}.jpg", seed=number, size=30)
    return tmp_path / "pets"


def spec(folder: Path, side: int, cache: str = "auto") -> Data:
    return Data(path=str(folder), image_size=side, in_memory=False, cache=cache)


def stored(folder: Path, side: int) -> DataSet:
    data = load(spec(folder, side))
    data.be_here()
    return data


def place(data: DataSet) -> Path:
    assert data.cache is not None
    return data.cache.folder


def used_at(data: DataSet, seconds: int) -> None:
    os.utime(place(data) / ".lock", (seconds, seconds))


def is_whole(data: DataSet) -> bool:
    return bool(data.decoded_views())


def keep_two_of_three(root: Path) -> list[str]:
    """Ask for so much room that one of three sets must go. Return what was said."""
    lines: list[str] = []
    limit = sum(map(taken, sets_of(root)))
    keep_within(limit, root / "new", 1, lines.append)
    return lines


@pytest.mark.parametrize("oldest", [0, 1, 2])
def test_the_set_that_was_used_least_recently_is_removed(folder: Path, root: Path, oldest: int) -> None:
    sets = [stored(folder, side) for side in (16, 17, 18)]
    for number, data in enumerate(sets):
        used_at(data, 10 if number == oldest else 20 + number)

    (line,) = keep_two_of_three(root)

    assert str(place(sets[oldest])) in line
    assert [is_whole(data) for data in sets] == [number != oldest for number in range(3)]


def test_using_a_set_makes_it_the_last_to_be_removed(folder: Path, root: Path) -> None:
    sets = [stored(folder, side) for side in (16, 17, 18)]
    for number, data in enumerate(sets):
        used_at(data, number + 1)

    sets[0].be_here()
    keep_two_of_three(root)

    assert [is_whole(data) for data in sets] == [True, False, True]


def test_a_set_whose_images_are_mapped_stays_until_they_are_let_go(folder: Path, root: Path) -> None:
    sets = [stored(folder, side) for side in (16, 17, 18)]
    for number, data in enumerate(sets):
        used_at(data, number + 1)
    views = sets[0].decoded_views()

    keep_two_of_three(root)
    assert [is_whole(data) for data in sets] == [True, False, True]

    del views
    keep_two_of_three(root)
    assert [is_whole(data) for data in sets] == [False, False, True]


def test_a_set_that_another_process_fills_stays(folder: Path, root: Path) -> None:
    sets = [stored(folder, side) for side in (16, 17)]
    with alone(place(sets[0])), alone(place(sets[1])), pytest.raises(NoRoom, match="more than remain of the"):
        keep_two_of_three(root)

    assert [is_whole(data) for data in sets] == [True, True]


def test_nothing_is_removed_for_a_set_that_is_too_large_anyway(folder: Path, root: Path) -> None:
    data = stored(folder, 16)

    with pytest.raises(NoRoom, match=r"need 1,000,000,000,000 bytes"):
        keep_within(limit_of(root), root / "new", 10**12, print)

    assert is_whole(data)


def test_images_beyond_the_limit_are_read_from_their_files_and_it_is_said(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_cache, "DISK_SHARE", 2**60)
    data, lines = load(spec(folder, 16)), list[str]()

    data.be_here(lines.append)

    assert len(lines) == 1
    assert lines[0].endswith("images are read from their files")
    assert not is_whole(data)
    named = load(spec(folder, 16, cache=str(tmp_path / "named")))
    named.be_here()
    assert is_whole(named), "a folder that a person named has no limit but the disk's"


def test_a_removed_set_is_decoded_again(folder: Path, root: Path) -> None:
    data = stored(folder, 16)
    before = {view: torch.from_numpy(pixels.copy()) for view, pixels in data.decoded_views().items()}
    keep_two_of_three(root)
    assert not is_whole(data)

    data.be_here()

    assert all(
        torch.equal(torch.from_numpy(data.decoded_views()[view].copy()), before[view]) for view in before
    )


def test_a_run_that_python_makes_fills_the_cache_and_later_ones_need_no_file(folder: Path) -> None:
    recipe = Recipe(data=spec(folder, 16), loop=Loop(batch_size=8))
    data = load_for(recipe, ON_CPU)
    first = make_run(recipe)
    first.close()

    assert isinstance(first.images.loader, ArrayLoader)
    for file in folder.rglob("*.jpg"):
        file.unlink()
    again = make_run(recipe, data=data)
    accuracy = again.evaluate("validation")
    again.close()
    assert accuracy["val_accuracy"] >= 0.0


def test_a_run_on_images_that_are_loaded_already_decodes_none_for_later(folder: Path, root: Path) -> None:
    """Checks and probes make such runs: they read a few images, of what may be millions."""
    data = load(spec(folder, 16))

    make_run(Recipe(data=spec(folder, 16), loop=Loop(batch_size=8, workers=0)), data=data).close()

    assert not is_whole(data)
    assert not root.exists()
