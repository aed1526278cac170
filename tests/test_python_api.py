"""Tests `import tunebook`: quick, whole, typed, and sure that what it imports is ours."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import is_dataclass
from inspect import signature
from pathlib import Path
from typing import Any, cast, get_type_hints

import pytest
from typer.core import TyperOption

import tunebook
from search.__main__ import app
from search.commands import options
from search.commands.asked import as_typed
from search.commands.cli_page import commands_of
from search.commands.named import input_given
from search.commands.options import InputOptions
from search.jobs import cli
from search.results import Search
from tests.search.reporting.test_terminal import search_folder, values
from trainable.errors import UserError
from trainable.imports import SAFE_PATH
from trainable.train_options import Sets

ROOT = Path(__file__).parents[1]
COMMANDS = commands_of(app)
OTHER_NAMES = {"list": "list_searches", "open": "open_report"}  # than Python's own functions
# what a function calls an option, and the function that does what another option asks for
OTHER_WORDS = {"again": "resume", "form": "format"}
IN_ANOTHER_FUNCTION = {("search", "dry_run"): "forecast"}
# what only a terminal needs: pages that follow, questions, other forms of what a function returns
OF_A_TERMINAL = {
    *(("as_json", name) for name in COMMANDS),
    *(("json", name) for name in COMMANDS),
    *{("yes", "delete"), ("watch", "report"), ("port", "report"), ("detach", "submit"), ("follow", "logs")},
    *{("minutes", "check"), ("write_exclusions", "check"), ("address", "check")},
}


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


def function_name(command: str) -> str:
    return OTHER_NAMES.get(command, command.replace("-", "_"))


def test_every_command_has_its_function_and_docs_python_md_names_it() -> None:
    named = {function_name(command) for command in COMMANDS}
    assert named <= set(tunebook.__all__)
    page = (ROOT / "docs" / "python.md").read_text()
    assert [name for name in sorted(named) if f"`{name}(" not in page and f"`{name}`" not in page] == []


def fields_that_options_set() -> set[str]:
    """Return the names of the options that set a field of a study or a recipe."""
    kinds = [each for home in (options, cli) for each in vars(home).values() if is_dataclass(each)]
    return {
        name
        for kind in kinds
        for name, hint in get_type_hints(kind, include_extras=True).items()
        if any(isinstance(each, Sets) for each in getattr(hint, "__metadata__", ()))
    }


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_of_a_command_is_there_in_its_function(name: str) -> None:
    taken = set(signature(getattr(tunebook, function_name(name))).parameters)
    by_study = fields_that_options_set() | {"settings"}
    for option in COMMANDS[name].params:
        if not isinstance(option, TyperOption) or option.name == "help":
            continue
        field = str(option.name)
        if (other := IN_ANOTHER_FUNCTION.get((name, field))) is not None:
            assert other in tunebook.__all__
        elif (field, name) not in OF_A_TERMINAL and OTHER_WORDS.get(field, field) not in taken:
            # a study says all of itself; what is set otherwise is one of `settings`, but for the device
            assert field in by_study, option.opts
            assert "study" in taken or ("settings" in taken and field != "device"), option.opts


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


def test_what_is_there_is_overwritten_only_by_force(found: Search, tmp_path: Path) -> None:
    file, page = tmp_path / "best.yaml", tmp_path / "page.html"
    writers: tuple[Callable[[bool], object], ...] = (
        lambda force: tunebook.export(found.folder, file, force=force),
        lambda force: tunebook.report(found.folder, page, force=force),
        lambda force: tunebook.refine(found.folder, file, force=force),
    )
    file.write_text("earlier")
    page.write_text("earlier")
    for write in writers:
        with pytest.raises(UserError, match="exists already"):
            write(False)
    assert file.read_text() == page.read_text() == "earlier"
    for write in writers:
        write(True)
    assert page.read_text().startswith("<!doctype html>")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "recipe.yaml").write_text("earlier")
    with pytest.raises(UserError, match=r"recipe\.yaml exists already"):
        tunebook.train(tunebook.Recipe(), out=tmp_path / "model")


def test_an_export_has_the_formats_and_the_hardware_of_the_command(found: Search, tmp_path: Path) -> None:
    tunebook.export(found.folder, tmp_path / "bare.yaml", bare=True)
    assert "#" not in (tmp_path / "bare.yaml").read_text()
    for asked in ({"format": "script"}, {"gpus": 2}, {"bare": True}):
        with pytest.raises(UserError, match="say how a file is written: name it"):
            tunebook.export(found.folder, **asked)
    with pytest.raises(UserError, match="format='kers': expected tunebook, timm, torchvision"):
        tunebook.export(found.folder, tmp_path / "out", format="kers")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: tunebook.lr_find("digits", steps=3), "steps=3: expected 30 or more"),
        (lambda: tunebook.check("digits", seconds=0), "seconds=0: expected 1 or more"),
        (lambda: tunebook.shrink("nowhere", seeds=1), "seeds=1: expected 2 or more"),
        (lambda: tunebook.shrink("nowhere"), "nowhere: no such folder"),
        (
            lambda: tunebook.backbones("digits", size=cast(Any, "huge")),
            "expected one of small, medium, large, got 'huge'",
        ),
        (
            lambda: tunebook.batch_find("digits", device=cast(Any, "tpu")),
            "device='tpu': expected auto, cpu or cuda",
        ),
        (lambda: tunebook.ui("nowhere"), "nowhere: not a search folder"),
        (lambda: tunebook.search("digits", settings={"budget.trails": 3}), "budget.trails"),
        (
            lambda: tunebook.forecast({"data": {"path": "digits"}}, settings={"budget.trials": 0}),
            "budget.trials",
        ),
        (lambda: tunebook.lr_find({"data": {"path": "nowhere"}}), "nowhere does not exist"),
        (lambda: tunebook.batch_find(tunebook.Recipe(), settings={"loop.epoch": 3}), "loop.epoch"),
        (lambda: tunebook.check({"data": {"path": "digits"}}, settings={"seed": object()}), "not plain data"),
        (lambda: tunebook.backbones(tunebook.Recipe()), "give DATA or a study"),
        (lambda: tunebook.submit({"data": {"path": "flowers"}}, address="http://head:8265"), "data.path"),
        (lambda: tunebook.submit("nowhere.yaml", address="http://head:8265"), "nowhere.yaml: no such file"),
        (lambda: tunebook.status(address="head"), "expected the dashboard's http://HOST:PORT"),
        (lambda: tunebook.logs("flowers-1", address="head"), "expected the dashboard's http://HOST:PORT"),
        (lambda: tunebook.stop("flowers-1", address="head"), "expected the dashboard's http://HOST:PORT"),
        (lambda: tunebook.fetch("flowers-1", address="head"), "expected the dashboard's http://HOST:PORT"),
    ],
)
def test_a_function_refuses_what_its_command_refuses(call: Callable[[], object], said: str) -> None:
    with pytest.raises(UserError, match=re.escape(said)):
        call()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda folder: tunebook.report(folder, compare="nowhere"), "nowhere: not a search folder"),
        (lambda folder: tunebook.report(folder, compare=Path("nowhere")), "nowhere: not a search folder"),
        (lambda folder: tunebook.backbones("digits", models="resnet1"), "resnet1"),
        (lambda folder: tunebook.check("digits", debug="gradients"), "--debug gradients: no such tool"),
        (lambda folder: tunebook.train(tunebook.Recipe(), debug="gradients"), "--debug gradients: no such"),
        (
            lambda folder: tunebook.submit(
                {"data": {"path": "/images"}, "storage": "/searches"}, address="http://head:1", env="NOWHERE"
            ),
            "--env NOWHERE: is not set here",
        ),
    ],
)
def test_one_name_may_be_given_without_a_list(
    tmp_path: Path, call: Callable[[Path], object], said: str
) -> None:
    (tmp_path / "study.yaml").write_text("data: {path: digits}")
    with pytest.raises(UserError, match=re.escape(said)):
        call(tmp_path)


def test_a_training_is_refused_before_torch_is_imported(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text("data: {path: nowhere}\nmodel: {kind: resnet_small}\n")
    tried = (
        "import sys, tunebook\ntry: tunebook.train('recipe.yaml')\n"
        "except tunebook.UserError as error: print(error, 'torch' in sys.modules)"
    )
    assert "nowhere does not exist" in (said := run(tried, tmp_path).stdout)
    assert said.rstrip().endswith("False")


def test_a_training_says_that_a_recipe_is_of_a_pruned_network(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "recipe.yaml").write_text("data: {path: digits}\nmodel: {kind: resnet_small}\n")
    (tmp_path / "pruned.json").touch()
    with pytest.raises(UserError, match="'str' object is not callable"):
        tunebook.train(tmp_path / "recipe.yaml", model=cast(Any, "resnet"))
    assert "is the fine-tuning of a pruned network, and builds the whole network" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["search", "forecast"])
def test_what_no_search_can_be_made_of_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "study.yaml").write_text("data: {path: digits}")
    (tmp_path / "recipe.yaml").write_text("data: {path: digits}\nmodel: {kind: resnet_small}\n")
    ask = getattr(tunebook, name)
    with pytest.raises(UserError, match="is a search already; `tunebook resume"):
        ask(tmp_path)
    with pytest.raises(UserError, match="this is a recipe, not a study"):
        ask(tmp_path / "recipe.yaml")
    with pytest.raises(UserError, match=r"storage .*study\.yaml/searches: cannot be made"):
        ask("digits", settings={"storage": str(tmp_path / "study.yaml" / "searches")})


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda folder: tunebook.audit_pruning(folder, share=-0.5), "share=-0.5: expected 0 to 1"),
        (lambda folder: tunebook.audit_pruning(folder, share=1.5), "share=1.5: expected 0 to 1"),
        (lambda folder: tunebook.ui(folder, port=70000), "port=70000: expected 1 to 65535"),
    ],
)
def test_a_number_outside_its_limits_is_refused(
    tmp_path: Path, call: Callable[[Path], object], said: str
) -> None:
    (tmp_path / "study.yaml").write_text("data: {path: digits}")
    with pytest.raises(UserError, match=re.escape(said)):
        call(tmp_path)


def test_a_message_that_names_an_option_has_a_note_with_the_parameter(found: Search, tmp_path: Path) -> None:
    (tmp_path / "best.yaml").write_text("earlier")
    with pytest.raises(UserError, match=r"-o: .*--force to overwrite it") as raised:
        tunebook.export(found.folder, tmp_path / "best.yaml")
    assert raised.value.__notes__ == ["in Python -o is out=, --force is force="]
    with pytest.raises(UserError) as raised:
        tunebook.show("nowhere").summary  # noqa: B018
    assert not hasattr(raised.value, "__notes__")


def test_a_function_that_returns_its_answer_prints_nothing(
    found: Search, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("webbrowser.open", lambda address: False)
    assert tunebook.open_report(found.folder) == found.folder / "report.html"
    assert tunebook.rename(found.folder, "tulips") == found.folder.with_name("tulips")
    assert tunebook.delete(found.folder.with_name("tulips")).trials == 2
    assert capsys.readouterr().out == ""


def test_a_study_is_the_same_as_a_mapping_as_a_study_and_in_a_file(tmp_path: Path) -> None:
    tree = {"data": {"path": "digits"}, "base": {"model.name": "resnet10t"}}
    (tmp_path / "study.yaml").write_text(json.dumps(tree))
    options = InputOptions(settings=as_typed({"optimizer.lr": 0.2, "budget.trials": 5}))
    (of_file, of_mapping) = (input_given(each, options) for each in (tmp_path / "study.yaml", tree))
    assert isinstance(of_file, tunebook.Study)
    assert of_file == of_mapping == input_given(of_file, InputOptions())
    assert (of_file.budget.trials, of_file.pinned["optimizer.lr"]) == (5, 0.2)
    assert of_file.pinned["model.kind"] == "timm"


def test_a_recipe_is_explained_and_trained(tmp_path: Path) -> None:
    recipe = tunebook.Recipe().with_values({"model.width": 4, "loop.epochs": 1})
    rows = {row.path: row for row in tunebook.explain(recipe, settings={"optimizer.lr": 0.2})}
    assert rows["optimizer.lr"].what == "0.2"
    outcome = tunebook.train(recipe, settings={"optimizer.lr": 0.2}, out=tmp_path / "model")
    assert outcome.recipe.get("optimizer.lr") == 0.2
    assert (tmp_path / "model" / "metrics.json").exists()
