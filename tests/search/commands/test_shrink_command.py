"""Tests `tunebook shrink` on trained folders and on recipes: what it prints, writes, and refuses at once."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
import torch

from search.commands.options import ShrinkOptions
from search.commands.shrink import run_shrink
from tests.search.command_line import Tunebook
from tests.search.results.trained_search import trained_search
from tests.trainable.small_segmentations import mask_recipe, write_masks
from trainable.bundle.trained import network_in, trained_in
from trainable.errors import UserError
from trainable.models.weights import file_digest
from trainable.recipe.yamlfile import read_recipe, write_recipe
from trainable.shrinking import latency

RECIPE = """\
version: 2
model: {kind: resnet_small, width: 8}
optimizer: {lr: 0.2}
precision: {kind: fp32}
loop: {epochs: 2, batch_size: 64}
"""


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write a recipe for the digits of two epochs; latencies are measured in few rounds."""
    monkeypatch.setattr(latency, "SECONDS", 0.0)
    monkeypatch.setattr(latency, "LEAST_ROUNDS", 2)
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    return tmp_path / "recipe.yaml"


@pytest.mark.slow("trains and prunes networks")
def test_a_trained_network_is_pruned_compared_and_written(tunebook: Tunebook, recipe: Path) -> None:
    assert tunebook("train", recipe, "--out", "trained")[0] == 0
    code, out, _ = tunebook("shrink", "trained", "--flops", 0.5, "--seeds", 2, "--test", "-o", "small")
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == "2 fine-tunings of 1 epoch"
    assert lines[1].startswith("pruned to 4")
    assert [line.split(":")[0] for line in lines[2:4]] == ["fine-tuned, seed 1", "fine-tuned, seed 2"]
    assert any(line.startswith("unpruned ") for line in lines)
    assert any(line.startswith("With 4") and "test_accuracy differs by" in line for line in lines)
    assert lines[-1].endswith("the best on the validation part -> small")
    names = {each.name for each in Path("small").iterdir()}
    assert names == {"recipe.yaml", "model.safetensors", "pruned.json", "training.yaml", "metrics.json"}
    tree = json.loads(Path("small/metrics.json").read_text())
    assert network_in(Path("small"))(torch.zeros(1, 1, 8, 8)).shape == (1, 10)
    assert trained_in(Path("small")).recipe.loop.seed == tree["best_seed"]
    assert tree["operations"]["left"] < 0.5


@pytest.mark.slow("trains and prunes networks")
def test_a_recipe_is_trained_first_and_the_data_are_printed_alone(tunebook: Tunebook, recipe: Path) -> None:
    code, out, _ = tunebook(
        "shrink", recipe, "--seeds", 2, "--json", "--set", "optimizer.momentum=0.5", "--epochs", 1
    )
    assert code == 0
    tree = json.loads(out)
    assert set(tree) == {
        "schema",
        "recipe",
        "of_recipe",
        "metric",
        "operations",
        "verdict",
        "words",
        "level",
        "resamples",
        "seeds",
        "best_seed",
        "networks",
        "kept",
        "without_teacher",
        "from_scratch",
    }
    assert set(tree["networks"]) == {"unpruned", "pruned", "fine-tuned"}
    assert [each.name for each in Path().iterdir()] == ["recipe.yaml"], "nothing was asked to be written"


@pytest.mark.slow("trains and prunes networks")
def test_the_unpruned_network_teaches_and_the_written_recipe_names_it(
    tunebook: Tunebook, recipe: Path
) -> None:
    assert tunebook("train", recipe, "--out", "trained")[0] == 0
    settings = ("--set", "distillation.weight=0.25", "--set", "distillation.temperature=2")
    code, out, _ = tunebook("shrink", "trained", "--seeds", 2, "--distillation", *settings, "-o", "small")
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == "2 fine-tunings of 1 epoch, and as many that learn from the unpruned network"
    assert [line.split(":")[0] for line in lines[2:6]] == [
        f"{name}, seed {seed}" for name in ("fine-tuned", "distilled") for seed in (1, 2)
    ]
    assert any(line.startswith("distilled ") for line in lines)
    assert any("Against the fine-tuning without this teacher, " in line for line in lines)
    written = read_recipe(Path("small/recipe.yaml"))
    assert written.get("distillation") == {
        "kind": "logits",
        "teacher": str(Path("trained").absolute()),
        "temperature": 2.0,
        "weight": 0.25,
    }
    assert written.provenance is not None
    assert written.provenance.teacher_digest == file_digest(Path("trained/model.safetensors"))
    tree = json.loads(Path("small/metrics.json").read_text())
    assert (tree["kept"], tree["recipe"]) == ("distilled", written.with_values({"loop.seed": 0}).digest())
    assert tunebook("train", "small/recipe.yaml", "--out", "again")[0] == 0
    assert tunebook("train", recipe, "--set", "distillation.teacher=small", "--out", "taught")[0] == 0
    code, out, _ = tunebook("shrink", "small", "--seeds", 2)
    assert out.splitlines()[0] == "2 fine-tunings of 1 epoch", "as the training, which had no teacher"


