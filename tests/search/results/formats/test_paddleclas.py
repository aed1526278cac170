"""Tests that the sections are those of PaddleClas' own configurations, with the recipe's numbers."""

from __future__ import annotations

from typing import Any

import pytest

from search.results.formats.paddleclas import paddleclas_sheet
from tests.search.results.formats.test_every_field import KINDS
from tests.search.results.formats.winners import recipe_of, winner_of

OPERATIONS = {  # of ppcls/data/preprocess of PaddleClas 2.6
    *("DecodeImage", "ResizeImage", "CropImage", "RandCropImage", "RandCropImageV2", "RandFlipImage", "Pad"),
    *("NormalizeImage", "RandAugment", "AutoAugment", "RandomErasing"),
}
SECTIONS = {"Global", "AMP", "EMA", "Arch", "Loss", "Optimizer", "DataLoader", "Metric"}


def given(**values: Any) -> dict[str, Any]:
    return paddleclas_sheet(winner_of(recipe_of(**values), images="parts")).arguments


@pytest.mark.parametrize("kinds", KINDS, ids=str)
def test_every_section_and_operation_is_known_to_paddleclas(kinds: dict[str, Any]) -> None:
    found = given(**{path.replace(".", "__"): value for path, value in kinds.items()})
    assert found.keys() <= SECTIONS
    for part in found["DataLoader"].values():
        assert {name for each in part["dataset"]["transform_ops"] for name in each} <= OPERATIONS
        assert part.keys() == {"dataset", "sampler", "loader"}


def test_the_rate_and_the_decay_are_the_recipe_s() -> None:
    found = given(optimizer__lr=0.2, loop__batch_size=64, schedule__final_factor=0.1)["Optimizer"]
    assert found["name"] == "Momentum"
    assert found["lr"] == {"name": "Cosine", "eta_min": pytest.approx(0.005), "learning_rate": 0.05}
    assert found["regularizer"] == {"name": "L2", "coeff": 1e-4}
    assert found["one_dim_param_no_weight_decay"]
    assert found["no_weight_decay_name"], "without a name PaddleClas' Momentum does not look at vectors"


def test_the_parts_are_the_lists_that_are_written_beside_the_images() -> None:
    train, score = given()["DataLoader"].values()
    assert train["dataset"]["cls_label_path"] == "parts/train_list.txt"
    assert score["dataset"]["cls_label_path"] == "parts/val_list.txt"
    assert train["sampler"]["drop_last"]
    assert not score["sampler"]["drop_last"]


def test_a_batch_in_parts_is_accumulated() -> None:
    found = given(loop__batch_size=96, loop__micro_batch=24)
    assert found["Global"]["update_freq"] * found["DataLoader"]["Train"]["sampler"]["batch_size"] == 96


def test_a_network_that_paddleclas_has_is_named_as_there() -> None:
    assert given(model__kind="torchvision", model__name="resnet50")["Arch"]["name"] == "ResNet50"
    unknown = paddleclas_sheet(winner_of(recipe_of()))
    assert any(each.path == "model" for each in unknown.unsaid)
