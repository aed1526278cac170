"""Tests what works without the packages of the extra `run`, and what is said of the rest."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from trainable.extras import INSTALL, RUN

ROOT = Path(__file__).parents[3]
SEARCHES = ("labels", "masks", "promoted", "taught")
ADDRESS = "--address http://127.0.0.1:1"
WORK = (
    "--version",
    "--help",
    "list .",
    "list . --json",
    *(f"show {name}" for name in SEARCHES),
    "show labels --json",
    *(f"explain {name}" for name in ("labels", "promoted")),
    "explain labels --all --json",
    *(f"report {name} -o {name}.html" for name in ("masks", "promoted")),
    "report labels -o data.json",
    "open promoted",
    "export promoted -o out.yaml",
    "refine promoted",
    "rename taught other",
)
# with these a dashboard is asked, which is not there
ASK = (
    f"submit study.yaml {ADDRESS}",
    f"status {ADDRESS}",
    f"logs flowers-1 {ADDRESS}",
    f"logs flowers-1 --follow {ADDRESS}",
    f"stop flowers-1 {ADDRESS}",
    f"fetch flowers-1 {ADDRESS}",
)
NEED = (
    "search digits",
    "search digits --model timm/resnet18",
    "resume labels",
    "extend labels --trials 1",
    "audit sent",
    "audit-pruning labels",
    "sync labels",
    "bundle labels -o bundled",
    "train best.yaml",
    "shrink best.yaml -o smaller",
    "lr-find best.yaml",
    "batch-find best.yaml",
    "backbones digits",
    "check digits",
    "explain digits",
    "explain best.yaml",
    "show s3://bucket/flowers",
    "report labels --watch",
)
FUNCTIONS = {
    "train": "tunebook.train('best.yaml')",
    "search": "tunebook.search({'data': {'path': 'digits'}})",
    "check": "tunebook.check('best.yaml')",
    "Metric": "tunebook.Metric",
    "trials_frame()": "tunebook.show('labels').trials_frame()",
    "plot()": "tunebook.show('labels').plot()",
}

# A process in which no package of `run` can be found forks a child for each line
PROGRAM = """
import json, os, sys

from importlib.machinery import PathFinder

class Installed(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in missing else PathFinder.find_spec(name, path, target)

missing, said = set(json.loads(sys.argv[1])), sys.argv[2]
sys.meta_path[sys.meta_path.index(PathFinder)] = Installed
import search.commands.named, search.learning.search, tunebook
from search.__main__ import main

for at, line in enumerate(sys.stdin):
    if (child := os.fork()) == 0:
        for stream in (1, 2):
            os.dup2(os.open(f"{said}/{at}.{stream}", os.O_WRONLY | os.O_CREAT), stream)
        code = 0
        try:
            if line.startswith("tunebook."):
                eval(line)
            else:
                sys.argv = ["tunebook", *line.split()]
                main()
        except SystemExit as left:
            code = left.code or 0
        except tunebook.UserError as error:
            code = 2
            print(error, file=sys.stderr)
        sys.stdout.flush()
        with open(f"{said}/{at}.code", "w") as file:
            file.write(str(code))
        os._exit(0)
    os.waitpid(child, 0)
"""


class Answer(NamedTuple):
    code: str
    out: str
    err: str


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("searches")
    for name in SEARCHES:
        shutil.copytree(ROOT / "tests" / "net" / name, found / name)
    # one whose MLflow is there, as a file
    (sent := found / "sent").mkdir()
    for each in (found / "labels").iterdir():
        shutil.copy(each, sent)
    study = (sent / "study.yaml").read_text()
    (sent / "study.yaml").write_text(
        study.replace("sqlite:////searches/mlflow.db", f"sqlite:///{sent}/mlflow.db")
    )
    (sent / "mlflow.db").touch()
    shutil.copy(ROOT / "tests" / "net" / "best.yaml", found)
    (found / "study.yaml").write_text(
        "data: {path: digits}\nstorage: /shared\nbase: {model: {kind: timm, name: resnet18}}\n"
    )
    return found


def answered(folder: Path, said: Path, lines: tuple[str, ...], missing: list[str]) -> Mapping[str, Answer]:
    subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(missing), str(said)],
        input="\n".join(lines),
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "BROWSER": "true"},
        text=True,
        check=True,
        timeout=300,
    )
    return {
        line: Answer(*((said / f"{at}.{each}").read_text() for each in ("code", 1, 2)))
        for at, line in enumerate(lines)
    }


@pytest.fixture(scope="module")
def answers(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Answer]:
    lines = (*NEED, *FUNCTIONS.values(), *ASK, *WORK)
    return answered(folder, tmp_path_factory.mktemp("said"), lines, list(RUN))


@pytest.mark.parametrize("line", WORK)
def test_a_search_is_looked_at_without_what_trains(answers: Mapping[str, Answer], line: str) -> None:
    assert (answers[line].code, answers[line].err) == ("0", "")


@pytest.mark.parametrize("line", ASK)
def test_a_cluster_is_asked_without_what_trains(answers: Mapping[str, Answer], line: str) -> None:
    assert answers[line].code == "2"
    assert "no Ray dashboard answers there" in answers[line].err


@pytest.mark.parametrize("line", NEED)
def test_a_command_that_lacks_a_package_names_the_line_that_brings_it(
    answers: Mapping[str, Answer], line: str
) -> None:
    code, _, err = answers[line]
    last = err.splitlines()[-1]
    assert code == "2"
    assert last.startswith(f"tunebook: tunebook {line.split()[0]} needs ")
    assert last.endswith(f": {INSTALL}")


@pytest.mark.parametrize(("name", "call"), FUNCTIONS.items())
def test_a_function_that_lacks_a_package_names_the_line_that_brings_it(
    answers: Mapping[str, Answer], name: str, call: str
) -> None:
    code, _, err = answers[call]
    assert (code, err.count("\n")) == ("2", 1)
    assert f"{name} needs " in err
    assert err.endswith(f": {INSTALL}\n")


@pytest.mark.parametrize("line", ["train best.yaml", "check digits", "search digits", FUNCTIONS["train"]])
def test_what_trains_is_said_to_need_pytorch_and_none_of_its_parts(
    answers: Mapping[str, Answer], line: str
) -> None:
    assert " needs PyTorch: " in answers[line].err


@pytest.fixture(scope="module")
def whole(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Answer]:
    """Return the answers to some lines where nothing is missing."""
    lines = ("show labels --json", "show promoted", "explain labels", "explain promoted")
    return answered(folder, tmp_path_factory.mktemp("whole"), lines, [])


def test_what_is_shown_is_the_same_with_and_without_what_trains(
    answers: Mapping[str, Answer], whole: Mapping[str, Answer]
) -> None:
    assert {line: answers[line] for line in whole} == whole


def test_a_report_says_what_brings_the_parts_that_it_lacks(
    answers: Mapping[str, Answer], folder: Path
) -> None:
    report = json.loads((folder / "data.json").read_text())
    assert report["left_out"]["importances"] == f"this part needs Optuna: {INSTALL}"