@pytest.mark.slow("trains and prunes networks")
def test_a_pruned_network_is_pruned_again_by_the_recipe_that_trained_the_whole_one(
    tunebook: Tunebook, recipe: Path
) -> None:
    assert tunebook("train", recipe, "--set", "loop.epochs=6", "--out", "trained")[0] == 0
    first = ("--epochs", 2, "--lr-factor", 0.25, "--seeds", 2)
    assert tunebook("shrink", "trained", *first, "-o", "small")[0] == 0
    fine = read_recipe(Path("small/recipe.yaml"))
    assert (fine.loop.epochs, fine.optimizer.lr) == (2, 0.05)
    training = read_recipe(Path("small/training.yaml"))
    assert training == read_recipe(Path("trained/recipe.yaml"))
    again = ("--flops", 0.7, "--seeds", 2, "--scratch", "-o", "smaller")
    code, out, _ = tunebook("shrink", "small", *again)
    assert code == 0
    assert out.splitlines()[0] == "2 fine-tunings of 1 epoch, and 2 trainings of 6 epochs"
    assert read_recipe(Path("smaller/recipe.yaml")).optimizer.lr == 0.2
    assert read_recipe(Path("smaller/training.yaml")) == training


@pytest.mark.slow("trains and prunes networks")
def test_the_recipe_of_a_pruned_network_says_that_it_builds_the_whole_one(
    tunebook: Tunebook, recipe: Path
) -> None:
    assert tunebook("train", recipe, "--out", "trained")[0] == 0
    assert tunebook("shrink", "trained", "--seeds", 2, "-o", "small")[0] == 0
    known = read_recipe(Path("small/recipe.yaml")).provenance
    tree = json.loads(Path("small/metrics.json").read_text())
    assert known is not None
    assert known.pruned == pytest.approx(tree["operations"]["left"], abs=1e-4)
    shutil.copy("small/recipe.yaml", "copy.yaml")
    words = "is the fine-tuning of a pruned network, and builds the whole network, not the pruned one"
    for file, more in (
        ("small/recipe.yaml", "; small/training.yaml trained the whole one"),
        ("copy.yaml", ""),
    ):
        code, out, _ = tunebook("train", file, "--set", "optimizer.lr=0.1")
        assert (code, out.splitlines()[0]) == (0, f"{file}: {words}{more}")
        code, out, _ = tunebook("check", file, "--set", "optimizer.lr=0.1", "--seconds", 1)
        assert out.splitlines()[0] == f"{file}: {words}{more}"
        code, out, error = tunebook("check", file, "--json", "--seconds", 1)
        assert json.loads(out)["target"] == file
        assert error == f"{file}: {words}{more}\n"
        for options in ((), ("--format", "script")):
            code, out, error = tunebook("export", file, "-o", "exported", *options)
            assert (code, out, Path("exported").exists()) == (2, "", False)
            assert error.startswith(f"tunebook: {file}: {words}{more}. An export of it would train another")
    assert tunebook("shrink", "copy.yaml", "--seeds", 2)[1].startswith(f"copy.yaml: {words}\n")


@pytest.mark.slow("trains and prunes networks")
def test_the_recipe_of_the_whole_network_stays_one_that_is_trained_and_exported(
    tunebook: Tunebook, recipe: Path
) -> None:
    assert tunebook("train", recipe, "--out", "trained")[0] == 0
    assert tunebook("shrink", "trained", "--seeds", 2, "-o", "small")[0] == 0
    for file in ("small/training.yaml", "trained/recipe.yaml"):
        assert "pruned" not in tunebook("train", file)[1]
        assert tunebook("export", file, "-o", "exported.yaml", "--force")[0] == 0
    assert tunebook("train", "small/recipe.yaml", "--out", "whole")[0] == 0
    again = read_recipe(Path("whole/recipe.yaml"))
    assert again.provenance is not None
    assert again.provenance.pruned is None, "it is trained whole"
    assert "pruned" not in tunebook("train", "whole/recipe.yaml")[1]


