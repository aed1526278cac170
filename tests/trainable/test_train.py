"""Tests one recipe from the command line: files, JSON, exit codes, and the same numbers again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from search.__main__ import app
from search.commands.cli_page import commands_of
from tests.trainable.small_runs import TIMES, images, small_recipe, write_parts
from trainable.__main__ import main
from trainable.bench import ON_CPU, Bench
from trainable.errors import RecipeError, UserError
from trainable.origins import Origins, differences, may_be_same
from trainable.recipe import Recipe
from trainable.recipe.provenance import Provenance
from trainable.recipe.yamlfile import read_recipe, with_settings, write_recipe
from trainable.run import make_run
from trainable.train import threads_of
from trainable.training.devices import device_name

DIGITS = Recipe().with_values({"loop.epochs": 2, "model.width": 8, "precision.kind": "fp32"})


def train(recipe: Path, *arguments: str) -> int:
    return main([str(recipe), *arguments])


def without_times(tree: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in tree.items() if name not in TIMES}


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    write_recipe(tmp_path / "digits.yaml", DIGITS)
    return tmp_path / "digits.yaml"


@pytest.mark.slow("trains networks")
def test_a_recipe_trained_twice_and_once_more_from_what_it_left_gives_the_same_numbers(
    digits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = []
    for source, out in ((digits, "one"), (digits, "two"), (tmp_path / "one" / "recipe.yaml", "three")):
        assert train(source, "--out", str(tmp_path / out), "--test", "--json") == 0
        seen.append(json.loads(capsys.readouterr().out))
    first, *others = [without_times(tree) for tree in seen]
    assert others == [first, first]
    assert first["epoch"] == 2
    assert 0.0 < first["test_accuracy"] < 1.0
    weights = [(tmp_path / out / "model.safetensors").read_bytes() for out in ("one", "two", "three")]
    assert weights[0] == weights[1] == weights[2]


@pytest.mark.slow("draws many resamples")
def test_each_test_metric_is_printed_and_written_with_its_interval(
    digits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    setting = "evaluation.metrics=[macro_f1, {kind: recall_at_precision, precision: 0.5}]"
    assert train(digits, "--out", str(tmp_path / "out"), "--test", "--set", setting) == 0
    printed = capsys.readouterr().out
    written = json.loads((tmp_path / "out" / "metrics.json").read_text())
    found = written["test_intervals"]
    assert (found["level"], found["resamples"]) == (0.95, 1000)
    assert "in brackets: 95 % intervals, for other test images of the same kind" in printed
    names = ["loss", "accuracy", "balanced_accuracy", "macro_f1", "recall_at_precision"]
    assert list(found["intervals"]) == [f"test_{name}" for name in names]
    for name, (low, high) in found["intervals"].items():
        value = written["last"][name]
        assert low < high
        assert f"{name} {value:.4f} ({low:.4f} to {high:.4f})" in printed
    for name in ("accuracy", "macro_f1"):
        low, high = found["intervals"][f"test_{name}"]
        assert low <= written["last"][f"test_{name}"] <= high
    assert f"val_macro_f1 {written['last']['val_macro_f1']:.4f}" in printed
    gap = written["validation_test_gap"]
    assert list(gap["metrics"]) == names
    for name, each in gap["metrics"].items():
        assert (each["validation"], each["test"]) == (
            pytest.approx(written["last"][f"val_{name}"]),
            written["last"][f"test_{name}"],
        )
    recipe = read_recipe(tmp_path / "out" / "recipe.yaml")
    assert recipe.provenance is not None
    assert recipe.provenance.metrics["test_macro_f1"] == written["last"]["test_macro_f1"]


@pytest.mark.parametrize("other_kind", [True, False])
def test_a_test_part_of_another_kind_is_said_in_one_line_and_one_of_the_same_kind_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], other_kind: bool
) -> None:
    write_parts(tmp_path / "parts.npz", other_kind=other_kind)
    recipe = small_recipe({"data.path": str(tmp_path / "parts.npz"), "optimizer.lr": 0.02})
    write_recipe(tmp_path / "recipe.yaml", recipe)
    assert train(tmp_path / "recipe.yaml", "--test", "--out", str(tmp_path / "out")) == 0
    printed = capsys.readouterr().out.splitlines()
    gap = json.loads((tmp_path / "out" / "metrics.json").read_text())["validation_test_gap"]
    assert gap["differ"] == other_kind
    told = [line for line in printed if "val_accuracy" in line and "below" in line]
    assert len(told) == other_kind
    assert all(line.startswith(f"{gap['words']}: ") for line in told)


@pytest.mark.slow("trains networks")
def test_the_verdict_is_printed_and_stands_in_the_metrics_and_the_json(
    digits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert train(digits, "--out", str(out), "--json") == 0
    diagnosis = json.loads(capsys.readouterr().out)["diagnosis"]
    assert json.loads((out / "metrics.json").read_text())["diagnosis"] == diagnosis
    assert diagnosis["verdict"] in ("still improving", "underfit")
    assert diagnosis["figures"]["epochs"] == 2
    (epochs,) = [change for change in diagnosis["changes"] if change["path"] == "loop.epochs"]
    assert (epochs["now"], epochs["to"]) == (2, 4)
    assert train(digits) == 0
    lines = capsys.readouterr().out.splitlines()
    (verdict,) = [index for index, line in enumerate(lines) if line.startswith(diagnosis["verdict"])]
    assert any(line.startswith("  loop.epochs: 2 -> 4: ") for line in lines[verdict:])


@pytest.mark.slow("trains networks")
def test_a_debug_tool_changes_no_number_and_is_said_to_be_on(
    digits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = []
    for out, tools in (("plain", ()), ("debugged", ("--debug", "profile", "--debug", "anomaly"))):
        assert train(digits, "--out", str(tmp_path / out), *tools) == 0
        seen.append(json.loads((tmp_path / out / "metrics.json").read_text())["history"])
        printed = capsys.readouterr().out
        assert ("debug profile is on" in printed, "debug anomaly is on" in printed) == (bool(tools),) * 2
        assert (tmp_path / out / "profile.json").exists() == bool(tools)
    assert [[without_times(tree) for tree in history] for history in seen] == [
        [without_times(tree) for tree in seen[0]]
    ] * 2
    assert not torch.is_anomaly_enabled()


def test_a_gradient_that_is_nan_is_a_crash_under_debug_anomaly(
    digits: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loss stays finite: without the tool the run would only be seen to diverge later."""
    forward = torch.nn.Linear.forward
    monkeypatch.setattr(
        torch.nn.Linear, "forward", lambda layer, x: forward(layer, x) + 0.0 * (0.0 * x.sum()).sqrt()
    )
    with pytest.warns(UserWarning, match="Traceback of forward call"):
        assert train(digits, "--debug", "anomaly") == 1
    assert "SqrtBackward0" in capsys.readouterr().err


