"""Tests files of weights that would spoil a run in silence, or take all memory: the tensor is named."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from trainable.errors import ModelError
from trainable.models.weights import read_weights

NAN, INFINITE = torch.tensor([1.0, float("nan")]), torch.tensor([float("inf")])


@pytest.mark.parametrize("name", ["weights.safetensors", "weights.pth"])
@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (NAN, "stem.weight holds numbers that are not finite"),
        (INFINITE.to(torch.bfloat16), "stem.weight holds numbers that are not finite"),
        (torch.ones(2, dtype=torch.complex64), "stem.weight is torch.complex64, expected real numbers"),
        (torch.ones(2).to(torch.float8_e4m3fn), "stem.weight is torch.float8_e4m3fn, expected real numbers"),
    ],
)
def test_numbers_that_cannot_be_weights_are_named(
    tmp_path: Path, name: str, tensor: Tensor, message: str
) -> None:
    state, file = {"head.bias": torch.ones(3), "stem.weight": tensor}, tmp_path / name
    save_file(state, file) if file.suffix == ".safetensors" else torch.save(state, file)
    with pytest.raises(ModelError, match=rf"{name}: {message}$"):
        read_weights(file)


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (torch.eye(3).to_sparse(), "is sparse, quantised or without content"),
        (torch.empty(3, device="meta"), "is sparse, quantised or without content"),
        (torch.ones(1).expand(2**40), "says 1,099,511,627,776 numbers, and the file holds fewer"),
    ],
)
@pytest.mark.filterwarnings("ignore:Sparse invariant checks", "ignore:Validating sparse")
def test_what_torch_can_save_and_no_network_can_load_is_named(
    tmp_path: Path, tensor: Tensor, message: str
) -> None:
    torch.save({"stem.weight": tensor}, tmp_path / "weights.pth")
    with pytest.raises(ModelError, match=f"stem.weight {message}"):
        read_weights(tmp_path / "weights.pth")


def test_a_compressed_file_that_would_unpack_to_more_than_the_memory_is_refused(tmp_path: Path) -> None:
    saved, bomb = io.BytesIO(), tmp_path / "weights.pth"
    torch.save({"stem.weight": torch.zeros(1000)}, saved)
    with zipfile.ZipFile(saved) as file, zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as out:
        for name in file.namelist():
            out.writestr(name, file.read(name))
        for each in out.infolist():
            each.file_size = max(each.file_size, 2**40 * ("data/0" in each.filename))
    with pytest.raises(
        ModelError, match=r"weights\.pth cannot be read: it unpacks to 1,099,511,62\d,\d+ bytes"
    ):
        read_weights(bomb)


@pytest.mark.timeout(60)
def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "weights.pth")
    with pytest.raises(ModelError, match="is no regular file"):
        read_weights(tmp_path / "weights.pth")


def test_an_unknown_users_home_holds_no_weights() -> None:
    with pytest.raises(ModelError, match=r"~nobody-of-this-name/weights\.pth: there is none"):
        read_weights("~nobody-of-this-name/weights.pth")
