"""Tests which networks are looked at before a search: every one that a trial may begin from weights."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from search.facts.hardware import Hardware, Node
from search.record.home import Home
from search.running.networks import teachers_here_alone, weights_of, what_is_compiled
from spaces.domains import Choice
from spaces.space import Dimension, Space
from tests.trainable.small_runs import data_set
from trainable.recipe import Recipe
from trainable.recipe.training import Compiling
from trainable.training.compiling import CACHE_VARIABLE

DECODERS, ENCODERS = ("unet", "deeplabv3plus"), ("resnet10t", "resnet18")


def test_each_encoder_below_each_decoder_has_a_file_of_weights(tmp_path: Path) -> None:
    for encoder in ENCODERS:
        save_file({"a": torch.ones(len(encoder))}, tmp_path / f"{encoder}.safetensors")
    values = {
        "task.kind": "segmentation",
        "model.kind": "smp",
        "model.encoder": "resnet18",
        "model.weights": str(tmp_path),
    }
    base = Recipe().with_values({**values, "model.name": "deeplabv3plus", "model.output_stride": 8})
    space = Space(
        base,
        (
            Dimension("model.name", Choice(DECODERS), "", ""),
            Dimension("model.encoder", Choice(ENCODERS), "", ""),
        ),
        {"model.name": "deeplabv3plus", "model.encoder": "resnet18"},
    )
    found = weights_of(space)
    assert sorted(found) == sorted(f"{name}-{encoder}" for name in DECODERS for encoder in ENCODERS)
    assert found["unet-resnet18"] == found["deeplabv3plus-resnet18"] != found["unet-resnet10t"]


def test_a_teacher_in_this_machines_copy_of_a_store_is_named_where_other_machines_train() -> None:
    here, shared = str(Home.at("s3://bucket/searches/large").folder / "teachers/trial-0-epoch-1"), "/shared/x"
    several, one = (Hardware((Node(4, 0),) * count, cluster=True) for count in (2, 1))
    assert teachers_here_alone([here, shared], several) == [here]
    assert teachers_here_alone([here, shared], one) == []
    assert teachers_here_alone([here, shared], Hardware((Node(4, 0),))) == []


@pytest.mark.parametrize(
    ("compiling", "said"),
    [
        (False, []),
        ("auto", []),
        (True, ["loop.compile true: the first step of a trial compiles the whole network"]),
        ("blocks", ["loop.compile blocks: the first step of a trial compiles 9 blocks, of 5 kinds"]),
    ],
)
def test_a_search_says_what_its_trials_compile_and_prepares_nothing_for_it(
    compiling: Compiling, said: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(CACHE_VARIABLE, raising=False)
    base = Recipe().with_values({"model.width": 4, "model.depth": 20, "loop.compile": compiling})
    lines = list(what_is_compiled(Space(base, (), {}), data_set().info))
    assert [line.partition(";")[0] for line in lines] == said
    assert CACHE_VARIABLE not in os.environ
    assert not list(tmp_path.iterdir())
