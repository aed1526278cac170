"""Tests `tunebook list` and what `rename` and `delete` do to a search that MLflow has not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from search.record.lock import locked
from search.record.stored_search import StoredSearch
from search.study import STUDY_FILE, read_study
from tests.search.command_line import Refusal, Tunebook
from tests.search.planted_searches import planted
from tests.search.reporting.small_reports import BELIEVED, hill
from trainable.files.store import Store


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return planted(tmp_path / "searches", hill, trials=3, sampler__kind="random", **BELIEVED)


def test_a_storage_is_listed_with_the_best_score_and_its_interval(tunebook: Tunebook, folder: Path) -> None:
    (found,) = json.loads(tunebook("list", "--json")[1])["searches"]
    search = StoredSearch(folder)
    assert (found["name"], found["data"], found["trials"]) == (folder.name, "digits", 3)
    assert search.best is not None
    assert found["best"] == search.best.metrics["val_accuracy"]
    low, high = found["interval"]
    assert low < found["best"] < high
    code, out, _ = tunebook("list", folder.parent)
    assert (code, f"{low:.4f} to {high:.4f}" in out) == (0, True)


def test_a_damaged_search_does_not_hide_the_others(tunebook: Tunebook, folder: Path) -> None:
    other = folder.with_name("broken")
    other.mkdir()
    (other / STUDY_FILE).write_text("data: {path: digits}\nbudget: {trails: 3}\n")
    code, out, err = tunebook("list")
    assert (code, folder.name in out, "broken" in out) == (0, True, False)
    assert "broken: cannot be read" in err
    assert "budget.trails" in err


def test_an_empty_storage_says_how_to_begin(tunebook: Tunebook, tmp_path: Path) -> None:
    assert "tunebook search --data PATH" in tunebook("list", tmp_path)[1]


def test_a_renamed_search_is_whole(tunebook: Tunebook, folder: Path) -> None:
    before = StoredSearch(folder).progress.json()
    assert tunebook("rename", folder, "tulips")[0] == 0
    now = StoredSearch(folder.with_name("tulips"))
    assert not folder.exists()
    assert (now.study.name, now.home.folder.name) == ("tulips", "tulips")
    assert now.progress.json() == {**before, "search": "tulips"}


@pytest.mark.parametrize(("name", "says"), [("a/b", "name"), ("taken", "taken: exists already")])
def test_a_name_that_cannot_be_is_refused(refusal: Refusal, folder: Path, name: str, says: str) -> None:
    folder.with_name("taken").mkdir()
    assert says in refusal("rename", folder, name)
    assert StoredSearch(folder).study.name == folder.name


@pytest.mark.usefixtures("refused_at_once")
@pytest.mark.parametrize("words", [("rename", "tulips"), ("delete", "--yes")])
def test_a_search_that_runs_is_left_alone(refusal: Refusal, folder: Path, words: tuple[str, str]) -> None:
    before = sorted(each.name for each in folder.iterdir())
    with locked(folder):
        assert "running already" in refusal(words[0], folder, words[1])
        assert sorted(each.name for each in folder.iterdir() if each.name != ".lock") == [
            name for name in before if name != ".lock"
        ]


def test_a_deleted_search_is_gone(tunebook: Tunebook, folder: Path) -> None:
    code, out, _ = tunebook("delete", folder, "--yes")
    assert (code, folder.exists(), "3 trials" in out, " kB" in out) == (0, False, True, True)


def test_rename_and_delete_answer_in_json(tunebook: Tunebook, folder: Path) -> None:
    now, runs = folder.with_name("tulips"), {"runs": 0, "tracking": None}
    _, out, _ = tunebook("rename", folder, "tulips", "--json")
    assert json.loads(out) == {"schema": 1, "folder": str(now)}
    _, out, err = tunebook("delete", now, "--yes", "--json")
    answer = json.loads(out)
    assert answer.pop("bytes") > 0
    assert answer == {"schema": 1, "address": str(now), "trials": 3, **runs}
    assert err.endswith("deleted\n")


@pytest.fixture
def in_store(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Return the same search in a store, at a URI."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    store = Store((tmp_path / "store").as_uri()).at(folder.name)
    read_study(folder / STUDY_FILE).with_values({"storage": (tmp_path / "store").as_uri()}).write(folder)
    for file in folder.iterdir():
        if file.is_file():
            store.write(file.name, file.read_bytes())
    return store


def test_the_searches_of_a_store_are_listed_and_deleted_but_not_renamed(
    tunebook: Tunebook, in_store: Store, tmp_path: Path
) -> None:
    storage = (tmp_path / "store").as_uri()
    (found,) = json.loads(tunebook("list", storage, "--json")[1])["searches"]
    assert (found["address"], found["trials"]) == (in_store.uri, 3)
    code, _, err = tunebook("rename", in_store.uri, "tulips")
    assert (code, "is in an object store, where nothing can be renamed" in err) == (2, True)
    code, out, _ = tunebook("delete", in_store.uri, "--yes")
    assert (code, "3 trials" in out, in_store.names()) == (0, True, [])
    assert "holds no search" in tunebook("list", storage)[1]


def test_nothing_is_deleted_where_nobody_can_be_asked(refusal: Refusal, folder: Path) -> None:
    assert "give --yes" in refusal("delete", folder)
    assert StoredSearch(folder).trials


def test_nothing_is_deleted_where_the_answer_is_no(
    tunebook: Tunebook, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.confirm", lambda question: False)
    code, out, _ = tunebook("delete", folder)
    assert (code, out.endswith("nothing was deleted\n"), folder.exists()) == (1, True, True)
