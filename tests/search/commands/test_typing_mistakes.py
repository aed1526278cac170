"""Tests that a mistake in what was typed is answered before anything is imported that takes seconds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from search.__main__ import app
from search.commands.cli_page import commands_of

HEAVY = (
    "torch",
    "torchvision",
    "timm",
    "ray",
    "optuna",
    "mlflow",
    "pandas",
    "sklearn",
    "matplotlib",
    "scipy",
)
COMMANDS = tuple(commands_of(app))
SEARCHES = ("resume", "extend --trials 2", "show", "report", "open", "ui", "sync", "audit", "audit-pruning")
FILES = {
    "study.yaml": "data: {path: digits}\nbudget: {trails: 3}\n",
    "kind.yaml": "data: {path: digits}\nbase: {model: {kind: resnet_big}}\n",
    "key.yaml": "data: {path: digits}\ndata: {path: digits}\n",
    "far.yaml": "data: {path: nowhere}\n",
    "recipe.yaml": "data: {path: digits}\nmodel: {kind: resnet_small}\noptimizer: {kind: sgd}\n",
    "wrong.yaml": "data: {path: digits}\nmodel: {kind: resnet_small}\noptimizer: {rate: 1}\n",
    "space.yaml": "data: {path: digits}\nspace: {name: broad}\n",
    "range.yaml": "data: {path: digits}\nspace: {overrides: {optimizer.lr: {log: [1, 0.1]}}}\n",
    "field.yaml": "data: {path: digits}\nspace: {overrides: {optimizer.rate: {fixed: 1}}}\n",
    "away.yaml": "data: {path: nowhere}\nmodel: {kind: resnet_small}\noptimizer: {kind: sgd}\n",
    "notes.txt": "no images\n",
    "flat/notes.txt": "no folders\n",
    "result.yaml": "earlier\n",
    "trained/recipe.yaml": "data: {path: digits}\nmodel: {kind: resnet_small}\noptimizer: {kind: sgd}\n",
    "trained/model.safetensors": "",
    "searched/study.yaml": "data: {path: digits}\n",
}
READERS = ("search", "check", "explain", "lr-find", "batch-find", "backbones")
WRONG = (
    *(f"{name} --no-such-option" for name in COMMANDS),
    *(f"{name} nowhere" for name in SEARCHES),
    *(f"{name} nowhere" for name in READERS),
    *(f"{name} nowhere.yaml" for name in (*READERS, "train")),
    *(f"{name} study.yaml" for name in READERS),
    *(f"{name} kind.yaml" for name in READERS),
    *(f"{name} key.yaml" for name in READERS),
    *(f"{name} far.yaml" for name in READERS),
    *(f"{name} {data}" for name in READERS for data in ("flat", "notes.txt")),
    *(f"{name} {study}.yaml" for name in READERS for study in ("space", "range", "field")),
    *(f"{name} away.yaml" for name in ("train", "check", "lr-find", "batch-find")),
    *(f"{name} digits --set budget.trails=3" for name in READERS),
    *(f"{name} digits --set optimizer.rate=3" for name in READERS),
    *(f"{name} digits --set optimizer.kind=sgdd" for name in READERS),
    *(f"{name} digits --device tpu" for name in READERS),
    *(f"{name} digits --image-size small" for name in READERS),
    *(f"{name} digits --metric val_acuracy" for name in READERS if name != "backbones"),
    *(f"{name} recipe.yaml --metric val_loss" for name in ("check", "explain", "lr-find", "batch-find")),
    *(f"{name} wrong.yaml" for name in ("train", "check", "explain", "lr-find", "batch-find", "shrink")),
    "search digits --hours 1 --minutes 5",
    "search digits --storage notes.txt",
    *(f"search digits --address {address}" for address in ("head", "http://head:8265")),
    *(f"search digits --tracking-uri {uri}" for uri in ("runs", "s3://bucket/runs", "foo://runs")),
    "report searched --compare nowhere",
    "search digits --gpus 1 --device cpu",
    "search recipe.yaml",
    "train recipe.yaml --data nowhere",
    "train recipe.yaml --data flat",
    "train recipe.yaml --set optimizer.lr=fast",
    "train recipe.yaml --debug gradients",
    "train recipe.yaml --out trained",
    *(f"train recipe.yaml {option} notes.txt" for option in ("--out", "--predict")),
    "train recipe.yaml --out notes.txt/model",
    "shrink trained --out notes.txt/model",
    "bundle trained --out notes.txt/model",
    "check digits --debug gradients",
    "check digits --seconds 5 --minutes 1",
    "check digits --write-exclusions result.txt",
    "lr-find digits --steps 3",
    "lr-find digits --out result.yaml",
    "lr-find digits --out band.pdf",
    "batch-find digits --limit-gib 0",
    "backbones digits --size huge",
    "backbones digits --weights nowhere",
    "backbones digits --weights flat",
    "backbones digits --out result.yaml",
    "backbones digits --out notes.txt/next.yaml",
    "shrink nowhere",
    "shrink trained --flops 2",
    "shrink trained --set optimizer.rate=2",
    "shrink trained --out trained",
    "bundle nowhere -o out",
    "bundle trained -o trained",
    "export nowhere -o out.yaml",
    "export recipe.yaml -o result.yaml",
    "export recipe.yaml -o out.yaml --seeds 2",
    "export recipe.yaml -o notes.txt/out.yaml --simplify",
    "refine nowhere",
    "rename nowhere other",
    "delete nowhere",
    "list nowhere",
    "submit study.yaml --address http://head:8265",
    "submit nowhere.yaml --address http://head:8265",
)
# what is printed without torch, where it would find nothing
ANSWERED = ("explain away.yaml",)
HELP = ("--help", "--version", *(f"{name} --help" for name in COMMANDS))

# One process imports what all commands share, and forks one for each of them
PROGRAM = """
import json, os, sys
import search.commands.named, search.learning.search
from search.__main__ import main

