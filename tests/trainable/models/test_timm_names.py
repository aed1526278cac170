"""timm's names: with the tag of weights, of folders, and of the Hub, found without asking a server."""

from __future__ import annotations

import json
from pathlib import Path

import huggingface_hub.constants
import pytest
import timm
import torch
from safetensors.torch import save_file

from trainable.bench import Bench
from trainable.errors import ModelError
from trainable.models.make import NetworkEnds, make_model
from trainable.models.pretrained_input import pretrained_input
from trainable.models.weights import weights_digest
from trainable.recipe import models as specs

STATISTICS = {"mean": [0.1, 0.2, 0.3], "std": [0.4, 0.5, 0.6], "input_size": [3, 64, 64]}


def saved(folder: Path, *, weights: bool = True, seed: int = 3) -> dict[str, torch.Tensor]:
    """Write a network as timm writes one for the Hub, and return its weights."""
    folder.mkdir(parents=True, exist_ok=True)
    configuration = {
        "architecture": "test_resnet",
        "num_classes": 7,
        "pretrained_cfg": {**STATISTICS, "interpolation": "bicubic", "num_classes": 7, "classifier": "fc"},
    }
    (folder / "config.json").write_text(json.dumps(configuration))
    torch.manual_seed(seed)
    state: dict[str, torch.Tensor] = timm.create_model("test_resnet", num_classes=7).state_dict()
    if weights:
        save_file(state, folder / "model.safetensors")
    return state


@pytest.fixture
def hub(caches: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty cache of the Hub, in a process that may not ask it."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    return caches / "hub"


def cached(hub: Path, repository: str, revision: str = "main") -> Path:
    """Return the folder in which the Hub's cache has a repository's files."""
    folder = hub / f"models--{repository.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / revision).write_text("abc")
    return folder / "snapshots" / "abc"


def body_of(name: str, weights: str | None = "default", *, download: bool = False) -> torch.Tensor:
    spec = specs.TimmModel(name=name, weights=weights)
    model = make_model(
        spec, NetworkEnds(classes=5, channels=3, image_size=64), bench=Bench(may_fetch=download)
    )
    assert model.fc.out_features == 5
    weight: torch.Tensor = model.conv1[0].weight
    return weight


def test_a_folder_gives_its_weights_and_the_images_that_they_know(tmp_path: Path) -> None:
    state = saved(tmp_path / "mine")
    name = f"local-dir:{tmp_path / 'mine'}"
    assert torch.equal(body_of(name), state["conv1.0.weight"])
    known = pretrained_input(specs.TimmModel(name=name, weights="default"))
    assert known is not None
    assert (known.mean, known.std, known.side) == ((0.1, 0.2, 0.3), (0.4, 0.5, 0.6), 64)
    assert known.interpolation == "bicubic"


def test_a_network_of_the_hub_is_found_in_the_cache(hub: Path) -> None:
    state = saved(cached(hub, "someone/birds"))
    assert torch.equal(body_of("hf-hub:someone/birds"), state["conv1.0.weight"])
    assert body_of("hf-hub:someone/birds", weights=None).shape == state["conv1.0.weight"].shape


def test_a_network_of_the_hub_has_revisions(hub: Path) -> None:
    state = saved(cached(hub, "someone/birds", "v2"))
    assert torch.equal(body_of("hf-hub:someone/birds@v2"), state["conv1.0.weight"])
    with pytest.raises(ModelError, match="hf-hub:someone/birds is not on this machine: add --download"):
        body_of("hf-hub:someone/birds")


def test_nothing_is_asked_of_the_hub_without_leave(hub: Path) -> None:
    with pytest.raises(ModelError, match=r"model\.name: hf-hub:someone/birds is not on this machine"):
        body_of("hf-hub:someone/birds")
    assert not hub.exists()


def test_a_network_of_the_hub_that_cannot_be_fetched_is_one_message(hub: Path) -> None:
    with pytest.raises(ModelError, match=r"model\.name: hf-hub:someone/birds cannot be fetched: "):
        body_of("hf-hub:someone/birds", download=True)


def test_a_tag_chooses_the_weights(hub: Path) -> None:
    folder = cached(hub, "timm/resnet18.tv_in1k")
    folder.mkdir(parents=True)
    torch.manual_seed(1)
    state = timm.create_model("resnet18", num_classes=1000).state_dict()
    save_file(state, folder / "model.safetensors")
    spec = specs.TimmModel(name="resnet18.tv_in1k", weights="default")
    model = make_model(spec, NetworkEnds(classes=5, channels=3, image_size=64))
    assert torch.equal(model.state_dict()["conv1.weight"], state["conv1.weight"])
    with pytest.raises(ModelError, match=r"timm's resnet18 are not on this machine"):
        make_model(
            specs.TimmModel(name="resnet18", weights="default"),
            NetworkEnds(classes=5, channels=3, image_size=64),
        )


def test_an_unknown_tag_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ModelError, match=r"timm's resnet18 has no weights 'mine'; it has a1_in1k, a2_in1k"):
        body_of("resnet18.mine")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "cannot be read"),
        ("{", "cannot be read"),
        ("[]", "expected a mapping, got list"),
        ('{"architecture": "mine"}', "expected `architecture` to be a model of timm's, got 'mine'"),
    ],
)
def test_a_folder_that_holds_no_network_is_one_message(
    tmp_path: Path, content: str | None, problem: str
) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(ModelError, match=rf"model\.name: .*{problem}"):
        body_of(f"local-dir:{tmp_path}")


@pytest.mark.parametrize(
    ("folder", "fault"),
    [
        ("mine", r"expected one of model\.safetensors, .* in .*mine, found none"),
        ("snapshots/abc", "found none; add --download to `tunebook check` to fetch one"),
    ],
)
def test_a_folder_or_a_copy_of_the_hubs_without_weights_says_what_it_lacks(
    tmp_path: Path, folder: str, fault: str
) -> None:
    saved(tmp_path / folder, weights=False)
    with pytest.raises(ModelError, match=fault):
        body_of(f"local-dir:{tmp_path / folder}")


def test_the_weights_of_a_folder_have_a_digest_which_follows_the_file(tmp_path: Path) -> None:
    saved(tmp_path)
    spec = specs.TimmModel(name=f"local-dir:{tmp_path}", weights="default")
    first = weights_digest(spec)
    saved(tmp_path, seed=1)
    assert None not in (first, weights_digest(spec))
    assert weights_digest(spec) != first
    assert weights_digest(spec.model_copy(update={"name": "test_resnet"})) is None


def test_torchvisions_name_of_weights_is_refused_for_timm() -> None:
    with pytest.raises(ModelError, match=r"write its tag behind model\.name"):
        body_of("resnet18", weights="IMAGENET1K_V1")
