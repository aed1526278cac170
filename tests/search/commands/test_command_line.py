"""Tests that `tunebook` reports wrong input in one message, with exit code 2, before it writes anything."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.search.command_line import Refusal, Tunebook


def images(folder: Path, classes: tuple[str, ...] = ("cat", "dog"), each: int = 8) -> Path:
    generator = np.random.default_rng(0)
    for name in classes:
        (folder / name).mkdir(parents=True)
        for number in range(each):
            pixels = generator.integers(0, 256, (12, 12, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.jpg")
    return folder


def truncated(folder: Path) -> Path:
    images(folder)
    path = folder / "dog" / "3.jpg"
    path.write_bytes(path.read_bytes()[:-200])
    return folder


def with_an_empty_class(folder: Path) -> Path:
    images(folder)
    (folder / "eel").mkdir()
    return folder


def wrapped(folder: Path) -> Path:
    images(folder / "Dataset")
    return folder


@pytest.mark.parametrize(
    ("make", "wanted"),
    [
        (truncated, ["3.jpg", "1 "]),
        (with_an_empty_class, ["eel", "no images"]),
        (wrapped, ["Dataset"]),
        (lambda folder: folder, ["does not exist"]),
    ],
)
def test_a_folder_that_cannot_be_used_is_refused_by_name(
    refusal: Refusal, tmp_path: Path, make: Callable[[Path], Path], wanted: list[str]
) -> None:
    folder = make(tmp_path / "pets")
    err = refusal("search", "--data", folder, "--name", "mine")
    assert [words for words in [str(folder), *wanted] if words not in err] == []
    assert not (tmp_path / "searches").exists()


@pytest.mark.parametrize(
    ("study", "wanted"),
    [
        ("data: {path: digits}\nbudget: {trails: 3}\n", ["budget.trails", "did you mean 'trials'"]),
        ("data: {path: digits}\nspace: {name: documents}\n", ["documents", "document"]),
        (
            "data: {path: digits}\nspace: {overrides: {optimizer.weight_decay: {log: [1e-2, 1e-5]}}}\n",
            ["space.overrides.optimizer.weight_decay", "low < high"],
        ),
        ("data: {path: digits}\ndata: {path: digits}\n", ["line 2", "write each key once"]),
        ("data: {path: digits}\nobjective: {metric: val_top5_accuracy}\n", ["more than ten classes"]),
        ("data: {path: digits}\nresources: {cpus: 4000}\n", ["resources.cpus", "4000"]),
        ("data: {path: digits}\nbase: {loop.batch_size: 5000}\n", ["loop.batch_size", "5000"]),
        (
            "data: {path: digits}\nbase: {precision.kind: tf32}\n",
            ["precision.kind: tf32 is a format of CUDA"],
        ),
        ("data: {path: digits}\nstorage: nonsuch://bucket\n", ["SQLite cannot be used", "an object store"]),
        ("data: {path: digits}\ntracking: {uri: mlruns}\n", ["tracking.uri"]),
    ],
)
def test_a_fault_in_a_study_is_reported_with_its_path(
    refusal: Refusal, tmp_path: Path, study: str, wanted: list[str]
) -> None:
    (tmp_path / "study.yaml").write_text(study)
    err = refusal("search", "study.yaml", "--name", "mine")
    assert [words for words in wanted if words not in err] == []
    assert not (tmp_path / "searches").exists()


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["search"], ["--data PATH"]),
        (["search", "none.yaml"], ["none.yaml", "no such file"]),
        (["search", "--data", "digits", "--model", "resnet81"], ["resnet81", "did you mean"]),
        (["search", "--data", "digits", "--model", "timm/resnet10x"], ["resnet10x"]),
        (["search", "--data", "digits", "--set", "budget.trials"], ["PATH=VALUE"]),
        (["search", "--data", "digits", "--set", "budget.trials=many"], ["budget.trials", "many"]),
        (["search", "--data", "digits", "--trials", "0"], ["budget.trials"]),
        (["resume", "nowhere"], ["nowhere", "not a search folder"]),
        (["show", "nowhere"], ["nowhere", "not a search folder"]),
        (["export", "nowhere", "-o", "x.yaml"], ["nowhere", "not a search folder"]),
        (["sync", "nowhere"], ["nowhere", "not a search folder"]),
        (["train", "none.yaml"], ["none.yaml", "no such file"]),
        (["explain", "none.yaml"], ["none.yaml", "no such file"]),
        (["explian"], ["explian"]),
        (["lr-find"], ["--data PATH"]),
        (["batch-find"], ["--data PATH"]),
        (["lr-find", "none.yaml"], ["none.yaml", "no such file"]),
        (["lr-find", "nowhere"], ["nowhere", "does not exist"]),
        (["lr-find", "nowhere", "--data", "digits"], ["nowhere", "--data digits"]),
        (["lr-find", "--data", "digits", "--out", "band.pdf"], ["band.pdf", ".png, .html or .json"]),
        (["lr-find", "--data", "digits", "--steps", "3"], ["--steps", "or equal to 30"]),
        (["lr-find", "--data", "digits", "--sweeps", "0"], ["--sweeps", "or equal to 1"]),
        (["lr-find", "--data", "digits", "--set", "optimizer.lr"], ["PATH=VALUE"]),
        (["lr-find", "--data", "digits", "--set", "optimizer.rate=1"], ["optimizer.rate"]),
        (["batch-find", "--data", "digits", "--limit-gib", "0"], ["--limit-gib", "above 0"]),
        (["batch-find", "--data", "digits", "--limit-gib", "nan"], ["--limit-gib", "above 0"]),
        (["check", "nowhere"], ["nowhere does not exist"]),
        (["check", "digits", "--debug", "gradients"], ["gradcheck"]),
        (["check", "digits", "--debug", "profile"], ["tunebook train"]),
        (["check", "digits", "--set", "budgit.trials=3"], ["budgit", "did you mean 'budget'"]),
        (["check", "digits", "--set", "base.loop.batch_size=5000"], ["loop.batch_size"]),
        (
            ["check", "digits", "--set", "first=[{model: {kind: timm, name: no_such_net}}]"],
            ["first.0 of the study: model.name: timm has no classification model 'no_such_net'"],
        ),
        (
            ["backbones", "digits", "--size", "huge"],
            ["--size: expected one of small, medium", "got 'huge'"],
        ),
        (["extend", "nothing", "--trials", "2"], ["nothing"]),
        (["refine", ".", "-o", "study2.yaml"], ["not a search folder"]),
    ],
)
def test_wrong_usage_is_refused_with_exit_code_2_and_nothing_is_written(
    refusal: Refusal, tmp_path: Path, arguments: list[str], wanted: list[str]
) -> None:
    err = refusal(*arguments)
    assert [words for words in wanted if words not in err] == []
    assert list(tmp_path.iterdir()) == []


def test_a_gpu_that_is_not_there_is_refused_before_anything_starts(
    refusal: Refusal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    assert "resources.gpus: a trial asks for 1" in refusal("search", "--data", "digits", "--gpus", "1")
    assert not (tmp_path / "searches").exists()


def test_explain_says_every_range_with_its_source(tunebook: Tunebook, tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text("data: {path: digits}\n")
    code, out, _ = tunebook("explain", "study.yaml", "--all")
    assert code == 0
    for words in ("optimizer.lr", "weight_decay", "1706.02677", "003:26-40", "loop.batch_size"):
        assert words in out


@pytest.mark.slow("trains networks")
def test_a_recipe_is_trained_scored_and_left_in_three_files(tunebook: Tunebook, tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text("model: {width: 8}\nloop: {epochs: 1, batch_size: 64}\n")
    code, out, err = tunebook("train", "recipe.yaml", "--out", "here", "--test", "--json")
    assert code == 0, err
    last = json.loads(out.splitlines()[-1])
    assert 0.0 <= last["test_accuracy"] <= 1.0
    assert sum(map(sum, last["test_confusion"])) == 269
    assert {path.name for path in (tmp_path / "here").iterdir()} == {
        "model.safetensors",
        "metrics.json",
        "recipe.yaml",
    }


def test_an_unreadable_recipe_lists_every_fault(refusal: Refusal, tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text("loop: {epochs: 0}\noptimizer: {lr: fast}\n")
    err = refusal("train", "recipe.yaml")
    assert [words for words in ("2 faults", "loop.epochs", "optimizer.lr") if words not in err] == []


def test_the_program_ends_with_its_last_line_and_does_not_take_its_memory_apart() -> None:
    program = (
        "import os, sys\n"
        "class Large:\n"
        "    def __del__(self): os.write(1, b'taken apart')\n"
        "large, sys.argv = Large(), ['tunebook', '--version']\n"
        "from search.program import main\n"
        "main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, "PYTHONUNBUFFERED": ""},
    )
    assert done.stdout.splitlines() == [f"tunebook {version('tunebook')}"]