@pytest.mark.slow("trains networks")
def test_running_out_of_memory_is_reported_once_and_recorded(
    digits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    forward = torch.nn.Linear.forward

    def limited(layer: torch.nn.Linear, x: torch.Tensor) -> torch.Tensor:
        if layer.training and len(x) > 40:
            raise torch.OutOfMemoryError("planted")
        return forward(layer, x)

    monkeypatch.setattr(torch.nn.Linear, "forward", limited)
    assert train(digits, "--out", str(tmp_path / "out")) == 0
    printed = [line for line in capsys.readouterr().out.splitlines() if "memory ran out" in line]
    assert printed == ["memory ran out: 32 images at once instead of 128; loop.batch_size stayed 128"]
    provenance = read_recipe(tmp_path / "out" / "recipe.yaml").provenance
    assert provenance is not None
    assert provenance.micro_batch == 32
    assert train(digits, "--set", "loop.micro_batch=32") == 0
    assert "memory ran out" not in capsys.readouterr().out


def test_the_files_left_tell_the_whole_run(digits: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert train(digits, "--out", str(out), "--test") == 0
    assert sorted(path.name for path in out.iterdir()) == ["metrics.json", "model.safetensors", "recipe.yaml"]
    metrics = json.loads((out / "metrics.json").read_text())
    assert [result["epoch"] for result in metrics["history"]] == [1, 2]
    assert metrics["last"]["val_accuracy"] == metrics["history"][-1]["val_accuracy"]
    confusion = np.array(metrics["last"]["test_confusion"])
    assert np.trace(confusion) / confusion.sum() == pytest.approx(metrics["last"]["test_accuracy"])
    recipe = read_recipe(out / "recipe.yaml")
    assert recipe.provenance is not None
    assert recipe.provenance.threads == torch.get_num_threads()
    assert recipe.provenance.class_names == tuple("0123456789")
    assert recipe.provenance.metrics["test_accuracy"] == metrics["last"]["test_accuracy"]
    assert recipe.data.image_size == 8
    run = make_run(recipe)
    run.model.load_state_dict(load_file(out / "model.safetensors"))
    assert run.evaluate("test")["test_accuracy"] == metrics["last"]["test_accuracy"]


def test_progress_and_the_confusion_matrix_are_printed(
    digits: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(digits, "--test", "--set", "loop.epochs=1") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(
        "resnet_small (depth 8, width 8), from scratch, 8 px, SGD at 0.1 a batch of 256, "
    )
    assert lines[1].startswith("epoch 1/1  train_loss")
    assert lines[2].startswith("finished: val_accuracy")
    matrix = [[int(count) for count in line.split()[1:]] for line in lines[-10:]]
    assert sum(map(sum, matrix)) == 269


def test_a_diverged_run_leaves_no_model_and_fails(
    digits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert train(digits, "--set", "optimizer.lr=1e6", "--out", str(out), "--json") == 1
    tree = json.loads(capsys.readouterr().out)
    assert tree["diverged"] is True
    assert tree["diagnosis"]["verdict"] == "diverged"
    assert tree["diagnosis"]["changes"][0]["path"] == "optimizer.lr"
    assert sorted(path.name for path in out.iterdir()) == ["metrics.json", "recipe.yaml"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--set", "optimizer.lrr=1"), "optimizer.lrr: unknown key; did you mean 'lr'"),
        (("--set", "optimizer.lr"), "expected PATH=VALUE"),
        (("--data", "no/such/folder"), "no/such/folder does not exist"),
        (("--set", "data.test_fraction=0.0", "--test"), "no test part"),
        (("--set", "loop.batch_size=5000"), "loop.batch_size 5000 is above the 1259 training images"),
        (("--set", "model.kind=torchvision", "--set", "model.name=resnet81"), "resnet18"),
        (("--set", "precision.kind=tf32"), "precision.kind: tf32"),
        (("--debug", "profil"), "--debug profil: no such tool; known: profile, anomaly"),
        (("--debug", "gradcheck"), "use `tunebook check`; here: profile, anomaly"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_the_person_can_mend_is_said_before_training(
    digits: Path, arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(digits, *arguments) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert "epoch" not in captured.out


def test_an_out_folder_that_cannot_be_made_is_said_before_training(
    digits: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(digits, "--out", str(digits / "below a file")) == 2
    assert "cannot be made" in capsys.readouterr().err


def test_other_images_replace_the_recipes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parts = {"train": images(48, 0), "val": images(20, 1), "test": images(20, 2)}
    arrays: dict[str, Any] = {f"{name}_images": pixels for name, (pixels, _) in parts.items()}
    arrays |= {f"{name}_labels": labels[:, None] for name, (_, labels) in parts.items()}
    np.savez(tmp_path / "mine.npz", **arrays)
    recipe = small_recipe({"data.path": "digits", "data.format": "digits", "data.image_size": 8})
    found = Provenance(data_digest="2-of other images", threads=1)
    write_recipe(tmp_path / "best.yaml", recipe.model_copy(update={"provenance": found}))
    assert train(tmp_path / "best.yaml", "--data", str(tmp_path / "mine.npz"), "--test") == 0
    printed = capsys.readouterr().out
    assert "not the images that the recipe was found with" in printed
    assert "test_accuracy" in printed


def test_settings_are_values_of_yaml_and_drop_a_provenance_that_no_longer_holds() -> None:
    recipe = DIGITS.model_copy(update={"provenance": Provenance(trial=3)})
    changed = with_settings(recipe, ["optimizer.lr=1e-3", "data.flips=[horizontal]", "loop.micro_batch=null"])
    assert changed.get("optimizer.lr") == 1e-3
    assert changed.data.flips == ("horizontal",)
    assert changed.loop.micro_batch is None
    assert changed.provenance is None
    assert with_settings(recipe, ["loop.epochs=2"]).provenance == Provenance(trial=3)
    moved = with_settings(recipe, [], {"data.path": "elsewhere"})
    assert (moved.data.path, moved.data.format, moved.provenance) == (
        "elsewhere",
        "auto",
        Provenance(trial=3),
    )


@pytest.mark.parametrize("text", ["lr", "=3", "optimizer.lr=[1"])
def test_a_setting_that_is_none_is_refused(text: str) -> None:
    with pytest.raises((RecipeError, UserError), match="--set"):
        with_settings(DIGITS, [text])


def test_the_threads_of_the_provenance_are_used_and_put_back() -> None:
    before = torch.get_num_threads()
    said: list[str] = []
    with threads_of(Provenance(threads=before + 1), Bench(say=said.append)):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before
    with threads_of(Provenance(threads=512), Bench(say=said.append)):
        pass
    assert "512 threads" in said[-1]
    count = len(said)
    with threads_of(None, Bench(threads=before + 1, say=said.append)):
        assert torch.get_num_threads() == before + 1
    assert (torch.get_num_threads(), len(said)) == (before, count), "no line for a bench's threads"


@pytest.mark.parametrize(
    ("recorded", "device", "expected"),
    [
        ("cpu", "cpu", True),
        ("cuda", "cuda (NVIDIA H200)", True),
        ("cuda (NVIDIA H200)", "cuda (NVIDIA H200)", True),
        ("cuda (NVIDIA A100)", "cuda (NVIDIA H200)", False),
        ("cuda", "cpu", False),
        ("cpu", "cuda (NVIDIA H200)", False),
    ],
)
def test_a_kind_of_device_agrees_with_every_model_of_it(recorded: str, device: str, expected: bool) -> None:
    assert may_be_same(recorded, device) is expected


def test_another_device_than_the_provenance_s_is_said_and_the_same_is_not() -> None:
    for recorded, said in (("cuda", 1), (device_name(torch.device("cpu")), 0)):
        found = DIGITS.model_copy(update={"provenance": Provenance(device=recorded)})
        run = make_run(found, bench=ON_CPU)
        assert [
            line.split(":")[0] for line in differences(run.recipe.provenance, run, Origins.of_run(run))
        ] == ["the recipe was trained on cuda, this is cpu"] * said


@pytest.mark.gpu
def test_the_name_of_a_gpu_begins_with_its_kind() -> None:
    name = device_name(torch.device("cuda"))
    assert name == f"cuda ({torch.cuda.get_device_name()})"
    assert may_be_same("cuda", name)


def test_the_plain_command_line_has_each_option_of_train(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    said = capsys.readouterr().out
    command = commands_of(app)["train"]
    assert all(option in said for parameter in command.params for option in parameter.opts if "-" in option)


def test_a_mistake_in_a_plain_command_line_is_answered_before_torch_is_imported(tmp_path: Path) -> None:
    (tmp_path / "digits.yaml").write_text("data: {path: digits}\n")
    lines = ["--no-such-option", "nowhere.yaml", "digits.yaml --set optimizer.rate=1"]
    code = f"""
import sys
from trainable.__main__ import main
print([main(line.split()) for line in {lines}], "torch" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "[2, 2, 2] False\n", done.stderr
