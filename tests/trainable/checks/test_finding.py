"""Tests what is kept of images that were looked at, for whoever trains on them later."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.trainable.small_runs import data_set
from trainable.checks.finding import Finding, causes_of_gaps, failed, keep, kept, passed
from trainable.data import DataInfo

KIND = Finding("parts alike", "warning", "told apart", "test images are of another kind", "look")
SIZE = Finding("validation size", "warning", "9 images", "luck", "take more")


@pytest.fixture
def info(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DataInfo:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return data_set().info


def test_what_was_found_about_images_is_known_of_these_images_alone(info: DataInfo) -> None:
    keep(info, [KIND])
    assert kept(info) == (KIND,)
    assert kept(replace(info, digest="other")) is None


def test_a_quick_look_forgets_nothing_that_a_longer_one_has_found(info: DataInfo) -> None:
    keep(info, [KIND, SIZE])
    assert keep(info, [passed("parts alike", "alike")]) == (KIND, SIZE)
    again = replace(KIND, what="told apart by more images")
    assert keep(info, [again]) == (SIZE, again)


def test_only_warnings_about_the_images_themselves_are_kept(info: DataInfo) -> None:
    of_recipe = Finding("one batch", "error", "not learnt", "the step is wrong", "mend it")
    (crashed,) = failed("duplicates", ValueError("no images"))
    assert keep(info, [of_recipe, crashed, replace(SIZE, level="note"), passed("groups", "none")]) == ()


def test_a_file_that_cannot_be_read_is_as_none(info: DataInfo, tmp_path: Path) -> None:
    keep(info, [KIND])
    (file,) = tmp_path.rglob("*.json")
    file.write_text('[{"check": "weather"}]')
    assert kept(info) is None


def test_images_that_are_sound_are_known_to_have_been_looked_at(info: DataInfo) -> None:
    keep(info, [passed("parts alike", "alike")])
    assert kept(info) == ()


def test_scores_of_parts_differ_by_how_the_parts_compare_and_not_by_their_size() -> None:
    assert causes_of_gaps([KIND, SIZE]) == (KIND.means,)
