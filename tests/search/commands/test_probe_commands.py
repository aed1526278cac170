"""Tests what `tunebook lr-find` and `batch-find` print and write, and what input they accept."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
import torch
from PIL import Image

from search.commands.asked import study_from
from search.commands.inputs import Target, load_target
from search.commands.named import named_input
from search.commands.options import InputOptions
from spaces.facts import OPTIMIZERS
from tests.search.command_line import Tunebook
from tests.trainable.small_segmentations import mask_recipe, write_masks
from trainable.recipe import Recipe
from trainable.recipe.yamlfile import parse_setting, write_recipe

# They make the curve the same everywhere: `auto` is bf16 on some CPUs, and would sweep another one
FP32 = ("--set", "precision.kind=fp32")
LITTLE = ("--set", "data.train_limit=200", "--set", "loop.batch_size=32", *FP32)
SWEEP = ("--steps", "40", "--sweeps", "1", *FP32)


def a_recipe(path: Path = Path("recipe.yaml")) -> Path:
    write_recipe(
        path, Recipe().with_values({"data.train_limit": 200, "model.width": 8, "optimizer.lr": 0.07})
    )
    return path


# --- lr-find --------------------------------------------------------------------------------------------


def test_lr_find_prints_a_band_and_says_what_it_is_good_for(tunebook: Tunebook) -> None:
    code, out, _ = tunebook("lr-find", "--data", "digits", *LITTLE, *SWEEP)
    assert code == 0
    for words in ("minimum / 10", "steepest", "valley", "band: optimizer.lr", "at batch 256", "begins"):
        assert words in out
    assert not list(Path().iterdir())


def test_lr_find_says_how_a_search_takes_its_band(tunebook: Tunebook) -> None:
    """A search takes it as a fact, which the rules use, or as a range; both are printed as one types them."""
    _, out, _ = tunebook("lr-find", "--data", "digits", *LITTLE, *SWEEP)
    (around,) = [line for line in out.splitlines() if "--set 'facts.lr_band=" in line]
    settings = [part for part in shlex.split(around.partition(":")[2]) if part != "--set"]
    study = study_from(None, {"data.path": "digits", **dict(parse_setting(text, "") for text in settings)})
    assert study.facts.lr_band is not None
    assert study.facts.lr_band_kind in OPTIMIZERS
    assert "--set space.overrides.optimizer.lr=" in out


def test_lr_find_prints_json_and_writes_the_same(tunebook: Tunebook) -> None:
    code, out, _ = tunebook(
        "lr-find", a_recipe(), *SWEEP, "--set", "loop.batch_size=64", "--json", "--out", "band.json"
    )
    assert code == 0
    wanted = json.loads(out)
    assert wanted == json.loads(Path("band.json").read_text())
    assert (wanted["batch_size"], wanted["lr"], wanted["at_256"]) == (64, 0.07, 4.0)
    values = wanted["suggestions"].values()
    assert wanted["band"] == [min(values), max(values)]
    assert wanted["band_at_256"] == pytest.approx([4 * rate for rate in wanted["band"]])


@pytest.mark.slow("trains for a probe")
def test_lr_find_draws_a_picture(tunebook: Tunebook) -> None:
    code, out, _ = tunebook("lr-find", a_recipe(), *SWEEP, "--out", "band.png")
    assert code == 0
    assert "band.png" in out
    with Image.open("band.png") as image:
        assert image.format == "PNG"
        assert image.width > 800
        assert len(image.convert("RGB").getcolors(1 << 20) or ()) > 20


@pytest.mark.slow("trains for a probe")
def test_lr_find_writes_a_page_that_needs_no_other_file(tunebook: Tunebook) -> None:
    code, _, _ = tunebook("lr-find", a_recipe(), *SWEEP, "--out", "band.html")
    assert code == 0
    page = Path("band.html").read_text()
    assert 'src="data:image/png;base64,iVBOR' in page
    assert "http" not in page
    assert page.count("<tr>") == 4
    assert "band: optimizer.lr" in page


@pytest.mark.slow("trains for a probe")
def test_lr_find_leaves_with_1_where_there_is_no_band(tunebook: Tunebook) -> None:
    """All images are alike, and each class has equally many: nothing can be learnt."""
    for name in ("cat", "dog"):
        (Path("pets") / name).mkdir(parents=True)
        for number in range(30):
            Image.new("RGB", (12, 12), (number % 2, 0, 0)).save(Path("pets") / name / f"{number}.png")
    settings = ("--set", "data.image_size=8", "--set", "optimizer.kind=sgd")
    code, out, _ = tunebook("lr-find", "--data", "pets", *settings, *SWEEP, "--out", "none.png")
    assert code == 1, out
    assert "no band: the loss hardly fell" in out
    assert Path("none.png").exists()


# --- batch-find -----------------------------------------------------------------------------------------


@pytest.mark.slow("trains for a probe")
def test_batch_find_prints_the_sizes_and_what_to_set(tunebook: Tunebook) -> None:
    code, out, _ = tunebook("batch-find", "--data", "digits", *LITTLE)
    assert code == 0
    for words in ("images a second", "largest micro-batch: 192", "loop.micro_batch", "within 5 %"):
        assert words in out


@pytest.mark.slow("trains for a probe")
def test_batch_find_keeps_a_limit(tunebook: Tunebook) -> None:
    threads = torch.get_num_threads()
    code, out, _ = tunebook("batch-find", a_recipe(), "--limit-gib", "0.001", "--json")
    assert code == 0
    wanted = json.loads(out)
    assert wanted["bound"] == "limit"
    assert wanted["micro_batch"] == wanted["largest"] < 128
    assert all(each["peak_bytes"] <= 0.001 * 2**30 for each in wanted["tried"])
    assert wanted["threads"] == threads
    code, out, _ = tunebook("batch-find", a_recipe(), "--limit-gib", "0.001")
    assert f"set loop.micro_batch: {wanted['largest']}" in out


def test_batch_find_leaves_with_1_where_nothing_fits(tunebook: Tunebook) -> None:
    code, out, _ = tunebook("batch-find", a_recipe(), "--limit-gib", "0.00001")
    assert code == 1
    assert "not even the smallest" in out


# --- inputs ---------------------------------------------------------------------------------------------


def loaded(file: str | Path | None, settings: list[str] | None = None, data: str | None = None) -> Target:
    options = InputOptions(file=None if file is None else str(file), settings=settings, data=data)
    return load_target(named_input(options), options.file)


def test_a_recipe_is_used_as_it_is_written_with_settings(tmp_path: Path) -> None:
    written = a_recipe(tmp_path / "recipe.yaml")
    looked = loaded(written, ["optimizer.momentum=0.8"])
    assert (looked.kind, looked.bench.threads) == ("recipe", None)
    assert (looked.recipe.optimizer.lr, looked.recipe.get("optimizer.momentum")) == (0.07, 0.8)
    assert looked.data.info.train_images == 200


@pytest.mark.slow("trains for a probe")
def test_a_study_stands_for_its_first_trial(tmp_path: Path) -> None:
    study = tmp_path / "study.yaml"
    study.write_text("data: {path: digits, train_limit: 200}\nbudget: {epochs: 7}\nresources: {cpus: 1}\n")
    looked = loaded(study, ["optimizer.lr=0.03", "resources.gpus=0"])
    assert (looked.kind, looked.bench.threads, looked.bench.kind) == ("study", 1, "cpu")
    assert (looked.recipe.loop.epochs, looked.recipe.optimizer.lr) == (7, 0.03)
    assert looked.recipe.loop.batch_size <= 200 / 8  # fixed by rule, not the default


@pytest.mark.slow("looks for the start of a study twice")
def test_data_alone_stand_for_the_first_trial_of_the_default_study() -> None:
    named, positional = loaded(None, data="digits"), loaded("digits")
    assert named.kind == positional.kind == "data"
    assert named.recipe == positional.recipe


def test_other_data_replace_a_recipes_own(tmp_path: Path) -> None:
    written = tmp_path / "recipe.yaml"
    write_recipe(written, Recipe().with_values({"data.path": "/nowhere", "data.format": "folder"}))
    assert loaded(written, data="digits").recipe.data.path == "digits"


# --- masks ----------------------------------------------------------------------------------------------


@pytest.mark.slow("trains for a probe")
def test_both_probes_measure_a_recipe_that_learns_masks(tunebook: Tunebook) -> None:
    write_recipe(Path("masks.yaml"), mask_recipe(write_masks(Path("data"))))
    code, out, _ = tunebook("batch-find", "masks.yaml", "--json")
    assert code == 0
    assert json.loads(out)["largest"] > 0
    code, out, _ = tunebook("lr-find", "masks.yaml", *SWEEP, "--set", "optimizer.kind=sgd", "--json")
    tree = json.loads(out)
    assert tree["model"] == "unet_small"
    assert len(tree["sweeps"][0]["losses"]) > 10