@pytest.mark.slow("trains and prunes networks")
def test_a_pruned_network_without_the_recipe_of_the_training_says_so_and_has_none_from_scratch(
    tunebook: Tunebook, recipe: Path
) -> None:
    assert tunebook("train", recipe, "--out", "trained")[0] == 0
    assert tunebook("shrink", "trained", "--seeds", 2, "-o", "small")[0] == 0
    Path("small/training.yaml").unlink()
    code, out, error = tunebook("shrink", "small", "--scratch", "--seeds", 2)
    assert (code, "seed 1" in out) == (2, False)
    assert error.startswith(
        "tunebook: --scratch: the network was pruned before, and there is no training.yaml"
    )
    code, out, _ = tunebook("shrink", "small", "--flops", 0.7, "--seeds", 2, "-o", "smaller")
    assert code == 0
    assert out.splitlines()[0].startswith("small: was pruned before, and has no training.yaml, the recipe")
    assert "from the fine-tuning in recipe.yaml, of 1 epoch; --epochs" in out.splitlines()[0]
    assert not Path("smaller/training.yaml").exists()


@pytest.mark.slow("trains and prunes networks")
def test_a_recipe_s_network_teaches_while_it_is_there_but_names_no_written_teacher(
    tunebook: Tunebook, recipe: Path
) -> None:
    code, out, error = tunebook("shrink", recipe, "--distillation", "-o", "small")
    assert (code, out) == (2, "")
    assert error == (
        f"tunebook: --distillation -o small: the network that {recipe} gives would teach, and is not kept: "
        f"no recipe could name it; `tunebook train {recipe} --out DIR`, then `tunebook shrink DIR "
        "--distillation -o small`\n"
    )
    code, out, _ = tunebook("shrink", recipe, "--distillation", "--seeds", 2, "--json")
    assert code == 0
    assert set(json.loads(out)["networks"]) == {"unpruned", "pruned", "fine-tuned", "distilled"}


@pytest.mark.slow("trains and prunes networks")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--set", "distillation.weight=0.25"],
            "--set distillation.weight: the fine-tuning learns from no teacher; with --distillation the",
        ),
        (
            ["--distillation", "--set", "distillation.teacher=other"],
            "--set distillation.teacher: --distillation says that the teacher is the unpruned network",
        ),
        (
            ["--distillation", "--set", "distillation={kind: dkd}"],
            "--set distillation: --distillation says that the teacher is the unpruned network",
        ),
        (["--distillation", "--set", "distillation.weight=2"], "recipe: 1 fault\n  distillation.weight: "),
        (
            ["--set", "distillation.teacher=nowhere"],
            "distillation.teacher: nowhere: expected model.safetensors",
        ),
    ],
)
def test_a_setting_of_teaching_without_its_teacher_is_refused_before_any_training(
    tunebook: Tunebook, recipe: Path, arguments: list[str], message: str
) -> None:
    for source in (recipe, "trained"):
        code, out, error = tunebook("shrink", source, "--seeds", 2, *arguments)
        assert (code, error[: len(message) + 10]) == (2, f"tunebook: {message}")
        assert "epoch 1/" not in out
        assert "seed 1:" not in out
        if source == recipe:
            assert tunebook("train", recipe, "--out", "trained")[0] == 0


@pytest.mark.slow("trains and prunes networks")
def test_a_trial_that_teaches_is_written_into_its_search(tunebook: Tunebook, tmp_path: Path) -> None:
    (tmp_path / "earlier").mkdir()
    trained_search(tmp_path / "earlier")
    code, _, error = tunebook(
        "shrink", "earlier", "--trial", 0, "--seeds", 2, "--epochs", 1, "--distillation", "-o", "small"
    )
    assert (code, error) == (0, "")
    teacher = read_recipe(Path("small/recipe.yaml")).get("distillation.teacher")
    assert teacher == str(tmp_path / "earlier" / "teachers" / "trial-0-epoch-1")


@pytest.mark.slow("trains and prunes networks")
def test_masks_are_judged_by_their_iou_and_distilled(
    tunebook: Tunebook, tmp_path: Path, recipe: Path
) -> None:
    write_recipe(recipe, mask_recipe(write_masks(tmp_path / "masks", 40), {"model.width": 16}))
    assert tunebook("train", recipe, "--out", "trained")[0] == 0
    code, out, _ = tunebook("shrink", "trained", "--seeds", 2, "--test", "--distillation", "-o", "small")
    assert code == 0
    words = next(line for line in out.splitlines() if line.startswith("With "))
    assert "test_mean_iou differs by" in words
    assert "windows at once" in words
    tree = json.loads(Path("small/metrics.json").read_text())
    assert tree["metric"] == "val_mean_iou"
    assert set(tree["without_teacher"]) == {"val_mean_iou", "test_mean_iou"}
    assert network_in(Path("small"))(torch.zeros(1, 3, 16, 16)).shape == (1, 3, 16, 16)


