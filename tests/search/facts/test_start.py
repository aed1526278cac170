"""Tests where trials start if the study names no network: from what is at hand, or from scratch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import save_file

from search.facts.hardware import Hardware, Node
from search.facts.start import Start, find_start
from search.learning.search import Search
from search.record.home import Home
from search.running.prepare import decide, load, prepare_again, write_facts
from search.study import Study, StudyError
from search.study.space import space_name
from spaces.facts import Backbone
from spaces.rules.backbones import candidates
from tests.search.command_line import Tunebook
from tests.trainable.small_images import write_image
from tests.trainable.small_segmentations import write_masks
from trainable.bench import ON_CPU, Bench
from trainable.recipe.models import SmpModel

LITE0, EFFICIENTNET = "tf_efficientnet_lite0.in1k", "efficientnet_b0.ra_in1k"
MACHINE = Hardware((Node(cpus=2, gpus=0),))


@pytest.fixture
def photographs(tmp_path: Path) -> Path:
    for number in range(32):
        write_image(tmp_path / "photographs" / "ab"[number % 2] / f"{number}.png", number * 7, (80, 70))
    return tmp_path / "photographs"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    import huggingface_hub

    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    (tmp_path / "weights").mkdir()
    save_file(timm.create_model("test_resnet").state_dict(), tmp_path / "weights" / "test_resnet.safetensors")
    return tmp_path / "weights"


def put(hub: Path, name: str) -> None:
    """Put something into the cache where a network's weights would be."""
    folder = hub / f"models--timm--{name}"
    (folder / "snapshots" / "abc").mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("abc")
    (folder / "snapshots" / "abc" / "model.safetensors").touch()


def study_of(data: Path | str, **values: Any) -> Study:
    written = {path.replace("__", "."): value for path, value in values.items()}
    return Study.from_tree({"data": {"path": str(data)}}).with_values(written)


def test_photographs_start_from_the_first_network_at_hand(hub: Path, photographs: Path) -> None:
    study = study_of(photographs)
    put(hub, EFFICIENTNET)
    assert find_start(study, ON_CPU) == Start(70, Backbone(name=EFFICIENTNET))
    put(hub, LITE0)
    found = find_start(study, ON_CPU)
    assert found == Start(70, Backbone(name=LITE0))
    model = found.recipe(study).model
    assert (model.kind, model.weights) == ("timm", "default")
    assert found.written_in(study).base_recipe().model == model
    assert found.written_in(study).space.name == "finetune"


def test_without_weights_trials_start_from_scratch_and_a_line_says_what_would_help(
    hub: Path, photographs: Path
) -> None:
    study = study_of(photographs)
    found = find_start(study, ON_CPU)
    assert found.backbone is None
    assert f"{photographs} --download` fetches those of {LITE0}" in found.hint
    assert found.recipe(study) == study.base_recipe()
    assert find_start(study, Bench(device_name="cpu", may_fetch=True)).backbone == Backbone(name=LITE0)
    assert find_start(study, Bench(device_name="cuda", may_fetch=True)).backbone == Backbone(
        name="convnext_tiny.in12k_ft_in1k"
    )
    put(hub, LITE0)
    assert "every machine" in find_start(study, ON_CPU, cluster=True).hint


@pytest.mark.parametrize(
    "named",
    [
        {"base__model": {"kind": "torchvision", "name": "resnet18"}},
        {"base__model": {"weights": None}},
        {"base__model": {"width": 8}},
        {"space__overrides": {"model.width": {"choice": [8, 16]}}},
    ],
)
def test_a_study_that_names_its_network_or_no_weights_is_left_alone(
    hub: Path, photographs: Path, named: dict[str, Any]
) -> None:
    put(hub, LITE0)
    assert find_start(study_of(photographs, **named), ON_CPU) == Start()


@pytest.mark.parametrize("size", [None, 32])
def test_small_images_start_from_scratch(hub: Path, photographs: Path, size: int | None) -> None:
    put(hub, LITE0)
    study = study_of("digits") if size is None else study_of(photographs, data__image_size=size)
    found = find_start(study, ON_CPU)
    assert (found.backbone, found.hint) == (None, "")
    assert found.stored_side == (8 if size is None else 70)


def test_weights_that_are_not_there_are_refused(photographs: Path, tmp_path: Path) -> None:
    study = study_of(photographs, base__model={"weights": str(tmp_path / "mine.safetensors")})
    with pytest.raises(StudyError, match=r"no such file or folder: .*null .* trains from scratch"):
        find_start(study, ON_CPU)


def test_weights_called_after_no_network_are_those_of_the_study_s_own(
    photographs: Path, tmp_path: Path
) -> None:
    for name, said in (("mine", True), ("model", False)):
        (tmp_path / f"{name}.safetensors").touch()
        study = study_of(photographs, base__model={"weights": str(tmp_path / f"{name}.safetensors")})
        found = find_start(study, ON_CPU)
        assert found.recipe(study) == study.base_recipe()
        assert ("mine.safetensors is called after no network of timm's" in found.hint) == said


