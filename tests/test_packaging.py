"""Tests the project as it is installed: its packages, its time to import, its pins and its documents."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import resources
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from ruamel.yaml import YAML

from trainable.extras import RUN

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
LIGHT: list[str] = PROJECT["project"]["dependencies"]  # with these a search is looked at
EXTRAS: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
DEV: list[str] = PROJECT["dependency-groups"]["dev"]
LOCK = (ROOT / "requirements.lock").read_text()
HEAVY = ("torch", "torchvision", "timm", "ray", "optuna", "mlflow", "pandas", "matplotlib")


def python(code: str) -> str:
    """Return what a fresh interpreter in the project's folder prints."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# --- packages -----------------------------------------------------------------------------------------


@pytest.mark.integration
@pytest.mark.parametrize("package", ["search", "spaces", "trainable", "tunebook"])
def test_the_packages_of_these_common_names_are_ours(package: str) -> None:
    assert python(f"import {package}; print({package}.__file__)").strip() == str(
        ROOT / package / "__init__.py"
    )


@pytest.mark.parametrize("package", ["search", "spaces", "trainable", "tunebook"])
def test_every_package_says_that_it_is_typed(package: str) -> None:
    assert (ROOT / package / "py.typed").is_file()


def test_every_package_in_the_tree_is_listed_for_the_wheel() -> None:
    found = {str(path.parent.relative_to(ROOT)) for path in ROOT.glob("[a-z]*/**/__init__.py")}
    named = {package.replace(".", "/") for package in PROJECT["tool"]["setuptools"]["packages"]}
    assert found == named


@pytest.mark.parametrize(
    "modules",
    [
        "trainable.recipe.yamlfile, trainable.training.metrics",
        "spaces",
        "search, search.__main__, search.from_python",
    ],
    ids=["recipe", "spaces", "command line"],
)
@pytest.mark.integration
def test_reading_a_recipe_or_a_command_imports_nothing_heavy(modules: str) -> None:
    loaded = python(f"import sys, {modules}; print(*sys.modules)").split()
    assert set(HEAVY) & set(loaded) == set()


@pytest.mark.integration
def test_every_module_of_spaces_imports_without_torch_and_ray() -> None:
    files = sorted((ROOT / "spaces").rglob("[a-z]*.py"))
    names = ", ".join(".".join(path.relative_to(ROOT).with_suffix("").parts) for path in files)
    loaded = python(f"import sys, {names}; print(*sys.modules)").split()
    assert set(HEAVY) & set(loaded) == set()


@pytest.mark.integration
def test_one_run_needs_neither_ray_nor_optuna_nor_mlflow() -> None:
    loaded = python("import sys, trainable.training.run; print(*sys.modules)").split()
    assert "torch" in loaded
    assert {"ray", "optuna", "mlflow"} & set(loaded) == set()


@pytest.mark.integration
def test_the_command_is_called_tunebook_and_its_function_exists() -> None:
    (name, target), *others = PROJECT["project"]["scripts"].items()
    module, function = target.split(":")
    assert (name, others) == ("tunebook", [])
    assert python(f"import {module}; print(callable({module}.{function}))").strip() == "True"


# --- dependencies -------------------------------------------------------------------------------------


def pins() -> dict[str, set[str]]:
    """Return the pinned versions by canonical name; a name has several where they depend on the Python."""
    pinned: dict[str, set[str]] = {}
    for line in LOCK.splitlines():
        if line and not line.lstrip().startswith("#"):
            requirement = Requirement(line)
            (specifier,) = requirement.specifier
            assert specifier.operator == "==", line
            pinned.setdefault(canonicalize_name(requirement.name), set()).add(specifier.version)
    return pinned


@pytest.mark.parametrize("line", [*LIGHT, *EXTRAS["run"], *EXTRAS["shrink"][1:], *DEV], ids=str)
def test_the_lock_satisfies_each_dependency(line: str) -> None:
    requirement = Requirement(line)
    versions = pins().get(canonicalize_name(requirement.name), set())
    assert versions, f"{line}: run `make lock`"
    assert all(requirement.specifier.contains(version) for version in versions), f"{line}: locked {versions}"


def third_party(folder: str) -> set[str]:
    """Return the top-level modules that a package imports anywhere, without ours and Python's."""
    trees = [ast.walk(ast.parse(path.read_text())) for path in (ROOT / folder).rglob("*.py")]
    nodes = [node for tree in trees for node in tree]
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom) and not node.level}
    return (
        {name.split(".")[0] for name in names} - sys.stdlib_module_names - {"search", "spaces", "trainable"}
    )


