"""Weights from files and caches: what is loaded, what is left out, and what is refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from tests.trainable.small_runs import data_set, small_recipe
from trainable.bench import Bench
from trainable.errors import ModelError
from trainable.models.make import NetworkEnds, make_model
from trainable.models.published_weights import timm_weights
from trainable.models.weights import _without_content, file_digest, load_weights, looks_like, read_weights
from trainable.recipe import models as specs
from trainable.train import train

SMALL = specs.ResNetSmall(width=8)
MOBILE = specs.TorchvisionModel(name="mobilenet_v3_small", weights="default")
TINY = specs.TimmModel(name="test_vit", weights="default")


def make(spec: specs.Model, *, classes: int = 5, channels: int = 3, image_size: int = 32) -> nn.Module:
    return make_model(spec, NetworkEnds(classes=classes, channels=channels, image_size=image_size))


def state_of(spec: specs.Model, seed: int = 7, **options: int) -> dict[str, Tensor]:
    torch.manual_seed(seed)
    state: dict[str, Tensor] = make(spec.model_copy(update={"weights": None}), **options).state_dict()
    return {name: tensor + 0.5 if tensor.is_floating_point() else tensor for name, tensor in state.items()}


def saved(state: object, path: Path) -> str:
    if path.suffix == ".safetensors":
        save_file(state, path)  # type: ignore[arg-type]
    else:
        torch.save(state, path)
    return str(path)


def assert_body_is(model: nn.Module, state: dict[str, Tensor], head: str) -> None:
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, state[name]) != name.startswith(head), name


@pytest.mark.parametrize("name", ["weights.safetensors", "weights.pth"])
def test_a_file_gives_everything_but_the_head(tmp_path: Path, name: str) -> None:
    state = state_of(SMALL)
    spec = SMALL.model_copy(update={"weights": saved(state, tmp_path / name), "initialisation": "xavier"})
    assert_body_is(make(spec), state, head="head.")
    assert make(spec, classes=9).head.weight.shape == (9, 32)


@pytest.mark.parametrize("own", [specs.TimmModel, specs.TorchvisionModel])
def test_a_new_head_beside_loaded_weights_begins_small(
    tmp_path: Path, own: type[specs.TimmModel] | type[specs.TorchvisionModel]
) -> None:
    spec = own(name="efficientnet_b0")
    drawn = make(spec, classes=10)
    path = saved(drawn.state_dict(), tmp_path / "efficientnet_b0.safetensors")
    tuned = make(spec.model_copy(update={"weights": path}), classes=10)
    asked = make(spec.model_copy(update={"weights": path, "initialisation": "xavier"}), classes=10)
    widths = [each.state_dict()[head_weight(each)].abs().max().item() for each in (drawn, tuned, asked)]
    assert widths == pytest.approx([10**-0.5, 1280**-0.5, (6 / 1290) ** 0.5], rel=0.01)


def head_weight(model: nn.Module) -> str:
    """Return the name of the head's weight."""
    return [name for name, each in model.named_parameters() if each.ndim == 2][-1]


@pytest.mark.parametrize("key", ["state_dict", "model"])
@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "module._orig_mod."])
def test_wrappers_around_a_state_are_taken_off(tmp_path: Path, key: str, prefix: str) -> None:
    state = state_of(SMALL)
    wrapped = {key: {f"{prefix}{name}": each for name, each in state.items()}, "epoch": 3}
    read = read_weights(saved(wrapped, tmp_path / "checkpoint.pt"))
    assert read.keys() == state.keys()
    assert all(torch.equal(read[name], state[name]) for name in state)


def test_the_head_of_a_loaded_model_takes_the_initialisation(tmp_path: Path) -> None:
    path = saved(state_of(SMALL), tmp_path / "weights.pth")
    spec = SMALL.model_copy(update={"weights": path, "initialisation": "orthogonal"})
    head = make(spec).head
    torch.testing.assert_close(head.weight @ head.weight.T, torch.eye(5))
    assert not head.bias.any()


def test_the_first_convolution_answers_to_grey_as_it_did_to_grey_stored_in_colour(tmp_path: Path) -> None:
    state = state_of(SMALL)
    path = saved(state, tmp_path / "colour.safetensors")
    grey, colour = make(SMALL.model_copy(update={"weights": path}), channels=1), make(SMALL)
    load_weights(colour, state, source="test")
    images = torch.rand(2, 1, 8, 8)
    torch.testing.assert_close(grey.stem(images), colour.stem(images.repeat(1, 3, 1, 1)))


