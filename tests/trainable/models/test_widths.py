"""Tests that a narrower network is made again from its file, and that one that does not fit is refused."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import nn

from trainable.errors import ModelError
from trainable.models.widths import Widths, make_narrow, read_widths, widths_between
from trainable.recipe.trained_files import PRUNED_FILE


def net(width: int, norm: int = 8) -> nn.Sequential:
    layers = [nn.Conv2d(1, width, 3), nn.BatchNorm2d(width), nn.Conv2d(width, norm, 1), nn.GroupNorm(2, norm)]
    return nn.Sequential(*layers)


def test_a_narrow_network_is_made_again_from_its_widths_and_weights() -> None:
    whole, narrow = net(6), net(4)
    widths = widths_between(whole, narrow)
    assert set(widths.layers) == {"0", "1", "2"}
    again = copy.deepcopy(whole)
    make_narrow(again, widths)
    again.load_state_dict(narrow.state_dict())
    images = torch.randn(2, 1, 8, 8)
    assert torch.equal(again.eval()(images), narrow.eval()(images))
    assert repr(again) == repr(narrow)
    assert all(each.requires_grad for each in again.parameters())


def test_what_is_kept_of_each_tensor_are_its_first_numbers() -> None:
    whole, again = net(6), net(6)
    again.load_state_dict(whole.state_dict())
    make_narrow(again, widths_between(whole, net(4)))
    before, after = whole.state_dict(), again.state_dict()
    assert torch.equal(after["2.weight"], before["2.weight"][:, :4])
    assert torch.equal(after["1.running_var"], before["1.running_var"][:4])


def test_a_file_says_what_was_written(tmp_path: Path) -> None:
    assert read_widths(tmp_path) is None
    widths = widths_between(net(6), net(4))
    (tmp_path / PRUNED_FILE).write_bytes(widths.content())
    assert read_widths(tmp_path) == widths


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "Invalid JSON"),
        ('{"layers": {}, "shapes": {}, "more": 1}', "more: unknown key"),
        ('{"layers": {"0": {"__class__": 3}}, "shapes": {}}', "__class__"),
        ('{"layers": {"0": {"out_channels": 0}}, "shapes": {}}', "greater than or equal to 1"),
        ('{"version": 2, "layers": {}, "shapes": {}}', "version"),
    ],
)
def test_a_faulty_file_is_one_message_that_names_it(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / PRUNED_FILE).write_text(content)
    with pytest.raises(ModelError, match=message) as raised:
        read_widths(tmp_path)
    assert str(raised.value).startswith(str(tmp_path / PRUNED_FILE))


def test_a_folder_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / PRUNED_FILE).mkdir()
    with pytest.raises(ModelError, match="cannot be read"):
        read_widths(tmp_path)


@pytest.mark.parametrize(
    ("widths", "message"),
    [
        (Widths(layers={"9": {"out_channels": 1}}, shapes={}), "'9': the recipe's network has no such layer"),
        (
            Widths(layers={"0": {"out_channels": 7}}, shapes={}),
            r"layers.0.out_channels: expected at most 6, got 7",
        ),
        (
            Widths(layers={"0": {"num_features": 1}}, shapes={}),
            r"layers.0.num_features: expected .* None, got 1",
        ),
        (Widths(layers={}, shapes={"0.weight": (7, 1, 3, 3)}), "shapes.0.weight: expected at most 6, got 7"),
        (Widths(layers={}, shapes={"0.weight": (4,)}), r"has shape \(6, 1, 3, 3\), got \(4,\)"),
        (Widths(layers={}, shapes={"0.wait": (4,)}), r"shapes.0.wait: .* no tensor of this name"),
    ],
)
def test_widths_of_another_network_are_refused(widths: Widths, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        make_narrow(net(6), widths)