def opened_as_the_locale_says(path: Path) -> list[str]:
    """Return where a file of Python opens text without an encoding, as path:line."""
    text = path.read_text(encoding="utf-8")
    if not re.search(r"(read_text|write_text|open)\(", text):
        return []
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    found = []
    for call in calls:
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        given = [*call.args, *(each.value for each in call.keywords if each.arg == "mode")]
        modes = [each.value for each in given if isinstance(each, ast.Constant)]
        texts = [mode for mode in modes if isinstance(mode, str) and re.fullmatch(r"[rwax]t?\+?", mode)]
        opens = name in ("read_text", "write_text") or (name in ("open", "fdopen") and texts)
        opens = opens or (isinstance(call.func, ast.Name) and name == "open" and len(given) == 1)
        if opens and "encoding" not in {each.arg for each in call.keywords}:
            found.append(f"{path.relative_to(ROOT)}:{call.lineno}")
    return found


@pytest.mark.parametrize("folder", ["search", "spaces", "trainable", "examples"])
def test_text_is_read_and_written_as_utf_8_whatever_the_locale(folder: str) -> None:
    assert [each for path in (ROOT / folder).rglob("*.py") for each in opened_as_the_locale_says(path)] == []


@pytest.mark.slow("reads every file")
@pytest.mark.parametrize("package", ["search", "spaces", "trainable"])
def test_every_import_is_a_declared_dependency(package: str) -> None:
    declared = names_of([*LIGHT, *EXTRAS["run"], *EXTRAS["shrink"]])
    providers = packages_distributions()
    undeclared = {
        module
        for module in third_party(package)
        if not declared & {canonicalize_name(name) for name in providers.get(module, [])}
    }
    assert undeclared == set()


def names_of(lines: list[str]) -> set[str]:
    return {canonicalize_name(Requirement(line).name) for line in lines}


@pytest.mark.slow("reads the files of every package")
def test_every_module_of_the_extra_is_known_to_what_names_the_line_that_brings_it() -> None:
    """A package of the extra that nothing imports brings another one what it needs."""
    wanted, imported = names_of(EXTRAS["run"]), third_party("search") | third_party("trainable")
    providers = packages_distributions()
    brought = {module for module in imported if names_of(providers.get(module, [])) & wanted}
    assert brought - set(RUN) == set()
    assert {module for module in RUN if not names_of(providers[module]) & wanted} == set()


def test_the_extra_that_shrinks_brings_what_trains() -> None:
    assert EXTRAS["shrink"][0] == "tunebook[run]"
    assert names_of(LIGHT) & names_of(EXTRAS["run"]) == set()


def test_the_lock_names_no_index_file_or_machine() -> None:
    lines = [line for line in LOCK.splitlines() if re.search(r"://|file:|--|@|(^|\s)/", line)]
    assert lines == []


def test_the_lower_bounds_admit_the_torch_that_the_documents_promise() -> None:
    bounds = {Requirement(line).name: Requirement(line).specifier for line in EXTRAS["run"]}
    assert bounds["torch"].contains("2.11.0")
    assert bounds["torchvision"].contains("0.26.0")


def test_the_changelog_tells_of_the_current_version_first() -> None:
    headings = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert next(each for each in headings if each != "Unreleased") == PROJECT["project"]["version"]


# --- files for those who take part --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "schema"),
    [
        ("CITATION.cff", "citation-file-format"),
        (".github/workflows/ci.yml", "github-workflows"),
        (".github/ISSUE_TEMPLATE/bug.yml", "github-issue-forms"),
        (".github/ISSUE_TEMPLATE/heuristic.yml", "github-issue-forms"),
        (".github/ISSUE_TEMPLATE/config.yml", "github-issue-config"),
    ],
)
def test_what_the_forge_reads_follows_its_schema(file: str, schema: str) -> None:
    vendored = resources.files("check_jsonschema").joinpath(f"builtin_schemas/vendor/{schema}.json")
    tree = YAML(typ="safe").load((ROOT / file).read_text())
    # Strings of YAML 1.2: `on` and dates stay as they are written
    jsonschema.validate(json.loads(json.dumps(tree, default=str)), json.loads(vendored.read_text()))


def test_the_citation_names_the_current_version() -> None:
    cited = YAML(typ="safe").load((ROOT / "CITATION.cff").read_text())
    assert (cited["version"], cited["license"]) == (
        PROJECT["project"]["version"],
        PROJECT["project"]["license"],
    )


def test_the_forge_runs_the_same_script_as_everybody() -> None:
    steps = YAML(typ="safe").load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]["all"]["steps"]
    assert [step["run"] for step in steps if "run" in step][-1] == ".ci/run"
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111


# --- the interpreter that make picks ------------------------------------------------------------------