def test_files_older_than_the_counters_of_batch_norm_are_taken() -> None:
    state = {name: each for name, each in state_of(SMALL).items() if not name.endswith("num_batches_tracked")}
    load_weights(make(SMALL), state, source="test")


def test_densenets_old_names_are_todays(tmp_path: Path) -> None:
    path = saved({"features.denseblock1.denselayer1.norm.1.weight": torch.ones(1)}, tmp_path / "dense.pth")
    assert list(read_weights(path)) == ["features.denseblock1.denselayer1.norm1.weight"]


def test_every_mismatch_is_named_and_nothing_is_loaded() -> None:
    state, model = state_of(SMALL), make(SMALL)
    before = {name: each.clone() for name, each in model.state_dict().items()}
    del state["stem.weight"]
    state["stem_norm.weight"] = torch.ones(6)
    state |= {f"extra.{index}": torch.ones(1) for index in range(11)}
    with pytest.raises(ModelError) as caught:
        load_weights(model, state, source="a file")
    message = str(caught.value)
    assert message.startswith("model.weights: a file does not fit")
    assert "1 missing: stem.weight" in message
    assert "stem_norm.weight (expected (8,), got (6,))" in message
    assert "11 unexpected: extra.0, extra.1 and 9 more" in message
    assert len(message.splitlines()) == 3
    assert all(torch.equal(each, before[name]) for name, each in model.state_dict().items())


@pytest.mark.parametrize(
    ("library", "name"),
    [("timm", "tf_efficientnet_lite0"), ("timm", "resnet34"), ("torchvision", "mobilenet_v3_small")],
)
@pytest.mark.slow("builds large networks, on paper")
def test_weights_of_another_network_are_said_to_be_its(library: str, name: str) -> None:
    state = _without_content(library, name).state_dict()
    assert looks_like(state) == f"{library}'s {name}"
    with pytest.raises(ModelError) as caught:
        load_weights(make(SMALL), state, source="a file")
    assert f"a file does not fit the network:\n  these look like {library}'s {name}\n" in str(caught.value)


def test_weights_of_no_known_network_look_like_none() -> None:
    assert looks_like(state_of(SMALL)) == ""


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return print, ("run",)