def loaded():
    return [name for name in json.loads(sys.argv[1]) if name in sys.modules]

assert not loaded()
nothing = os.open(os.devnull, os.O_WRONLY)
os.dup2(nothing, 1)
for line in sys.stdin:
    if (child := os.fork()) == 0:
        code, said = "no exit", sys.argv[2]
        os.dup2(os.open(os.path.join(said, "err"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
        arguments = line.split()
        heavy, sys.argv = sys.argv[1], ["tunebook", *arguments]
        try:
            main()
        except SystemExit as left:
            code = left.code or 0
        found = [name for name in json.loads(heavy) if name in sys.modules]
        with open(os.path.join(said, "found"), "a") as file:
            file.write(json.dumps([line.strip(), code, found]) + chr(10))
        os._exit(0)
    os.waitpid(child, 0)
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, tuple[int, Sequence[str]]]:
    """Return for each line that was typed the exit code, and which heavy modules were imported."""
    folder, said = tmp_path_factory.mktemp("typed"), tmp_path_factory.mktemp("said")
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(HEAVY), str(said)],
        input="\n".join((*WRONG, *ANSWERED, *HELP)),
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        text=True,
        check=True,
        timeout=300,
    )
    lines = map(json.loads, (said / "found").read_text().splitlines())
    return {line: (code, found) for line, code, found in lines}


@pytest.mark.parametrize("line", WRONG)
def test_a_mistake_is_answered_before_anything_heavy_is_imported(
    answers: Mapping[str, tuple[int, Sequence[str]]], line: str
) -> None:
    assert answers[line] == (2, [])


@pytest.mark.parametrize("line", ANSWERED)
def test_what_needs_no_images_is_explained_before_anything_heavy_is_imported(
    answers: Mapping[str, tuple[int, Sequence[str]]], line: str
) -> None:
    assert answers[line] == (0, [])


@pytest.mark.parametrize("line", HELP)
def test_help_imports_nothing_heavy(answers: Mapping[str, tuple[int, Sequence[str]]], line: str) -> None:
    assert answers[line] == (0, [])
