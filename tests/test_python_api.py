"""Tests `import tunebook`: quick, whole, typed, and sure that what it imports is ours."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tunebook
from search.results import Search
from tests.search.reporting.test_terminal import search_folder, values
from trainable.imports import SAFE_PATH

ROOT = Path(__file__).parents[1]
# Commands that serve pages or print what goes on elsewhere
OTHER_NAMES = {"list": "list-searches", "open": "open-report"}  # than Python's own functions
NO_FUNCTION = {"ui", "shrink", "backbones", "submit", "status", "logs", "stop", "fetch"}


def run(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run code as a person does, who has the folder on the path; the command line takes it from there."""
    environment = {name: value for name, value in os.environ.items() if name != SAFE_PATH}
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment,
        check=False,
    )


def test_all_names_are_listed_and_those_that_a_type_checker_sees() -> None:
    assert set(tunebook.__all__) <= set(dir(tunebook))
    text = (ROOT / "tunebook" / "__init__.py").read_text()
    typed = set(re.findall(r"import (\w+) as \1\n", text))
    assert typed == set(tunebook.__all__) == set(tunebook._HOME_OF)


@pytest.mark.parametrize("name", tunebook.__all__)
def test_every_name_is_at_home_where_it_is_looked_for(name: str) -> None:
    found = getattr(tunebook, name)
    assert found.__name__ == name
    assert found.__doc__


def test_every_command_has_its_function() -> None:
    from search.__main__ import app

    commands = {
        each.name or each.callback.__name__.replace("_", "-")
        for each in app.registered_commands
        if each.callback
    }
    functions = {name.replace("_", "-") for name in tunebook.__all__}
    named = {OTHER_NAMES.get(each, each) for each in commands}
    assert named - functions <= NO_FUNCTION


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'serch'"):
        tunebook.serch  # type: ignore[attr-defined]  # noqa: B018


def test_importing_it_imports_nothing_of_ours(tmp_path: Path) -> None:
    done = run(
        "import sys, tunebook; print([n for n in ('torch', 'ray', 'search') if n in sys.modules])", tmp_path
    )
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("name", ["search", "trainable"])
def test_a_file_of_ones_own_that_shadows_a_package_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.py").write_text("")
    done = run("import tunebook; tunebook.Recipe", tmp_path)
    assert f"ImportError: tunebook: {tmp_path / name}.py is imported as '{name}'" in done.stderr
    assert "rename it, or run from another folder" in done.stderr


@pytest.fixture
def found(tmp_path: Path) -> Search:
    return Search(search_folder(tmp_path, {0: (0.8, values()), 1: (0.9, values())}))


def test_a_search_and_its_best_trial_are_one_line_each(found: Search) -> None:
    assert repr(found) == "<Search planted: finished, 2 trials, best val_accuracy 0.9000 (trial 1)>"
    assert repr(found.best) == (
        "<Trial 1: resnet_small (depth 8, width 16), from scratch, 8 px, SGD at 0.5 a batch of 256, cosine; "
        "val_accuracy 0.9000; finished>"
    )


def test_a_folder_without_a_search_has_a_repr_that_says_so(tmp_path: Path) -> None:
    assert repr(Search(tmp_path)).startswith(f"<Search {tmp_path}: ")
    assert Search(tmp_path)._repr_html_().startswith("<p>")


def test_a_notebook_shows_the_answer_and_the_curves_whole_in_themselves(found: Search) -> None:
    page = found._repr_html_()
    assert "<h4>planted: finished</h4><p>trial 1: resnet_small" in page
    assert 'src="data:image/png;base64,iVBOR' in page
    assert "http" not in page


def test_what_a_notebook_shows_is_escaped(found: Search, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(found.best), "numbered_sentence", "<script>")
    assert "<script>" not in found._repr_html_()
    assert "&lt;script&gt;" in found._repr_html_()


def test_the_curves_are_a_picture_that_can_be_saved(found: Search, tmp_path: Path) -> None:
    picture = found.plot()
    picture.save(tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes() == picture._repr_png_()
    assert picture.png.startswith(b"\x89PNG")


def test_show_export_report_and_explain_give_values(found: Search, tmp_path: Path) -> None:
    assert repr(tunebook.show(found.folder)) == repr(found)
    exported = tunebook.export(found.folder, tmp_path / "best.yaml")
    assert tunebook.read_recipe(tmp_path / "best.yaml") == exported.recipe
    assert tunebook.report(found.folder, tmp_path / "page.html").read_text().startswith("<!doctype html>")
    rows = tunebook.explain(found.folder)
    assert rows[0].path == "optimizer.kind"
    assert len(tunebook.explain(found.folder, everything=True)) > len(rows)


def test_a_recipe_is_explained_and_trained(tmp_path: Path) -> None:
    recipe = tunebook.Recipe().with_values({"model.width": 4, "loop.epochs": 1})
    rows = {row.path: row for row in tunebook.explain(recipe, settings={"optimizer.lr": 0.2})}
    assert rows["optimizer.lr"].what == "0.2"
    outcome = tunebook.train(recipe, settings={"optimizer.lr": 0.2}, out=tmp_path / "model")
    assert outcome.recipe.get("optimizer.lr") == 0.2
    assert (tmp_path / "model" / "metrics.json").exists()