@pytest.mark.parametrize("content", [b"", b"neither", {"a": 1}, [torch.ones(1)], {"model": Evil()}])
def test_what_is_no_weights_is_refused_with_its_path(
    tmp_path: Path, content: object, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "odd.pth"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        torch.save(content, path)
    with pytest.raises(ModelError, match=r"model\.weights: .*odd\.pth"):
        read_weights(path)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("name", ["absent.pth", "broken.safetensors"])
def test_a_missing_or_broken_file_is_refused_with_its_path(tmp_path: Path, name: str) -> None:
    (tmp_path / "broken.safetensors").write_bytes(b"\x08")
    with pytest.raises(ModelError, match=name.replace(".", r"\.")):
        make(SMALL.model_copy(update={"weights": str(tmp_path / name)}))


@pytest.mark.parametrize("spec", [MOBILE, TINY], ids=["torchvision", "timm"])
def test_published_weights_are_not_fetched_unasked(
    caches: Path, monkeypatch: pytest.MonkeyPatch, spec: specs.Model
) -> None:
    with pytest.raises(ModelError, match=r"--download"):
        make(spec)
    assert list(caches.iterdir()) == []


def test_published_weights_in_torchs_cache_need_no_leave(caches: Path) -> None:
    state = state_of(MOBILE, classes=1000)
    cache = caches / "torch" / "hub" / "checkpoints"
    cache.mkdir(parents=True)
    saved(state, cache / "mobilenet_v3_small-047dcff4.pth")
    model = make(MOBILE)
    assert torch.equal(model.features[0][0].weight, state["features.0.0.weight"])
    assert torch.equal(model.classifier[0].bias, state["classifier.0.bias"])
    assert model.classifier[3].out_features == 5


@pytest.mark.parametrize("channels", [1, 3])
def test_published_weights_in_timms_cache_need_no_leave(caches: Path, channels: int) -> None:
    state = state_of(TINY, classes=1000, image_size=160)
    folder = caches / "hub" / "models--timm--test_vit.r160_in1k"
    (folder / "snapshots" / "abc").mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("abc")
    saved(state, folder / "snapshots" / "abc" / "model.safetensors")
    model = make(TINY, image_size=160, channels=channels)
    assert torch.equal(model.blocks[0].norm1.weight, state["blocks.0.norm1.weight"])
    stem = state["patch_embed.proj.weight"]
    expected = stem.sum(1, keepdim=True) if channels == 1 else stem
    torch.testing.assert_close(model.patch_embed.proj.weight, expected)
    assert model.head.out_features == 5


def test_a_files_embeddings_of_positions_are_resampled_as_timm_does(tmp_path: Path) -> None:
    torch.manual_seed(3)
    state = timm.create_model("test_vit", num_classes=7).state_dict()
    path = saved(state, tmp_path / "test_vit.safetensors")
    model = make(TINY.model_copy(update={"weights": path}), image_size=96)
    overlay = {"file": path, "num_classes": 7}
    by_timm = timm.create_model(
        "test_vit", pretrained=True, pretrained_cfg_overlay=overlay, num_classes=5, img_size=96
    )
    assert_body_is(model, by_timm.state_dict(), head="head.")


def test_a_network_without_published_weights_says_so() -> None:
    spec = specs.TimmModel(name="coatnet_0_224", weights="default")
    with pytest.raises(ModelError, match="no published weights of timm's coatnet_0_224"):
        timm_weights(spec, channels=3, classes=5, image_size=224, may_fetch=True)


def test_other_weights_than_the_recipe_began_from_are_told(tmp_path: Path) -> None:
    first = train(small_recipe({"loop.epochs": 1}), data=data_set(), out=tmp_path / "first")
    weights = tmp_path / "first" / "model.safetensors"
    recipe = small_recipe({"loop.epochs": 1, "model.weights": str(weights)})
    tuned = train(recipe, data=data_set())
    lines: list[str] = []
    train(tuned.recipe, data=data_set(), bench=Bench(say=lines.append))
    assert not any("weights" in line for line in lines)
    train(small_recipe({"loop.epochs": 1, "loop.seed": 5}), data=data_set(), out=tmp_path / "first")
    train(tuned.recipe, data=data_set(), bench=Bench(say=lines.append))
    assert any(line.startswith("model.weights: ") for line in lines)
    assert first.recipe.provenance is not None
    assert first.recipe.provenance.weights_digest is None


def test_weights_that_are_replaced_while_a_run_trains_are_named_as_it_began_from_them(tmp_path: Path) -> None:
    train(small_recipe({"loop.epochs": 1}), data=data_set(), out=tmp_path / "first")
    weights = tmp_path / "first" / "model.safetensors"
    before = file_digest(weights)

    def replace_weights(line: str) -> None:
        if line.startswith("epoch 1/"):
            weights.write_bytes(b"others")

    tuned = train(
        small_recipe({"loop.epochs": 1, "model.weights": str(weights)}),
        data=data_set(),
        bench=Bench(say=replace_weights),
    )
    assert file_digest(weights) != before
    assert tuned.recipe.provenance is not None
    assert tuned.recipe.provenance.weights_digest == before


def test_a_network_that_is_given_has_no_digest_of_the_recipes_weights(tmp_path: Path, caches: Path) -> None:
    hub = {"model.kind": "timm", "model.name": "hf-hub:me/mine", "model.weights": "default"}
    recipe = small_recipe({"loop.epochs": 1}).with_values(hub)
    network = make_model(small_recipe().model, NetworkEnds(classes=3, channels=1, image_size=8))
    outcome = train(recipe, model=network, data=data_set(), out=tmp_path / "out")
    assert outcome.recipe.provenance is not None
    assert outcome.recipe.provenance.weights_digest is None


def test_a_run_that_cannot_begin_leaves_no_folder(tmp_path: Path) -> None:
    recipe = small_recipe({"model.weights": str(tmp_path / "none.safetensors")})
    with pytest.raises(ModelError, match=r"none\.safetensors: there is none"):
        train(recipe, data=data_set(), out=tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_told_from_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="folder"):
        read_weights(tmp_path)
