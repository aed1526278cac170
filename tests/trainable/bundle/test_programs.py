"""Tests exported programs: the same answers as a run's, for any images, from files that say what they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor, nn

from tests.full_disk import files_of_at_most
from tests.trainable.bundle.trained_networks import DIGITS, untrained
from tests.trainable.small_runs import probabilities
from trainable.bundle.programs import (
    ABOUT,
    ExportError,
    answer_of_onnx,
    answer_of_pt2,
    export_program,
    write_onnx,
    write_pt2,
)
from trainable.bundle.trained import Trained, in_fp32
from trainable.data import ArrayPart
from trainable.run import make_run

VIEWS: dict[str, Any] = {
    "data.flips": ["horizontal"],
    "evaluation.flip": True,
    "evaluation.scales": [1.0, 1.5],
}
CROP: dict[str, Any] = {"evaluation.resize.kind": "center_crop", "evaluation.resize.ratio": 0.9}
COLOUR: dict[str, Any] = {"data.channels": 3, "data.image_size": 32, "data.interpolation": "bicubic"}
FAMILIES: dict[str, dict[str, Any]] = {
    "ours, with views": {**DIGITS, **VIEWS},
    "torchvision": {**COLOUR, "model.kind": "torchvision", "model.name": "resnet18"},
    "timm's convolutions": {**COLOUR, **CROP, **VIEWS, "model.kind": "timm", "model.name": "test_resnet"},
    "timm's transformer": {**CROP, "data.image_size": 32, "model.kind": "timm", "model.name": "test_vit"},
}


def probabilities_of_run(trained: Trained) -> Tensor:
    run = make_run(in_fp32(trained.recipe), data=trained.data, model=trained.network())
    found = probabilities(run, "test")
    run.close()
    return found


@pytest.mark.slow("exports networks")
@pytest.mark.parametrize(
    "family",
    [
        pytest.param(each, marks=() if each.startswith("ours") else pytest.mark.integration)
        for each in FAMILIES
    ],
)
def test_both_files_answer_as_a_run_does_and_each_as_the_other_for_images_of_any_size(
    family: str, tmp_path: Path
) -> None:
    trained = untrained(FAMILIES[family])
    classifier = trained.exporter.module(trained.network())
    program = export_program(trained.exporter, trained.network())
    write_pt2(program, tmp_path / "model.pt2", {})
    write_onnx(program, tmp_path / "model.onnx", {}, "probabilities")
    assert isinstance(trained.data.test, ArrayPart)
    squares = np.ascontiguousarray(np.moveaxis(trained.data.test.images, 1, -1))
    expected = probabilities_of_run(trained)
    random = np.random.default_rng(0)
    channels = trained.data.info.channels
    sizes = [(1, 1, 1), (1, 40, 33), (3, 90, 375)]
    others = [random.integers(0, 256, (*size, channels), dtype=np.uint8) for size in sizes]
    for answer in (answer_of_pt2(tmp_path / "model.pt2"), answer_of_onnx(tmp_path / "model.onnx")):
        if trained.recipe.evaluation.resize.kind == "stretch":  # else the run's squares are cropped already
            torch.testing.assert_close(torch.from_numpy(answer(squares)), expected, rtol=0, atol=1e-4)
        for images in others:
            found = classifier(torch.from_numpy(images))
            torch.testing.assert_close(torch.from_numpy(answer(images)), found, rtol=0, atol=2e-3)


@pytest.mark.slow("exports networks")
def test_files_say_what_they_take_and_name_no_file_of_this_machine(tmp_path: Path) -> None:
    trained = untrained()
    program = export_program(trained.exporter, trained.network())
    write_pt2(program, tmp_path / "model.pt2", {"classes": ["a"]})
    write_onnx(program, tmp_path / "model.onnx", {"classes": ["a"]}, "probabilities")
    model = onnx.load(tmp_path / "model.onnx")
    (images,), (answer,) = model.graph.input, model.graph.output
    axes = [axis.dim_param or axis.dim_value for axis in images.type.tensor_type.shape.dim]
    assert (images.name, axes) == ("images", ["batch", "height", "width", 1])
    assert images.type.tensor_type.elem_type == onnx.TensorProto.UINT8
    assert [axis.dim_param or axis.dim_value for axis in answer.type.tensor_type.shape.dim] == ["batch", 10]
    assert {each.key: json.loads(each.value) for each in model.metadata_props} == {ABOUT: {"classes": ["a"]}}
    extra = {ABOUT: ""}
    torch.export.load(tmp_path / "model.pt2", extra_files=extra)
    assert json.loads(extra[ABOUT]) == {"classes": ["a"]}
    for file in ("model.pt2", "model.onnx"):
        assert b"trainable/" not in (tmp_path / file).read_bytes()


class Deciding(nn.Module):
    """A network that looks at the numbers themselves, which no exported graph can."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.head = nn.Linear(64, classes)

    def forward(self, images: Tensor) -> Tensor:
        flat = images.flatten(1)
        logits: Tensor = self.head(flat if flat.mean().item() > 0.0 else -flat)
        return logits


@pytest.mark.slow("exports networks")
def test_a_network_of_your_own_is_exported_and_one_that_cannot_be_is_one_message() -> None:
    own = {"model.kind": "own", "model.name": "build"}
    plain = untrained(own, lambda classes: nn.Sequential(nn.Flatten(), nn.Linear(64, classes)))
    export_program(plain.exporter, plain.network())
    deciding = untrained(own, Deciding)
    with pytest.raises(
        ExportError, match=r"^model\.pt2: torch\.export cannot trace this network: "
    ) as raised:
        export_program(deciding.exporter, deciding.network())
    assert raised.value.exit_code == 1


def test_a_disk_that_takes_no_more_is_an_error_of_the_system_and_leaves_no_file(tmp_path: Path) -> None:
    program = torch.export.export(nn.Linear(40, 40), (torch.zeros(2, 40),))
    for size in (0, 100, 5_000, 7_000):
        with files_of_at_most(size), pytest.raises(OSError, match="File too large"):
            write_pt2(program, tmp_path / "model.pt2", {"name": "x"})
    assert not list(tmp_path.iterdir())
    write_pt2(program, tmp_path / "model.pt2", {"name": "x"})
    assert (tmp_path / "model.pt2").stat().st_size > 7_000
