"""Tests that a function travels with all that it uses of a person's own modules."""

from __future__ import annotations

import importlib
import runpy
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from trainable.errors import ModelError, UserError
from trainable.tune.carried import Carried

LOADS = """
import pickle, sys
carried = pickle.load(open(sys.argv[1], "rb"))
print(carried.load()(3))
"""
ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def imports_are_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Give a package of a person's own, whose modules use each other."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / "__init__.py").write_text("from theirs import numbers\nBASE = 10\n")
    (folder / "numbers.py").write_text("class One:\n    value = 1\n\ndef one():\n    return One.value\n")
    (folder / "work.py").write_text(
        "from pathlib import Path\nimport numpy as np\nimport theirs\nfrom theirs.numbers import one\n\n"
        "HERE = Path(__file__).parent\n\n"
        "def add(number):\n    return int(np.add(number, one() + theirs.BASE + theirs.numbers.One.value))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("theirs.work")
    for name in [each for each in sys.modules if each.partition(".")[0] == "theirs"]:
        del sys.modules[name]


def loaded_elsewhere(content: bytes, folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "carried").write_bytes(content)
    command = [sys.executable, "-c", LOADS, str(folder / "carried")]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)


@pytest.mark.integration
def test_a_function_works_in_a_process_that_has_none_of_its_modules(package: Any, tmp_path: Path) -> None:
    carried = Carried.of(package.add)
    assert {each for each in carried.sources if each.startswith(("theirs", "numpy", "trainable"))} == {
        "theirs",
        "theirs.numbers",
        "theirs.work",
    }
    shutil.rmtree(tmp_path / "theirs")
    ran = loaded_elsewhere(cloudpickle.dumps(carried), tmp_path)
    assert ran.stdout.strip() == "15", ran.stderr
    by_name = replace(carried, sources={})
    failed = loaded_elsewhere(cloudpickle.dumps(by_name), tmp_path)
    assert "add: cannot be used on" in failed.stderr
    assert "ModuleNotFoundError: No module named 'theirs'" in failed.stderr


def test_a_value_that_cannot_be_copied_is_named_before_any_trial() -> None:
    lock = threading.Lock()

    def uses_a_lock() -> object:
        return lock

    with pytest.raises(UserError, match=r"uses_a_lock: cannot be copied .*lock.*; make such a value inside"):
        Carried.of(uses_a_lock)


@pytest.mark.integration
def test_the_lines_of_a_script_that_runs_are_not_run_again_elsewhere(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from trainable.tune.carried import Carried\nprint('runs')\n\n"
        "def two():\n    return 2\n\ndef add(number):\n    return number + two()\n\n"
        "carried = Carried.of(add)\n"
    )
    carried = runpy.run_path(str(script))["carried"]
    ran = loaded_elsewhere(cloudpickle.dumps(carried), tmp_path)
    assert ran.stdout == "5\n", ran.stderr


@pytest.mark.slow("starts processes")
def test_a_closure_travels_with_the_values_that_it_uses() -> None:
    number = 4

    def closure() -> int:
        return number + len(helper())

    assert Carried.of(closure).load()() == 7


def helper() -> str:
    return "abc"


def test_what_cannot_be_loaded_is_a_clear_message() -> None:
    with pytest.raises(ModelError, match="mine: cannot be used on"):
        Carried("mine", b"nothing", {}).load()


@pytest.mark.slow("starts processes")
def test_a_namespace_package_without_its_parent_is_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "parent" / "inner").mkdir(parents=True)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("parent.inner")
    monkeypatch.delitem(sys.modules, "parent")
    try:
        assert Carried.of(len_of).load()("four") == 4
    finally:
        sys.modules.pop("parent.inner")


def len_of(text: str) -> int:
    return len(text)
