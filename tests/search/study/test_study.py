"""Tests the Study as data: defaults, refusals, values by path, paths resolved once, what rules settle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from search.commands.asked import study_from
from search.study import Study, StudyError, read_study
from search.study.space import build_space
from tests.search.planted_searches import Images
from tests.spaces.small_facts import digits_facts
from trainable.errors import UserError
from trainable.models.network_names import model_named
from trainable.recipe.network_cost import Speed

DIGITS = {"data": {"path": "digits"}}


def faults(tree: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(StudyError) as caught:
        Study.from_tree(tree)
    return dict(caught.value.faults)


def test_the_path_of_the_data_alone_is_enough() -> None:
    study = Study.from_tree(DIGITS)
    assert (study.budget.trials, study.budget.epochs, study.sampler.kind) == (16, 20, "auto")


@pytest.mark.parametrize(
    ("tree", "path"),
    [
        ({"bugdet": {"trials": 3}}, "bugdet"),
        ({"budget": {"trails": 3}}, "budget.trails"),
        ({"data": {"path": "digits", "flip": ["horizontal"]}}, "data.flip"),
        ({"base": {"optimizer": {"momentun": 0.9}}}, "base.optimizer.momentun"),
        ({"base": {"model.depht": 8}}, "base.model.depht"),
        ({"sampler": {"kind": "tpee"}}, "sampler.kind"),
        ({"tracking": {"url": "x"}}, "tracking.url"),
    ],
)
def test_a_typo_in_any_key_is_refused_at_its_path(tree: dict[str, Any], path: str) -> None:
    assert path in faults({**DIGITS, **tree})


def test_data_without_a_path_take_the_digits_only_if_said_so() -> None:
    assert Study.from_tree({"data": {}}).data.path == "digits"
    assert faults({})["data"] == "is required"


@pytest.mark.parametrize(
    ("tree", "wanted"),
    [
        ({"objective": {"metric": "accuracy"}}, "val_accuracy"),
        ({"objective": {"metric": "val_loss", "mode": "max"}}, "'min'"),
        ({"resources": {"workers": 2, "gpus": 0.5}}, "cannot share a GPU"),
        ({"resources": {"gpus": 2.0}}, "at most one GPU"),
        ({"resources": {"pack": True, "gpus": 0.5}}, "leave out gpus and workers"),
        ({"scheduler": {"rungs": [6, 2]}}, "rise"),
        ({"scheduler": {"kind": "hyperband"}}, "expected 'asha', 'promotion', 'model' or 'none'"),
        ({"scheduler": "promotion"}, "expected a mapping, such as {kind: promotion}, got 'promotion'"),
        (
            {"budget": 5},
            "of trials, epochs, hours, gpu_hours, price, price_per_gpu_hour, target, no_gain, got 5",
        ),
        ({"first": {"optimizer.lr": 0.1}}, "expected a list, such as [...], got {'optimizer.lr': 0.1}"),
        ({"scheduler": {"rungs": [2, 25]}}, "[25]"),
        ({"scheduler": {"grace_epochs": 20}}, "no trial would be stopped early"),
        ({"scheduler": {"rungs": [2], "grace_epochs": 2}}, "not both"),
    ],
)
def test_values_that_cannot_work_are_refused(tree: dict[str, Any], wanted: str) -> None:
    (message,) = faults({**DIGITS, **tree}).values()
    assert wanted in message


@pytest.mark.parametrize(
    ("tree", "path", "wanted"),
    [
        ({"facts": {"train_images": 50_000}}, "facts.train_images", "data.train_limit"),
        ({"facts": {"epochs": 90}}, "facts.epochs", "write budget.epochs"),
        ({"facts": {"flips": ["horizontal"]}}, "facts.flips", "write data.flips"),
        ({"facts": {"gpus": 1}}, "facts.gpus", "known here: parameters, gpu_memory_bytes"),
        ({"facts": {"lr_bnad": [0.1, 0.3]}}, "facts.lr_bnad", "did you mean 'lr_band'"),
        ({"facts": {"lr_band": [0.3, 0.1]}}, "facts.lr_band", "low < high, got [0.3, 0.1]"),
        ({"facts": {"lr_band_kind": "sdg"}}, "facts.lr_band_kind", "expected one of sgd"),
        ({"facts": {"parameters": 0}}, "facts.parameters", "greater than or equal to 1"),
        ({"facts": {"parameters": 2.5e7}}, "facts.parameters", "expected a valid integer"),
        (
            {"facts": {"lr_band": [0.1, 0.3]}, "space": {"probes": ["lr-find"]}},
            "facts.lr_band",
            "space.probes: [lr-find], too; keep one",
        ),
        ({"space": {"probes": ["lr_find"]}}, "space.probes.0", "'lr-find' or 'batch-find'"),
    ],
)
def test_facts_that_cannot_be_written_are_refused_at_their_path(
    tree: dict[str, Any], path: str, wanted: str
) -> None:
    ((found, message),) = faults({**DIGITS, **tree}).items()
    assert found == path
    assert wanted in message


def test_a_written_study_reads_back_with_its_facts_and_probes(tmp_path: Path) -> None:
    study = Study.from_tree({**DIGITS, "base": {"optimizer.lr": 1e-3}, "seed": 7}).with_values(
        {"facts.lr_band": [0.1, 0.3], "facts.attention": False, "space.probes": ["batch-find"]}
    )
    study.resolved("mine").write(tmp_path)
    read = read_study(tmp_path / "study.yaml")
    assert read == study.resolved("mine")
    assert read.facts.values() == {"lr_band": (0.1, 0.3), "attention": False}


@pytest.mark.parametrize("pin", [{"loop": {"epochs": 3}}, {"data": {"path": "x"}}, {"version": 1}])
def test_what_the_study_says_elsewhere_cannot_be_pinned(pin: dict[str, Any]) -> None:
    (message,) = faults({**DIGITS, "base": pin}).values()
    assert "cannot be pinned" in message


def test_nested_and_dotted_pins_mean_the_same() -> None:
    nested = Study.from_tree({**DIGITS, "base": {"optimizer": {"lr": 0.2, "momentum": 0.8}}})
    dotted = Study.from_tree({**DIGITS, "base": {"optimizer.lr": 0.2, "optimizer.momentum": 0.8}})
    assert nested.pinned == dotted.pinned
    assert nested.base_recipe() == dotted.base_recipe()


@pytest.mark.parametrize(
    ("pin", "instead"),
    [
        ({"evaluation": {"weights": "ema"}}, "regularisation.averaging.kind: ema"),
        ({"regularisation.ema_decay": 0.99}, "regularisation.averaging.decay"),
        ({"regularisation": {"clip_norm": 1.0}}, "regularisation.clipping.max_norm"),
        ({"regularisation.clip_factor": None}, "regularisation.clipping.factor"),
    ],
)
def test_a_pin_of_version_1_is_refused_with_what_to_write_now(pin: dict[str, Any], instead: str) -> None:
    ((path, message),) = faults({**DIGITS, "base": pin}).items()
    assert path.startswith("base.")
    assert instead in message


@pytest.mark.parametrize("base", [{"loop": {"compile": "auto"}}, {"loop.compile": "auto", "loop.seed": 2}])
def test_a_choice_to_compile_that_is_left_to_the_rule_is_no_pin(base: dict[str, Any]) -> None:
    assert "loop.compile" not in Study.from_tree({**DIGITS, "base": base}).pinned
    assert "loop.compile" in Study.from_tree({**DIGITS, "base": {"loop.compile": "blocks"}}).pinned


@pytest.mark.parametrize("pinned", [{"model": {"kind": "resnet_small", "width": 8}}, {"model.width": 8}])
def test_a_pinned_value_is_set_again_however_it_is_written(pinned: dict[str, Any]) -> None:
    study = Study.from_tree({**DIGITS, "base": pinned})
    assert study.with_values({"base.model.width": 4}).base_recipe().get("model.width") == 4
    whole = study.with_values({"base.model": {"kind": "resnet_small", "depth": 14}})
    assert whole.pinned == {"model.kind": "resnet_small", "model.depth": 14}


def test_values_are_set_by_path_and_overrides_keep_their_dotted_keys() -> None:
    study = Study.from_tree(DIGITS).with_values(
        {
            "budget.trials": 3,
            "base.optimizer.lr": 0.2,
            "space.overrides.optimizer.weight_decay": {"log": [1e-6, 1e-3]},
        }
    )
    assert study.budget.trials == 3
    assert study.pinned == {"optimizer.lr": 0.2}
    assert study.space.overrides == {"optimizer.weight_decay": {"log": [1e-6, 1e-3]}}


def test_paths_are_made_absolute_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    study = Study.from_tree({"data": {"path": "images"}, "storage": "in/../out"}).resolved("mine")
    monkeypatch.chdir("/")
    assert study.data.path == str(tmp_path / "images")
    assert study.storage == str(tmp_path / "out")
    assert study.resolved("mine") == study


def test_a_study_that_shares_no_gpu_says_so_in_its_file_as_earlier_versions_do() -> None:
    study = Study.from_tree(DIGITS).resolved("mine")
    assert study.resources.pack is False
    assert study == Study.from_tree({**DIGITS, "resources": {"pack": False}}).resolved("mine")
    assert Study.from_tree({**DIGITS, "resources": {"pack": True}}).resolved("mine").resources.pack


@pytest.mark.parametrize("base", [{"model": {"weights": "mine.pt"}}, {"model.weights": "mine.pt"}])
def test_the_weights_path_is_made_absolute_where_it_stands(
    base: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.pt").touch()
    base = {**base, "optimizer": {"lr": 0.2}}
    study = Study.from_tree({**DIGITS, "base": base, "storage": "out"}).resolved("mine")
    monkeypatch.chdir("/")
    assert study.pinned == {"model.weights": str(tmp_path / "mine.pt"), "optimizer.lr": 0.2}
    assert study.base_recipe().model.weights == str(tmp_path / "mine.pt")
    assert study.resolved("mine") == study


def test_weights_that_are_no_file_are_refused(tmp_path: Path) -> None:
    missing = str(tmp_path / "gone.pt")
    with pytest.raises(StudyError, match=rf"base\.model\.weights: no such file or folder: {missing}"):
        Study.from_tree({**DIGITS, "base": {"model.weights": missing}}).resolved("mine")


@pytest.mark.parametrize("weights", ["default", None, "IMAGENET1K_V2", "ResNet18_Weights.IMAGENET1K_V1"])
def test_published_weights_are_a_name_and_no_path(weights: str | None) -> None:
    model = {"kind": "torchvision", "name": "resnet18", "weights": weights}
    study = Study.from_tree({**DIGITS, "base": {"model": model}})
    assert study.resolved("mine").pinned == study.pinned
    assert study.pinned["model.weights"] == weights


def test_a_folder_in_a_models_name_means_the_same_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = {"kind": "timm", "name": "local-dir:mine"}
    study = Study.from_tree({**DIGITS, "base": {"model": model}}).resolved("mine")
    assert study.pinned["model.name"] == f"local-dir:{tmp_path / 'mine'}"
    chosen = {"model.name": {"choice": ["local-dir:mine", "resnet18"], "weights": [1, 2]}}
    tree = {**DIGITS, "base": {"model": {"kind": "timm"}}, "space": {"overrides": chosen}}
    study = Study.from_tree(tree).resolved("mine")
    assert study.networks == (f"local-dir:{tmp_path / 'mine'}", "resnet18")
    assert study.space.overrides["model.name"]["weights"] == [1, 2]


@pytest.mark.parametrize("path", ["digits", "s3://bucket/flowers"])
def test_the_bundled_digits_and_uris_mean_the_same_anywhere_and_stay_as_they_are(path: str) -> None:
    storage = "s3://bucket/searches?region=eu-central-1"
    resolved = Study.from_tree({"data": {"path": path}, "storage": storage}).resolved("mine")
    assert (resolved.data.path, resolved.storage) == (path, storage)


def test_a_study_needs_a_file_or_data() -> None:
    with pytest.raises(UserError, match="--data PATH"):
        study_from(None, {})


def test_flags_win_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_text("data: {path: digits}\nbudget: {trials: 4, epochs: 7}\n")
    study = study_from(path, {"budget.trials": 5, "base.model": "timm/resnet10t"})
    assert (study.budget.trials, study.base_recipe().loop.epochs) == (5, 7)
    assert study.base_recipe().get("model.name") == "resnet10t"


@pytest.mark.parametrize(
    ("name", "section"),
    [
        ("resnet_small", {"kind": "resnet_small"}),
        ("resnet18", {"kind": "torchvision", "name": "resnet18"}),
        ("timm/resnet10t", {"kind": "timm", "name": "resnet10t"}),
        ("unet_small", {"kind": "unet_small"}),
        ("smp/fpn/resnet18", {"kind": "smp", "name": "fpn", "encoder": "resnet18"}),
    ],
)
def test_a_model_is_named_in_one_word(name: str, section: dict[str, str]) -> None:
    assert model_named(name) == section


@pytest.mark.parametrize("name", ["smp/unet", "smp/", "smp/unet/"])
def test_a_decoder_without_an_encoder_says_how_both_are_written(name: str) -> None:
    with pytest.raises(
        UserError, match=f"model.name {name}: expected smp/DECODER/ENCODER, such as smp/unet/resn"
    ):
        model_named(name)


@pytest.mark.parametrize("name", ["../up", "", "a/b", ".hidden"])
def test_a_name_that_is_no_folder_name_is_refused(name: str) -> None:
    assert "name" in faults({**DIGITS, "name": name})


def test_names_to_choose_between_need_the_library_that_has_them() -> None:
    def study(written: Any, **base: str) -> Study:
        space = {"overrides": {"model.name": written}}
        return Study.from_tree({"data": {"path": "digits"}, "space": space, "base": {"model": base}})

    choice = {"choice": ["resnet18", "resnet34"]}
    for base in ({}, {"kind": "resnet_small"}):
        with pytest.raises(StudyError, match=r"space\.overrides\.model\.name: needs base\.model\.kind: timm"):
            study(choice, **base)
    with pytest.raises(StudyError, match=r"write base\.model\.name for one network alone"):
        study({"fixed": "resnet18"}, kind="timm", name="resnet34")
    assert study(choice, kind="timm").networks == ("resnet18", "resnet34")


USUAL = Speed(number_format="fp32", channels_last=True, images_per_second=100.0)
COMPILED = USUAL.model_copy(
    update={"images_per_second": 300.0, "compile_seconds": 9.0, "again_seconds": 1.0, "by_blocks": True}
)


def a_study(**sections: Any) -> Study:
    return Study.from_tree({"data": {"path": "digits"}, **sections})


@pytest.mark.parametrize(("speeds", "value"), [((), False), ((USUAL, COMPILED), "blocks")])
def test_a_choice_to_compile_is_settled_before_any_trial(speeds: tuple[Speed, ...], value: object) -> None:
    study = a_study(base={"loop": {"compile": "auto"}})
    space = build_space(study, digits_facts(speeds=speeds, trials=16), Images().info)
    assert space.recipe(space.own).loop.compile == value


def test_a_trial_does_not_choose_whether_to_compile() -> None:
    study = a_study(space={"overrides": {"loop.compile": {"choice": [False, "auto"]}}})
    with pytest.raises(StudyError, match=r"overrides\.loop\.compile: .* expected false, true or blocks"):
        build_space(study, digits_facts(), Images().info)
