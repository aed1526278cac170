"""Tests that `tunebook export` refuses, before it trains anything, what it could not write or compare."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from search.learning.search import Search
from tests.search.command_line import Tunebook
from tests.search.planted_searches import Run, planted
from trainable.recipe.yamlfile import read_recipe


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a search of eight trials, some of which were stopped early."""
    return planted(
        tmp_path_factory.mktemp("searches"), lambda at, luck: Run(luck.uniform(0.5, 0.9), 0.95), trials=8
    )


def refused(tunebook: Tunebook, *arguments: str | Path) -> str:
    """Return why a command was refused as wrong usage, which said nothing else and trained nothing."""
    code, out, err = tunebook("export", *arguments)
    assert (code, out) == (2, ""), err
    return err


@pytest.mark.parametrize("asked", [("--verify", "3"), ("--simplify",), ("--finalize",)])
def test_a_trial_that_did_not_finish_is_not_trained_again(
    tunebook: Tunebook, folder: Path, asked: tuple[str, ...]
) -> None:
    stopped = next(each for each in Search(folder).trials if each.end == "stopped")
    said = refused(tunebook, folder, "-o", "best.yaml", "--trial", str(stopped.id), *asked)
    assert f"--trial {stopped.id}" in said
    assert f"expect a finished trial, got one that is stopped early after epoch {stopped.epochs}" in said
    code, _, _ = tunebook("export", folder, "-o", "best.yaml", "--trial", str(stopped.id))
    assert code == 0


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        (("-o", "a_folder", "--verify", "3"), "is a folder; give a file"),
        (("-o", "a_folder/file/x.yaml", "--simplify"), "cannot be made: a_folder/file is a file"),
        (("-o", "x.yaml", "--finalize", "--images", "a_folder"), "is not empty; give a new folder"),
        (("-o", "x.yaml", "--finalize", "--images", "a_folder/file"), "is a file; give a new folder"),
        (("-o", "x.yaml", "--simplify", "--batch", "9000"), "7,000 training images, which fill no batch"),
        (("-o", "x.yaml", "--simplify", "--batch", "64", "--gpus", "3"), "expected a multiple of the 3 GPUs"),
        (("-o", "x.yaml", "--bare", "--format", "timm"), "--bare: only for --format tunebook"),
        (("-o", "x.yaml", "--bare", "--gpus", "2"), "--bare: only for --format tunebook"),
        (("-o", "x.yaml", "--seeds", "5"), "--seeds: only for --simplify and --finalize"),
        (("-o", "x.yaml", "--verify", "3", "--seeds", "5"), "--seeds: only for --simplify and --finalize"),
        (("-o", "x.yaml", "--verify", "2"), "greater than or equal to 3"),
    ],
)
def test_what_cannot_be_done_is_refused_before_any_training(
    tunebook: Tunebook, tmp_path: Path, folder: Path, asked: tuple[str, ...], wanted: str
) -> None:
    (tmp_path / "a_folder").mkdir()
    (tmp_path / "a_folder" / "file").touch()
    assert wanted in refused(tunebook, folder, *asked)
    assert not (tmp_path / "x.yaml").exists()


@pytest.mark.parametrize("asked", [("--verify", "3"), ("--simplify",), ("--finalize", "--verify", "3")])
def test_images_that_are_others_since_the_search_are_refused_before_any_training(
    tunebook: Tunebook, tmp_path: Path, folder: Path, asked: tuple[str, ...]
) -> None:
    code, said, err = tunebook("export", folder, "-o", "best.yaml", *asked)
    assert (code, said) == (2, "")
    assert "data.path digits: these are not the images that the recipe was found with" in err
    assert f"(digest {Search(folder).info.digest}, now " in err
    assert not (tmp_path / "best.yaml").exists()
    assert not (folder / "verification.json").exists()


def test_images_that_are_others_since_the_search_are_not_written_under_its_digest(
    tunebook: Tunebook, tmp_path: Path, folder: Path
) -> None:
    said = refused(tunebook, folder, "-o", "best.yaml", "--images", "parts")
    assert f"(digest {Search(folder).info.digest}, now " in said
    assert "put the former back, or leave --images out" in said
    assert not (tmp_path / "parts").exists()


def test_a_recipe_is_named_by_eight_digits_of_its_digest(
    tunebook: Tunebook, tmp_path: Path, folder: Path
) -> None:
    code, out, _ = tunebook("export", folder, "-o", tmp_path / "eight.yaml")
    assert code == 0
    digest = read_recipe(tmp_path / "eight.yaml").digest()
    assert f"recipe {digest[:8]})" in out
    assert digest not in out
    _, explained, _ = tunebook("explain", tmp_path / "eight.yaml", "--set", "data.path=nowhere")
    assert re.search(r"^recipe [0-9a-f]{8}: resnet_small", explained, re.MULTILINE)


def test_a_file_in_the_home_folder_is_written_there_and_not_overwritten(
    tunebook: Tunebook, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    code, _, err = tunebook("export", folder, "-o", "~/best.yaml")
    assert code == 0, err
    assert (tmp_path / "home/best.yaml").is_file()
    assert not Path("~").exists()
    assert "best.yaml exists already" in refused(tunebook, folder, "-o", "~/best.yaml")


def test_the_answer_in_json_says_whether_the_recipe_is_verified(tunebook: Tunebook, folder: Path) -> None:
    code, out, err = tunebook("export", folder, "-o", "best.yaml", "--json")
    assert code == 0, err
    recipe = read_recipe("best.yaml")
    assert json.loads(out) == {"schema": 1, "out": "best.yaml", "recipe": recipe.digest(), "verified": None}
