"""Tests where a search lives: its names, its folder, its address, its trials' checkpoints."""

from __future__ import annotations

from pathlib import Path

import pytest

from search.record.folder import home_in
from search.record.home import Home, names_below
from search.study import Study
from trainable.files.store import Store

IN_S3 = "s3://b/searches?region=x"


def study_in(storage: str | Path) -> Study:
    return Study.from_tree({"name": "mine", "data": {"path": "digits"}, "storage": str(storage)})


def test_a_search_is_named_by_its_folder_or_its_uri() -> None:
    assert Home.of(study_in("/searches")) == Home(Path("/searches/mine"))
    assert Home(Path("/searches/mine")).address == "/searches/mine"
    assert Home.of(study_in(IN_S3)).address == "s3://b/searches/mine?region=x"


@pytest.mark.parametrize("storage", ["/searches", IN_S3, "s3://b/searches/"])
def test_an_address_leads_back_to_the_same_home(storage: str) -> None:
    home = Home.of(study_in(storage))
    assert Home.at(home.address) == home


def test_stores_with_searches_of_one_name_have_folders_of_their_own() -> None:
    assert Home.at("s3://b/c/mine").folder != Home.at("s3://b/d/mine").folder


def test_a_trial_s_checkpoints_are_below_the_search() -> None:
    assert Home(Path("/searches/mine")).checkpoints(3) == "/searches/mine/trials/0003"
    assert Home.of(study_in(IN_S3)).checkpoints(12) == "s3://b/searches/mine/trials/0012?region=x"


def test_trials_with_checkpoints_are_found_in_a_folder_and_in_a_store(tmp_path: Path) -> None:
    for name in ("0000", "0012", "notes"):
        (tmp_path / "trials" / name).mkdir(parents=True)
    for home in (Home(tmp_path), Home(tmp_path / "nonsuch", Store(tmp_path.as_uri()))):
        assert home.trials_with_checkpoints() == {0, 12}
    assert Home(tmp_path / "nonsuch").trials_with_checkpoints() == set()


def test_names_below_what_does_not_exist_are_none(tmp_path: Path) -> None:
    assert names_below(str(tmp_path / "nonsuch")) == names_below((tmp_path / "nonsuch").as_uri()) == []


def test_the_folder_before_a_store_has_the_store_and_a_copy_has_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    study = study_in(IN_S3)
    home, copy = Home.of(study), tmp_path / "copy"
    for folder in (home.folder, copy):
        folder.mkdir(parents=True)
        study.write(folder)
    assert home_in(home.folder) == home
    assert home_in(copy) == Home(copy)