def find_python(*candidates: str, path: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", str(ROOT / ".ci" / "find-python"), *candidates],
        env={"PATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def python_called(folder: Path, name: str, *, works: bool = True, venv: bool = True) -> None:
    """Put a command into a folder: the running interpreter, perhaps without venv, or one that only fails."""
    hidden = folder / "without_venv"
    hidden.mkdir(exist_ok=True)
    (hidden / "ensurepip.py").write_text("raise ModuleNotFoundError('as on Debian')")
    search = "" if venv else f"PYTHONPATH={hidden} "
    command = f'{search}exec "{sys.executable}" "$@"' if works else "exit 127"
    (folder / name).write_text(f"#!/bin/sh\n{command}\n")
    (folder / name).chmod(0o755)


@pytest.mark.integration
def test_the_newest_python_that_runs_and_has_venv_is_taken(tmp_path: Path) -> None:
    python_called(tmp_path, "python3.14", works=False)  # as pyenv's shims fail
    python_called(tmp_path, "python3.13", venv=False)
    python_called(tmp_path, "python3.12")
    python_called(tmp_path, "python3.11")
    assert find_python(path=str(tmp_path)).stdout == "python3.12\n"


@pytest.mark.integration
def test_a_missing_venv_is_one_line_that_names_debians_package(tmp_path: Path) -> None:
    python_called(tmp_path, "python3.11", venv=False)
    done = find_python(path=str(tmp_path))
    assert done.returncode == 1
    package = f"python3.{sys.version_info.minor}-venv"
    assert done.stderr.splitlines() == [
        f"python3.11 has no venv with pip; on Debian or Ubuntu: sudo apt install {package}"
    ]


@pytest.mark.integration
def test_a_missing_python_is_one_line_that_says_what_to_do(tmp_path: Path) -> None:
    done = find_python(path=str(tmp_path))
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "PYTHON=" in done.stderr


@pytest.mark.integration
def test_the_interpreter_that_was_asked_for_is_taken(tmp_path: Path) -> None:
    assert find_python(sys.executable, path=str(tmp_path)).stdout.strip() == sys.executable


# --- documents ----------------------------------------------------------------------------------------


def documents() -> list[Path]:
    return sorted([*ROOT.glob("*.md"), *ROOT.glob(".github/*.md"), *ROOT.glob("[!.]*/**/*.md")])


def relative_links(document: Path) -> Iterator[str]:
    """Yield the targets of links and images that are neither addresses nor in a block of code."""
    prose = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", prose):
        if not re.match(r"[a-z]+:", target):
            yield target


def anchors(document: Path) -> set[str]:
    """Return the anchors of a document's headings, made as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(document: Path) -> None:
    dead = []
    for target in relative_links(document):
        name, _, anchor = target.partition("#")
        file = (document.parent / name).resolve() if name else document
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
            dead.append(target)
    assert dead == []


def test_the_readme_is_among_the_documents_and_links() -> None:
    assert list(relative_links(ROOT / "README.md"))


def imports_of_ours(text: str) -> Iterator[tuple[str, str]]:
    """Yield module and name of each `from trainable... import name`, in prose and in blocks of code."""
    found = re.findall(r"from ((?:search|spaces|trainable)\b[\w.]*) import (\([^)]*\)|[\w, ]+)", text)
    for module, names in found:
        for name in re.findall(r"\w+", re.sub(r" as \w+", "", names)):
            yield module, name


def importable(module: str, name: str) -> bool:
    """Return whether a module of ours has a name, by what its file binds and lists in `__all__`."""
    package = ROOT.joinpath(*module.split("."))
    if (package / name).is_dir() or (package / f"{name}.py").is_file():
        return True
    file = package / "__init__.py" if package.is_dir() else package.with_suffix(".py")
    bound: set[str] = set()
    for node in ast.parse(file.read_text()).body if file.is_file() else []:
        match node:
            case ast.ClassDef() | ast.FunctionDef():
                bound.add(node.name)
            case ast.Import() | ast.ImportFrom():
                bound.update(each.asname or each.name for each in node.names)
            case ast.Assign(targets=[ast.Name(id="__all__")]):
                bound.update(ast.literal_eval(node.value))
            case ast.Assign() | ast.AnnAssign():
                names = [each for each in ast.walk(node) if isinstance(each, ast.Name)]
                bound.update(each.id for each in names if isinstance(each.ctx, ast.Store))
    return name in bound


@pytest.mark.parametrize(
    "document",
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_whatever_a_document_imports_of_ours_is_there(document: Path) -> None:
    named = imports_of_ours(document.read_text())
    assert [each for each in named if not importable(*each)] == []


def test_a_name_that_a_module_lost_is_found_in_a_document() -> None:
    text = "`from search import search, gone`, or\n\n    from trainable.run import (\n        make_run,\n)"
    named = list(imports_of_ours(text))
    assert named == [("search", "search"), ("search", "gone"), ("trainable.run", "make_run")]
    assert [each for each in named if not importable(*each)] == [("search", "gone")]