def test_other_fields_of_the_model_leave_its_network_open(hub: Path, photographs: Path) -> None:
    put(hub, LITE0)
    study = study_of(photographs, base__model={"dropout": 0.1})
    recipe = find_start(study, ON_CPU).recipe(study)
    assert (recipe.get("model.name"), recipe.model.dropout) == (LITE0, 0.1)


@pytest.mark.slow("measures networks")
def test_a_search_and_its_resume_start_from_weights_in_a_folder(
    photographs: Path, weights: Path, tmp_path: Path
) -> None:
    study = study_of(photographs, base__model={"weights": str(weights)}, storage=str(tmp_path)).resolved("s")
    home = Home.of(study)
    home.folder.mkdir()
    first = decide(load(study, home, MACHINE))
    assert first.facts.backbone == Backbone(name="test_resnet", weights=str(weights))
    assert first.facts.pretrained
    assert space_name(study, first.facts) == "finetune"
    assert first.space.base.model.weights == str(weights)
    assert "model.freeze_norm" in {each.path for each in first.space.dimensions}
    rule = {each.path: each for each in first.space.rule_values}["model.name"]
    assert (rule.value, rule.reason) == ("test_resnet", "your weights")
    write_facts(first)
    study.write(home.folder)
    again = prepare_again(study, Search(home.folder), MACHINE)
    assert again.data.info == first.data.info


@pytest.mark.slow("measures networks")
def test_weights_named_by_a_flag_are_explained(tunebook: Tunebook, photographs: Path, weights: Path) -> None:
    torch.manual_seed(0)
    code, out, err = tunebook("explain", photographs, "--set", f"base.model.weights={weights}")
    assert code == 0, err
    assert "test_resnet: your weights" in out
    assert "--weights none" in out
    assert "space finetune" in out
    code, out, err = tunebook("explain", photographs, "--set", "base.model.weights=none")
    assert code == 0, err
    assert "space document" in out


# --- segmentations ------------------------------------------------------------------------------------


@pytest.fixture
def masks(tmp_path: Path) -> Path:
    return write_masks(tmp_path / "masks", sizes=((200, 150),))


def masks_study(data: Path, **values: Any) -> Study:
    task = {"kind": "segmentation", "masks": {"classes": str(data / "classes.txt")}}
    return study_of(data, **{"base__task": task, **values})


def test_large_images_with_masks_start_from_a_decoder_above_an_encoder_at_hand(
    hub: Path, masks: Path
) -> None:
    study = masks_study(masks)
    scratch = find_start(study, ON_CPU)
    assert (scratch.stored_side, scratch.backbone) == (150, None)
    assert "`tunebook search STUDY.yaml --download` fetches those of" in scratch.hint
    assert scratch.recipe(study).model.kind == "unet_small"
    put(hub, LITE0)
    found = find_start(study, ON_CPU)
    assert found.backbone == Backbone(name=LITE0)
    model = found.recipe(study).model
    assert isinstance(model, SmpModel)
    assert (model.name, model.encoder, model.weights) == ("unet", LITE0, "default")
    written = found.written_in(study)
    assert written.base_recipe().model == model
    assert written.space.name == "finetune"


@pytest.mark.parametrize("values", [{}, {"data__image_size": 48}])
def test_small_images_or_windows_with_masks_are_learnt_from_scratch(
    hub: Path, tmp_path: Path, values: dict[str, Any]
) -> None:
    put(hub, LITE0)
    size = (200, 200) if values else (128, 128)
    found = find_start(masks_study(write_masks(tmp_path, sizes=(size,)), **values), ON_CPU)
    assert (found.stored_side, found.backbone, found.hint) == (size[0], None, "")


def test_no_mask_is_read_for_the_start(masks: Path) -> None:
    """All are read when the data set is loaded, a moment later."""
    for mask in (masks / "masks").iterdir():
        mask.write_bytes(b"no picture")
    assert find_start(masks_study(masks), ON_CPU).stored_side == 150


def test_no_decoder_is_put_above_a_network_without_features_of_several_sizes() -> None:
    assert any(name.startswith("vit_") for name in candidates(gpu=True, task="classification"))
    assert not any(name.startswith("vit_") for name in candidates(gpu=True, task="segmentation"))


def test_weights_in_a_folder_are_those_of_an_encoder(masks: Path, weights: Path) -> None:
    study = masks_study(masks, base__model={"weights": str(weights)})
    model = find_start(study, ON_CPU).recipe(study).model
    assert isinstance(model, SmpModel)
    assert (model.encoder, model.weights) == ("test_resnet", str(weights))
