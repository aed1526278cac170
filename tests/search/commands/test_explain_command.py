"""Tests `tunebook explain`: facts and their origins, the plan with its reason, then every range and value."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from search.commands.explain import explained_rows
from search.commands.facts_table import FACT_TEXTS, FactRow, fact_rows
from search.commands.forecast import decoded, forecast_line, forecast_or_reason, forecast_tree
from search.commands.guests import ALL
from search.deciding.forecast import Forecast
from search.facts.hardware import Hardware, Node
from search.facts.measured import Measured, load_data
from search.record.home import Home
from search.running.prepare import decide, load, write_facts
from search.study import Study
from spaces.facts import Facts
from tests.golden_pages import assert_page
from tests.search.command_line import Refusal, Tunebook
from tests.search.learning.landscapes import towards
from tests.search.planted_searches import planted
from tests.spaces.small_facts import digits_facts, imagenet_facts, masks_facts
from tests.trainable.data_forms import write_csv
from tests.trainable.small_segmentations import write_masks
from trainable.bench import ON_CPU, Bench
from trainable.data import DataInfo
from trainable.errors import UserError
from trainable.recipe import Recipe
from trainable.recipe.data import Data
from trainable.recipe.network_cost import Footprint
from trainable.recipe.yamlfile import read_tree, write_recipe

MACHINE = Hardware((Node(cpus=2, gpus=0),))
INFO = DataInfo(*("digits", "digits", ("0", "1"), 1, 8, 8, 2, 2, (4, 4), (0.5,), (0.1,), (), "0" * 16, True))


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def a_study(text: str = "") -> Path:
    path = Path("study.yaml")
    base = "{model: {width: 4}, schedule: {kind: cosine}, precision: {kind: fp32}}"
    path.write_text(f"data: {{path: digits}}\nbase: {base}\n{text}")
    return path


def images(folder: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (2, 8, 12, 12, 3), dtype=np.uint8)
    for name, photographs in zip(("cat", "dog"), pixels, strict=True):
        (folder / name).mkdir(parents=True)
        for number, photograph in enumerate(photographs):
            Image.fromarray(photograph).save(folder / name / f"{number}.png")


def figures(text: str) -> list[str]:
    return re.findall(r"\d+(?:\.\d+)?", text)


def row(out: str, name: str) -> str:
    """Return the line of a table that begins with a name, each run of blanks as one blank."""
    (line,) = [line for line in out.splitlines() if line.startswith(f"{name} ")]
    return " ".join(line.split())


# --- the command ----------------------------------------------------------------------------------------


@pytest.mark.slow("measures networks")
def test_the_page_has_the_facts_the_plan_and_what_varies(
    tunebook: Tunebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    settings = (
        "seed: 7\nsampler: {kind: qmc}\nbudget: {epochs: 20, hours: 3}\nresources: {cpus: 2, gpus: 0}\n"
    )
    code, out, _ = tunebook("explain", a_study(settings))
    assert code == 0
    assert_page("explain.txt", re.sub(r"^forecast: about .*", "forecast: about ...", out, flags=re.M))


@pytest.mark.slow("tries recipes")
def test_the_forecast_is_made_of_recipes_that_are_tried_once(
    tunebook: Tunebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainable.terminal.TOLD_AFTER", 0.0)
    monkeypatch.setenv("COLUMNS", "200")
    _, out, err = tunebook("explain", a_study("budget: {trials: 3, epochs: 2}"))
    (said,) = [line for line in out.splitlines() if line.startswith("forecast: about")]
    assert "trying recipes for the forecast" in err
    _, again, err = tunebook("explain", "study.yaml", "--json")
    assert "trying recipes" not in err
    tree = json.loads(again)
    assert tree["why_no_forecast"] is None
    assert str(Forecast.model_validate(tree["forecast"])) == said
    (file,) = (Path("cache") / "tunebook" / "runs").iterdir()
    os.utime(file, times=(0, 0))  # the machine's other work is another by now
    assert "trying recipes" in tunebook("explain", "study.yaml")[2]


def test_why_there_is_no_forecast_is_said() -> None:
    def none() -> Forecast:
        raise UserError("nothing can be tried here")

    found = forecast_or_reason(none)
    assert forecast_line(found) == "no forecast: nothing can be tried here"
    assert forecast_tree(found) == {"forecast": None, "why_no_forecast": "nothing can be tried here"}


def test_a_forecast_alone_decodes_no_large_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images(tmp_path / "pets")
    data = load_data(Recipe().with_values({"data.path": str(tmp_path / "pets")}), ON_CPU, most_bytes=0)
    monkeypatch.setattr("search.commands.forecast.MOST_DECODED", 15)
    with pytest.raises(UserError, match="16 images are decoded first, which `tunebook search --dry-run`"):
        decoded(data, ON_CPU)
    data.be_here()
    assert decoded(data, ON_CPU) is data


def test_each_fact_has_a_row(tunebook: Tunebook) -> None:
    _, out, _ = tunebook("explain", a_study())
    titles = [line.strip() for line in out.splitlines()]
    names = [line.split()[0] for line in titles[2 : titles.index("plan") - 1]]
    assert names == [each for each in Facts.model_fields if each not in ("task", "longer_side")]


def test_a_segmentation_is_explained_with_its_facts_its_windows_and_its_loss(
    tunebook: Tunebook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    root = write_masks(tmp_path / "shapes", sizes=((40, 40),))
    masks = f"{{kind: segmentation, masks: {{classes: {root}/classes.txt}}}}"
    base = f"{{task: {masks}, precision: {{kind: fp32}}}}"
    Path("masks.yaml").write_text(f"data: {{path: {root}}}\nbase: {base}\nbudget: {{epochs: 20}}\n")
    code, out, err = tunebook("explain", "masks.yaml", "--all")
    assert code == 0, err
    assert re.search(r"^task +segmentation +one label an image, or one a pixel +base\.task\.kind", out, re.M)
    assert re.search(r"^image_size +40 px .* the longer side, at most 128 px on a CPU", out, re.M)
    assert "val_mean_iou, the highest" in out
    assert "DeepLabv3 saw 480,000 windows" in out
    assert re.search(r"^task\.loss\.dice +0 30%, 0\.5 20%, 1 50%", out, re.M)
    assert re.search(r"^schedule\.power +0\.9", out, re.M)
    assert re.search(r"^data\.image_size +40 +as large as most images, 40 px", out, re.M)
    assert row(tunebook("explain", "masks.yaml")[1], "longer_side").endswith("(cached)")


def test_what_was_counted_comes_from_the_cache_the_next_time(tunebook: Tunebook) -> None:
    tunebook("explain", a_study())
    _, again, _ = tunebook("explain", "study.yaml")
    assert row(again, "train_images").endswith("(cached)")
    assert not row(again, "workers").endswith("(cached)"), "what a study says is not from the cache"


def test_what_varies_comes_first_and_what_is_fixed_on_demand(tunebook: Tunebook) -> None:
    code, brief, _ = tunebook("explain", a_study())
    _, whole, _ = tunebook("explain", a_study(), "--all")
    assert code == 0
    count = brief.strip().splitlines()[-1].strip()
    assert "--all" in count
    varying, fixed = whole.split("space document: what varies")[1].split("\nfixed ")
    assert "optimizer.lr" in varying
    assert "loop.epochs" not in brief + varying
    rows = [line for line in fixed.splitlines()[2:] if line and not line.startswith(" ")]
    assert len(rows) == int(count.split()[0])
    assert row(fixed, "model.width").startswith("model.width 4 pinned; ")
    assert "--all" not in whole


@pytest.mark.slow("measures networks")
def test_data_and_settings_are_read_as_check_reads_them(tunebook: Tunebook, tmp_path: Path) -> None:
    images(tmp_path / "pets")
    for arguments in (["--data", "digits"], ["digits"], ["pets"], [a_study()], [a_study(), "--data", "pets"]):
        code, out, err = tunebook(
            "explain", *arguments, "--set", "space.name=quick", "--set", "model.depth=8"
        )
        assert code == 0, err
        assert "space quick: what varies" in out
        assert row(out, "train_images").split()[1] == ("12" if "pets" in arguments else "1,259")


def test_a_recipe_takes_settings_too(tunebook: Tunebook) -> None:
    write_recipe(Path("recipe.yaml"), Recipe().with_values({"model.width": 4, "data.path": "/nowhere"}))
    _, out, _ = tunebook("explain", "recipe.yaml", "--data", "digits", "--set", "optimizer.momentum=0.8")
    assert row(out, "train_images").split()[1] == "1,259"
    assert row(out, "optimizer.momentum").startswith("optimizer.momentum 0.8 ")


def test_the_help_names_all_that_may_be_explained(tunebook: Tunebook) -> None:
    for command in ("explain", "check", "lr-find", "batch-find"):
        code, out, _ = tunebook(command, "--help")
        words = " ".join(out.replace("│", " ").split())
        assert code == 0
        assert "RECIPE|STUDY|DIR|DATA" in words


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (
            "space: {overrides: {loop.batch_size: {choice: [64, 100000]}}}\n",
            "space.overrides.loop.batch_size: 100000 is more than the 1259 training images",
        ),
        ("objective: {metric: val_top5_accuracy}\n", "more than ten classes"),
    ],
)
def test_a_study_that_search_refuses_is_refused_with_the_same_words(
    tunebook: Tunebook, text: str, wanted: str
) -> None:
    for command in ("explain", "search"):
        code, out, err = tunebook(command, a_study(text))
        assert (code, out) == (2, "")
        assert wanted in err


def test_a_range_of_rates_that_misses_the_sweep_s_is_reported(tunebook: Tunebook) -> None:
    narrow = "facts: {lr_band: [0.2, 0.4]}\nspace: {overrides: {optimizer.lr: {log: [1.0, 3.0]}}}\n"
    _, out, _ = tunebook("explain", a_study(narrow))
    assert "warning: space.overrides.optimizer.lr: 1 to 3, log " in out
    assert "optimizer.lr 0.2 instead of 0.1" in row(out, "first trial")


def test_a_second_time_nothing_is_measured_and_it_says_so(tunebook: Tunebook) -> None:
    first, again = (tunebook("explain", a_study())[1] for _ in range(2))
    assert "(cached)" not in first
    for name in ("train_images", "image_size", "parameters", "attention"):
        assert row(again, name) == f"{row(first, name)} (cached)"
    assert row(again, "epochs") == row(first, "epochs")
    assert first.split("plan")[1] == again.split("plan")[1]


def test_what_a_person_wrote_stands_beside_what_was_measured(tunebook: Tunebook) -> None:
    code, out, _ = tunebook("explain", a_study("facts: {parameters: 25000000, lr_band: [0.1, 0.4]}\n"))
    assert code == 0
    wanted = row(out, "parameters")
    assert wanted.startswith("parameters 25,000,000 ")
    assert int(wanted.rpartition(" measured: ")[2].replace(",", "")) < 10_000
    assert row(out, "lr_band").startswith("lr_band 0.1 to 0.4 at 256 ")


@pytest.mark.slow("measures networks")
def test_a_search_is_explained_by_the_facts_that_it_began_with(
    tunebook: Tunebook, refusal: Refusal, tmp_path: Path
) -> None:
    """The file holds facts that no measurement would give, so they can only come from there."""
    study = Study.from_tree(
        {"data": {"path": "digits"}, "base": {"model.width": 4}, "space": {"probes": ["lr-find"]}}
    ).resolved("mine")
    folder = tmp_path / "mine"
    prepared = decide(
        load(
            study.model_copy(update={"space": study.space.model_copy(update={"probes": ()})}),
            Home(folder),
            MACHINE,
        )
    )
    folder.mkdir()
    write_facts(prepared)
    record = json.loads((folder / "facts.json").read_text())
    record["facts"] |= {"train_images": 1234, "lr_band": [0.5, 0.7], "lr_band_kind": "sgd"}
    (folder / "facts.json").write_text(json.dumps(record))
    study.write(folder)
    code, out, _ = tunebook("explain", folder)
    assert code == 0
    assert "1,234 images" in row(out, "train_images")
    assert row(out, "lr_band").startswith("lr_band 0.5 to 0.7 at 256 ")
    assert "optimizer.lr 0.5 instead of 0.1" in row(out, "first trial")
    assert "(cached)" not in out
    assert "give its study.yaml" in refusal("explain", folder, "--set", "space.name=quick")


def test_a_recipe_is_explained_with_the_facts_of_its_data(tunebook: Tunebook) -> None:
    write_recipe(Path("recipe.yaml"), Recipe().with_values({"model.width": 4, "loop.epochs": 3}))
    code, out, _ = tunebook("explain", "recipe.yaml")
    assert code == 0
    assert row(out, "epochs").startswith("epochs 3 ")
    assert row(out, "epochs").endswith(" loop.epochs")
    assert "plan" not in out.split()
    assert "recipe " in out


def test_a_recipe_without_its_data_is_explained_without_facts(tunebook: Tunebook) -> None:
    write_recipe(Path("recipe.yaml"), Recipe().with_values({"data.path": "/nowhere"}))
    code, out, _ = tunebook("explain", "recipe.yaml")
    assert code == 0
    assert "without the facts of its data" in out
    assert "train_images" not in out


# --- facts in words -------------------------------------------------------------------------------------


def rows(
    facts: Facts, study: Study | None = None, data: Data | None = None, **how: bool
) -> dict[str, FactRow]:
    return {each.name: each for each in fact_rows(facts, Measured(facts, INFO, **how), data or Data(), study)}


def test_every_fact_is_put_into_words() -> None:
    assert list(FACT_TEXTS) == list(Facts.model_fields)
    assert all(field.description for field in Facts.model_fields.values())
    for facts in (
        digits_facts(),
        imagenet_facts(pretrained=True, largest_micro_batch=96, lr_band=(0.01, 0.3)),
        masks_facts(),
    ):
        assert all(each.value and each.meaning and each.origin for each in rows(facts).values())


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("train_images", "1,280,000 images"),
        ("classes", "1,000 classes"),
        ("channels", "3, colour"),
        ("flips", "horizontal"),
        ("gpus", "1 GPU"),
        ("gpu_memory_bytes", "80.0 GiB"),
        ("pretrained", "yes"),
        ("largest_micro_batch", "96 images"),
        ("lr_band", "0.01 to 0.3 at 256"),
    ],
)
def test_values_have_their_units(name: str, wanted: str) -> None:
    facts = imagenet_facts(pretrained=True, largest_micro_batch=96, lr_band=(0.01, 0.3))
    assert rows(facts)[name].value == wanted


def test_half_a_gpu_is_half_a_gpu() -> None:
    assert rows(imagenet_facts(gpus=0.5))["gpus"].value == "0.5 GPUs"


def test_it_says_how_many_trials_share_a_gpu_and_why() -> None:
    study = Study.from_tree({"data": {"path": "digits"}, "resources": {"pack": True}})
    before = rows(imagenet_facts(gpus=1.0), study)
    assert before["gpus"].origin == "measured when the search begins: resources.pack"
    took = Footprint(trial_bytes=2 * 2**30, free_bytes=80 * 2**30, busy=0.25)
    begun = rows(imagenet_facts(gpus=0.25, footprint=took), study, recorded=True)
    assert figures(begun["footprint"].value) == ["2.0", "80.0", "25"]
    assert figures(begun["gpus"].origin) == ["4", "2.0", "80.0", "25", "32", "4"]


@pytest.mark.parametrize(
    ("tree", "recorded", "name", "origin"),
    [
        ({}, False, "channels", "as in most images"),
        ({"data": {"channels": 1}}, False, "channels", "data.channels"),
        ({"data": {"flips": []}}, False, "flips", "data.flips"),
        ({}, False, "gpus", "what the machine has"),
        ({"resources": {"gpus": 0}}, False, "gpus", "resources.gpus"),
        ({}, False, "gpu_memory_bytes", "no GPU is used"),
        ({"facts": {"attention": True}}, False, "attention", "written in the study; measured: no"),
        ({"facts": {"attention": True}}, True, "attention", "written in the study"),
        (
            {"facts": {"lr_band": [0.1, 0.4]}},
            False,
            "lr_band_kind",
            "base.optimizer.kind, or the documented recipe's",
        ),
        (
            {"space": {"probes": ["lr-find"]}},
            False,
            "lr_band",
            "lr-find will measure it when the search begins",
        ),
        ({"space": {"probes": ["lr-find"]}}, True, "lr_band", "lr-find found none"),
        ({"space": {"probes": ["lr-find"]}}, True, "largest_micro_batch", "by space.probes: [batch-find]"),
    ],
)
def test_where_a_fact_is_from_is_said_exactly(
    tree: dict[str, dict[str, object]], recorded: bool, name: str, origin: str
) -> None:
    study = Study.from_tree({**tree, "data": {"path": "digits", **tree.get("data", {})}})
    assert rows(digits_facts(), study, study.data, recorded=recorded)[name].origin == origin


@pytest.mark.slow("measures networks")
def test_a_manifest_is_explained_checked_and_trained_as_the_folder_that_it_lists(tunebook: Tunebook) -> None:
    images(Path("pets"))
    files = sorted(Path("pets").rglob("*.png"))
    write_csv(Path("pets.csv"), [{"path": str(file), "label": file.parent.name} for file in files])
    pages = []
    for path in ("pets", "pets.csv"):
        Path("study.yaml").write_text(
            f"data: {{path: {path}}}\nbase: {{model: {{width: 8}}, precision: {{kind: fp32}}}}\n"
        )
        code, page, _ = tunebook("explain", "study.yaml")
        assert (code, row(page, "train_images")[:15]) == (0, "train_images 12")
        pages.append([line for line in page.splitlines() if not re.search("pets|^forecast: ", line)])
    assert pages[0] == pages[1]
    code, found, _ = tunebook("check", "study.yaml", "--seconds", "1", "--json")
    assert code in (0, 1)
    assert {"duplicates", "near-duplicates"} <= {each["check"] for each in json.loads(found)["findings"]}
    Path("recipe.yaml").write_text(
        "data: {path: pets.csv}\n"
        "model: {width: 8}\nprecision: {kind: fp32}\nloop: {epochs: 1, batch_size: 4}\n"
    )
    assert tunebook("train", "recipe.yaml", "--out", "out")[0] == 0
    assert Path("out/model.safetensors").exists()


# --- earlier searches -----------------------------------------------------------------------------------


@pytest.mark.slow("measures networks")
def test_the_plan_says_what_earlier_searches_taught_and_the_field_by_which_of_them(
    tunebook: Tunebook, refusal: Refusal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    base = {"optimizer.kind": "sgd"}
    planted(tmp_path / "old", towards(0.85), trials=40, space__name="quick", base=base)
    planted(tmp_path / "few", towards(0.85), trials=4, space__name="quick", base=base)
    study = "space: {name: quick, learn_from: [old/planted, few/planted]}\n"
    Path("new.yaml").write_text(f"data: {{path: digits}}\nbase: {{optimizer.kind: sgd}}\n{study}")
    code, out, err = tunebook("explain", "new.yaml")
    assert code == 0, err
    assert "learned from old/planted: 40 trials teach 1 of 1 field that both vary" in " ".join(out.split())
    assert (
        "few/planted: nothing is learned: only 4 of its trials have a result, and at least 8 are needed"
        in out
    )
    assert "learned from 1 of space.learn_from:" in row(out, "optimizer.lr")
    begun = Study.from_tree(read_tree("new.yaml")).resolved("mine")
    prepared = decide(load(begun, Home(tmp_path / "mine"), MACHINE, guests=ALL))
    (tmp_path / "mine").mkdir()
    write_facts(prepared)
    begun.write(tmp_path / "mine")
    code, of_search, _ = tunebook("explain", tmp_path / "mine")
    assert code == 0
    assert len(prepared.learned) == 2
    for line in prepared.learned:
        assert f"learned from {line}" in " ".join(of_search.split())
    Path("new.yaml").write_text("data: {path: digits}\nspace: {learn_from: [nowhere]}\n")
    assert "space.learn_from.0: nowhere: no such folder" in refusal("explain", "new.yaml")


def test_torch_is_loaded_in_a_stage_that_a_person_sees(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "trainable.stages")
    explained_rows(Study.from_tree({"data": {"path": "digits"}}), everything=False, bench=Bench())
    assert caplog.messages[0].startswith("loading torch: ")