@pytest.mark.slow("trains and prunes networks")
def test_a_training_that_diverges_is_a_failure_and_leaves_nothing(tunebook: Tunebook, recipe: Path) -> None:
    assert tunebook("train", recipe, "--out", "trained")[0] == 0
    code, _, error = tunebook("shrink", "trained", "--lr-factor", 1e30, "-o", "small")
    assert code == 1
    assert error == "tunebook: fine-tuned, seed 1: diverged; a lower --lr-factor may help\n"
    recipe.write_text(RECIPE.replace("0.2", "1.0e+30"))
    code, _, error = tunebook("shrink", recipe, "-o", "small")
    assert (code, error) == (1, f"tunebook: {recipe}: the training diverged: there is nothing to prune\n")
    assert sorted(each.name for each in Path().iterdir()) == ["recipe.yaml", "trained"]


@pytest.mark.slow("trains and prunes networks")
def test_what_cannot_be_pruned_is_one_message_before_any_training(tunebook: Tunebook, recipe: Path) -> None:
    cases: list[tuple[list[str], str]] = [
        (["missing"], "missing: no such folder; expected a search's folder (with study.yaml), or one that"),
        ([str(recipe), "--flops", "0.001"], "--flops 0.001: expected at least 0.0"),
        ([str(recipe), "--set", "model.width=4"], "--set model.width: expected a field of the fine-tuning"),
        ([str(recipe), "--set", "loop.epochs=0"], "recipe: 1 fault"),
        ([str(recipe), "--trial", "1"], f"--trial 1: {recipe} is one recipe, and no search"),
        ([str(recipe), "-o", str(recipe.parent)], f"{recipe.parent}: exists already; give a new folder"),
    ]
    for arguments, message in cases:
        code, out, error = tunebook("shrink", *arguments)
        assert (code, error[: len(message) + 10]) == (2, f"tunebook: {message}")
        assert "epoch 1/2" not in out
    recipe.write_text(
        "version: 2\nmodel: {kind: timm, name: vit_tiny_patch16_224}\ndata: {image_size: 224}\n"
    )
    code, _, error = tunebook("shrink", recipe)
    assert code == 2
    assert error.startswith(
        "tunebook: timm's vit_tiny_patch16_224: expected a convolutional network, got one"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--flops", "1.5"), "--flops 1.5: expected a share of the operations above 0 and below 1"),
        (("--flops", "0"), "--flops 0: expected a share of the operations above 0 and below 1"),
        (("--flops", "nan"), "--flops nan: expected a share of the operations above 0 and below 1"),
        (("--lr-factor", "-1"), "--lr-factor -1: expected a number above 0, such as 0.3"),
        (("--lr-factor", "0"), "--lr-factor 0: expected a number above 0, such as 0.3"),
        (("--lr-factor", "nan"), "--lr-factor nan: expected a number above 0, such as 0.3"),
        (("--lr-factor", "inf"), "--lr-factor inf: expected a number above 0, such as 0.3"),
    ],
)
def test_a_number_out_of_range_names_its_flag_before_anything_is_loaded(
    tunebook: Tunebook, arguments: tuple[str, str], message: str
) -> None:
    """The folder is not there, which would be the next message."""
    assert tunebook("shrink", "missing", *arguments) == (2, "", f"tunebook: {message}\n")


def test_a_recipe_beside_its_weights_is_taken_for_a_slip(tunebook: Tunebook, recipe: Path) -> None:
    assert tunebook("train", recipe, "--out", "trained")[0] == 0
    code, _, error = tunebook("shrink", "trained/recipe.yaml")
    assert (code, error) == (
        2,
        "tunebook: trained/recipe.yaml: lies beside trained weights; give its folder, trained\n",
    )


def test_without_the_extra_the_message_says_how_it_is_installed(
    tunebook: Tunebook, recipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch_pruning", None)
    code, _, error = tunebook("shrink", recipe)
    assert (code, error) == (
        2,
        "tunebook: pruning needs the package torch-pruning, which is not installed: `pip install "
        "'tunebook[shrink]'`, or `pip install torch-pruning`\n",
    )


def test_what_takes_seconds_to_load_is_a_stage_that_a_person_sees(
    recipe: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "torch_pruning", None)
    caplog.set_level("INFO", "trainable.stages")
    with pytest.raises(UserError, match="torch-pruning"):
        run_shrink(ShrinkOptions(source=recipe))
    assert caplog.messages[-1].startswith("loading torch-pruning: ")
