"""Tests the text of `best.yaml`: its head, what was searched first, sources at the foot."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from search.learning.search import Search
from search.record.folder import Caution
from search.results.export import exported, exported_file
from search.results.recipe_file import recipe_text, searched_first, values_that_matter
from tests.search.learning.landscapes import RANGES, RATE, SMALL
from tests.search.planted_searches import planted
from tests.search.reporting.small_reports import hill
from trainable.checks.finding import Finding, keep
from trainable.recipe import Recipe
from trainable.recipe.base import Purpose
from trainable.recipe.yamlfile import parse_tree, read_recipe


@pytest.fixture(scope="module")
def search(tmp_path_factory: pytest.TempPathFactory) -> Search:
    storage = tmp_path_factory.mktemp("storage")
    return Search(
        planted(storage, hill, trials=8, sampler__kind="random", **{**SMALL, "space__overrides": RANGES})
    )


def head_of(file: Path) -> list[str]:
    return [line[2:] for line in file.read_text().partition("\n\n")[0].splitlines()]


def test_the_file_begins_with_what_it_is_what_was_trained_the_score_the_data_and_what_to_type(
    search: Search, tmp_path: Path
) -> None:
    exported(search).write(file := tmp_path / "mine.yaml")
    best = search.best
    assert best is not None
    what, trained, score, data, matters, command, *rest = head_of(file)
    assert what == f"The best recipe of the search {search.record.name} (trial {best.id} of 8)."
    assert trained == f"Trained: {best.sentence}."
    assert f"val_accuracy {best.metrics['val_accuracy']:.4f} (95 % interval 0." in score
    images = f"{search.info.train_images:,} images to train, {search.info.validation_images:,} to validate"
    assert data == f"Data: digits; {images}, 10 classes."
    assert f"{RATE} {best.values[RATE]:.3g} (documented" in matters
    assert "train mine.yaml --out" in command
    assert len(rest) == 2


def test_the_file_with_its_head_and_without_is_read_as_the_recipe_that_was_trained(
    search: Search, tmp_path: Path
) -> None:
    found = exported(search)
    found.write(full := tmp_path / "full.yaml")
    found.write(bare := tmp_path / "bare.yaml", bare=True)
    assert read_recipe(full) == read_recipe(bare) == found.recipe
    assert read_recipe(full).digest() == search.best.digest if search.best is not None else False
    assert "#" not in bare.read_text()
    yaml = YAML()
    assert Recipe.from_tree(parse_tree(bare.read_text(), "bare")) == found.recipe
    assert dict(yaml.load(full.read_text())) == dict(yaml.load(bare.read_text()))


def test_what_was_searched_stands_before_what_was_fixed(search: Search, tmp_path: Path) -> None:
    found = exported(search)
    found.write(file := tmp_path / "best.yaml")
    lines = file.read_text().splitlines()
    fixed = next(at for at, line in enumerate(lines) if line.startswith("# What follows was fixed"))
    sections = [line.partition(":")[0] for line in lines if re.match(r"[a-z_]+:", line)]
    searched = {path.partition(".")[0] for path in found.varied}
    above = [line.partition(":")[0] for line in lines[:fixed] if re.match(r"[a-z_]+:", line)]
    assert set(above) == searched
    assert set(sections) > searched


def test_kind_stays_ahead_of_what_was_searched_in_its_section() -> None:
    tree = {
        "version": 2,
        "optimizer": {"kind": "sgd", "momentum": 0.9, "lr": 0.1},
        "data": {"path": "digits"},
    }
    found = searched_first(tree, {"optimizer.lr"})
    assert list(found) == ["optimizer", "version", "data"]
    assert list(found["optimizer"]) == ["kind", "lr", "momentum"]
    assert found == tree


def test_a_source_is_spelled_out_once_at_the_foot_and_every_number_in_the_file_is_there(
    search: Search, tmp_path: Path
) -> None:
    exported(search).write(file := tmp_path / "best.yaml")
    body, _, foot = file.read_text().partition("\n# Sources")
    values = body.partition("\n\n")[2]
    used = {int(each) for each in re.findall(r"\[(\d+)\]$", values, re.MULTILINE)}
    explained = re.findall(r"^# \[(\d+)\] (.+)$", foot, re.MULTILINE)
    assert used == {int(number) for number, _ in explained} == set(range(1, len(used) + 1))
    assert len({words for _, words in explained}) == len(explained)
    assert not re.search(r"\b00[0-4]:\d", file.read_text())


def test_names_that_end_a_line_or_a_comment_cannot_break_the_file(search: Search, tmp_path: Path) -> None:
    plain = exported(search)
    hostile = "a\nversion: 9\r\u2028version: 8\x85# \x1b[31m"
    mark = f"Test images are of another kind: {hostile}"
    cautions = (Caution(kind="data", about="parts alike", what=mark),)
    data = plain.recipe.data.model_copy(update={"path": f"/images/{hostile}"})
    recipe = plain.recipe.model_copy(update={"data": data})
    changed = replace(plain, recipe=recipe, cautions=cautions, title=hostile, matters=hostile)
    changed.write(file := tmp_path / "best.yaml")
    assert read_recipe(file) == recipe
    assert len(head_of(file)) == len(head_of(tmp_path / "best.yaml"))
    assert not [line for line in file.read_text().splitlines()[:9] if not line.startswith("# ")]


def test_what_limits_the_answer_stands_above_the_score(search: Search, tmp_path: Path) -> None:
    caution = Caution(kind="data", about="parts alike", what="Test images are of another kind.")
    replace(exported(search), cautions=(caution,)).write(file := tmp_path / "best.yaml")
    head = head_of(file)
    words = "Test images are of another kind."
    assert head[2] == f"Before you trust it (`tunebook show DIR` says more): {words}"
    assert head[3].startswith("Score: ")


def test_a_file_that_is_exported_again_keeps_its_score_and_says_what_to_type(
    search: Search, tmp_path: Path
) -> None:
    exported(search).write(tmp_path / "best.yaml")
    exported_file(tmp_path / "best.yaml").write(again := tmp_path / "again.yaml")
    assert read_recipe(again) == read_recipe(tmp_path / "best.yaml")
    text = "\n".join(head_of(again))
    assert "Score: val_accuracy 0." in text
    assert "train again.yaml --out" in text


def test_a_file_that_is_exported_has_what_this_machine_has_found_about_its_images(
    search: Search, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exported(search).write(file := tmp_path / "best.yaml")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    keep(exported_file(file).info, [Finding("duplicates", "warning", "9 copies", "scores reward memory")])
    exported_file(file).write(again := tmp_path / "again.yaml")
    words = "Before you trust it (`tunebook check again.yaml` says more): scores reward memory"
    assert words in head_of(again)


def test_a_recipe_without_reasons_has_neither_marks_nor_foot() -> None:
    text = recipe_text(Recipe(), {"optimizer.lr": Purpose("as it was", "")}, ())
    assert "# as it was" in text
    assert "Sources" not in text
    assert "[" not in re.sub(r"\[\]|\[[0-9., ]+\]", "", text)


@pytest.mark.slow("computes importances, for which Optuna and scikit-learn are imported")
def test_of_many_trials_the_values_are_named_that_decide_most(tmp_path: Path) -> None:
    asked = {**SMALL, "space__overrides": RANGES}
    search = Search(planted(tmp_path, hill, trials=24, sampler__kind="random", **asked))
    best = search.best
    assert best is not None
    words = values_that_matter(search, best)
    assert words.startswith(f"What decides most in this search: {RATE} {best.values[RATE]:.3g}")


def test_a_value_that_reads_as_the_documented_one_is_not_named_as_another(search: Search) -> None:
    best = search.best
    assert best is not None
    own = search.space.own[RATE]
    assert isinstance(own, float)
    near = replace(best, values={**best.values, RATE: own * (1 + 1e-12)})
    assert RATE in values_that_matter(search, replace(best, values={**best.values, RATE: own * 1.1}))
    assert f"{RATE} " not in values_that_matter(search, near)


def test_the_documented_recipe_is_called_so(search: Search) -> None:
    assert values_that_matter(search, search.trials[0]) == "It is the documented recipe"


def test_a_trial_that_did_not_finish_is_no_best_recipe_and_says_how_far_it_came(
    search: Search, tmp_path: Path
) -> None:
    stopped = next(each for each in search.trials if each.state == "stopped")
    exported(search, stopped.id).write(file := tmp_path / "stopped.yaml")
    name, count = search.record.name, f"{stopped.epochs} epochs"
    assert (
        head_of(file)[0]
        == f"A recipe of the search {name} (trial {stopped.id} of 8, stopped early after {count})."
    )


def test_an_optimizer_of_timm_is_named_by_the_values_that_its_fields_take() -> None:
    search = Search(Path(__file__).parents[2] / "net" / "labels")
    assert search.best is not None
    words = values_that_matter(search, search.best)
    assert "optimizer.kind timm (muon) (documented sgd), " in words
