"""Which library a bare name means, and what is offered for one that none has."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from trainable.errors import ModelError
from trainable.models.network_names import also_in, check_name, model_named, read_named_recipe, with_library
from trainable.recipe.tasks import CLASSIFICATION, Segmentation

LITE = "tf_efficientnet_lite0"


@pytest.mark.parametrize(
    ("name", "section"),
    [
        ("resnet_small", {"kind": "resnet_small"}),
        (LITE, {"kind": "timm", "name": LITE}),
        ("resnet50.a1_in1k", {"kind": "timm", "name": "resnet50.a1_in1k"}),
        ("resnet18", {"kind": "torchvision", "name": "resnet18"}),  # as the documents say
        ("timm/resnet18", {"kind": "timm", "name": "resnet18"}),
        ("torchvision/resnet18", {"kind": "torchvision", "name": "resnet18"}),
        ("hf-hub:somebody/net", {"kind": "timm", "name": "hf-hub:somebody/net"}),
        ("smp/fpn/resnet18", {"kind": "smp", "name": "fpn", "encoder": "resnet18"}),
    ],
)
def test_a_bare_name_means_the_library_that_has_it(name: str, section: dict[str, str]) -> None:
    assert model_named(name) == section


def test_a_name_that_two_libraries_have_says_how_the_other_is_named() -> None:
    assert also_in("resnet18") == "resnet18 is torchvision's; timm/resnet18 names timm's"
    assert also_in(LITE) == also_in("resnet_small") == ""


@pytest.mark.parametrize(
    ("kind", "name", "says"),
    [
        ("torchvision", LITE, f"torchvision has no classification network '{LITE}'; expected timm/{LITE}"),
        ("timm", "resnet_smal", "did you mean resnet_small, "),
        ("timm", "resnet18.none_such", "timm's resnet18 has no weights 'none_such'; it has a1_in1k, "),
        ("timm", "zzz", "expected resnet_small, torchvision/NAME, timm/NAME or smp/DECODER/ENCODER"),
    ],
)
def test_a_name_that_a_library_lacks_is_refused_with_who_has_it(kind: str, name: str, says: str) -> None:
    with pytest.raises(ModelError) as refused:
        check_name(kind, name)
    assert says in str(refused.value)


def test_a_misspelling_is_answered_with_close_names_of_every_library() -> None:
    with pytest.raises(ModelError, match=r"did you mean .*timm/tf_efficientnet_lite0"):
        model_named("tf_efficientnet_lite00", CLASSIFICATION)


def test_with_masks_an_encoder_is_offered_below_a_decoder() -> None:
    with pytest.raises(ModelError, match="smp/unet/resnet18"):
        model_named("resnet18", Segmentation())
    assert model_named("fcn_resnet50", Segmentation())["kind"] == "torchvision"


def test_a_section_without_a_kind_gets_its_librarys() -> None:
    assert with_library({"name": LITE, "weights": None}) == {"kind": "timm", "name": LITE, "weights": None}
    assert with_library({"name": "fpn", "encoder": "resnet18"}, "segmentation")["kind"] == "smp"
    assert with_library({"name": "resnet_small"}) == {"kind": "resnet_small"}
    own = {"kind": "own", "name": "Net"}
    assert with_library(own) == own


def test_a_recipe_may_name_its_network_alone(tmp_path: Path) -> None:
    file = tmp_path / "recipe.yaml"
    file.write_text(f"model:\n  name: {LITE}\n  layer_rates: {{kind: decayed}}\n")
    recipe = read_named_recipe(file)
    assert (recipe.model.kind, recipe.get("model.name")) == ("timm", LITE)
    assert recipe.model.layer_rates.kind == "decayed"


@pytest.mark.slow("two processes, one of which imports torch and timm")
def test_names_that_were_found_before_are_looked_up_without_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    code = f"""
import sys
from trainable.models.network_names import model_named
print(model_named({LITE!r})['kind'], 'torch' in sys.modules)
"""
    for expected in ("timm True\n", "timm False\n"):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout == expected
