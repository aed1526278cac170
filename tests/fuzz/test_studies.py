"""Fuzzes studies: what is accepted builds its space and gives recipes; what is not is one clear message."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from search.commands.asked import default_name
from search.deciding.make import make_sampler
from search.deciding.pruning import choose_pruning
from search.facts.hardware import Hardware, Node, concurrent_trials, per_trial
from search.facts.measured import with_written_facts
from search.followers.uri import resolve_tracking_uri
from search.record.home import Home
from search.study import Study
from search.study.first_trials import first_trials
from search.study.space import build_space, check_trials, far_rates
from spaces.facts import NOT_OVERWRITABLE, WrittenFacts
from spaces.settled import space_from, tree_of
from spaces.space import Space
from tests.fuzz import mutations
from tests.fuzz.bounds import Tally
from tests.search.planted_searches import Images
from tests.spaces.small_facts import digits_facts, masks_facts
from trainable.data import DataInfo
from trainable.errors import FaultyInput
from trainable.ranks import ALONE
from trainable.recipe import Recipe
from trainable.recipe.data import Data
from trainable.recipe.yamlfile import parse_tree
from trainable.training.network import check_recipe

TEXT = Path(__file__).parents[2].joinpath("examples", "study.yaml").read_bytes()
EXAMPLE = parse_tree(TEXT.decode(), "the example")
SMALL = b"""name: 2026-11-22
data: {path: digits, image_size: 8}
base: {optimizer.kind: adamw, loop: {batch_size: 32}}
space:
  name: quick
  overrides: {optimizer.lr: {log: [0.001, 0.1], prior: 0.01, confidence: high}}
budget: {trials: 4, epochs: 9}
scheduler: {rungs: [1, 3]}
"""
STUDIES: tuple[dict[str, Any], ...] = (
    {"data": {"path": "digits"}},
    {
        "data": {"path": "digits"},
        "base": {"model": {"kind": "torchvision", "name": "resnet18", "weights": "default"}},
        "space": {"name": "finetune"},
        "facts": {"parameters": 11_000_000, "lr_band": [0.01, 0.1]},
    },
    {
        "data": {"path": "digits"},
        "space": {
            "name": "wide",
            "overrides": {
                "loop.batch_size": {"choice": [32, 64, 128], "weights": [1, 2, 1]},
                "optimizer.weight_decay": {"fixed": 0.0},
                "model.depth": {"choice": [8, 14]},
            },
        },
        "sampler": {"kind": "qmc"},
        "first": [{"optimizer.lr": 0.2}, {"optimizer": {"kind": "adamw"}, "model.depth": 14}],
        "scheduler": {"kind": "none"},
        "objective": {"metric": "val_loss", "constraints": {"parameters": {"max": 5e6}}},
    },
    parse_tree(SMALL.decode(), "small"),
    EXAMPLE,
    {
        "data": {"path": "nuclei", "flips": ["horizontal"]},
        "base": {
            "task": {"kind": "segmentation", "masks": {"values": "binary"}, "loss": {"dice": 0.5}},
            "model": {"kind": "unet_small", "width": 8},
        },
        "space": {"overrides": {"task.loss.focal": {"uniform": [0.0, 1.0]}}},
        "objective": {"metric": "val_mean_dice"},
    },
)
NAMES = (
    *(*Study.model_fields, *WrittenFacts.model_fields, *NOT_OVERWRITABLE, *Data.model_fields),
    *(path for path, _ in Recipe().leaves()),
    *("log", "uniform", "int", "int_log", "choice", "fixed", "rule", "prior", "confidence", "weights"),
)
HARDWARE = Hardware((Node(cpus=4, gpus=0),))


def check_one(luck: mutations.Luck) -> None:
    if luck.randrange(3):
        tree = mutations.tree(luck.choice(STUDIES), luck, names=NAMES)
        TALLY.shown = tree
        TALLY.outcome(lambda: prepared(tree))
    else:
        text = mutations.content(luck.choice((*[SMALL] * 7, TEXT)), luck)
        TALLY.shown = text
        TALLY.outcome(lambda: prepared(parse_tree(text.decode(errors="replace"), "study.yaml")))


TALLY = Tally()
pytestmark = pytest.mark.fuzz


def test_a_study_is_refused_at_once_or_gives_its_first_trials() -> None:
    for each in STUDIES:
        prepared(each)  # imports what else the first input would wait for
    TALLY.try_all(check_one)
    TALLY.check(least_share=0.1)


def prepared(tree: dict[str, Any]) -> Space:
    """Do what comes before the first trial, with invented facts instead of images and a network."""
    study = Study.from_tree(tree, "study.yaml").resolved("fuzzed")
    resolve_tracking_uri(study.tracking.uri, study.storage, {})
    assert Home.of(study).address
    assert default_name(study)
    trial = per_trial(study.resources, HARDWARE)
    dense = study.base_recipe().task.kind == "segmentation"
    info = info_of(study.data, dense=dense)
    of_task = masks_facts if dense else digits_facts
    measured = of_task(train_images=info.train_images, image_size=info.image_size, epochs=study.budget.epochs)
    facts = with_written_facts(measured, study)
    space = build_space(study, facts, info)
    check_trials(study, space, facts)
    for each in first_trials(study, space, info):
        check_recipe(Recipe.from_tree(each.recipe), info, ALONE)
    far_rates(study, space, facts)
    concurrent_trials(study.concurrent, trial, HARDWARE)
    choose_pruning(study, space)
    check_accepted(study, space, info)
    return space


def check_accepted(study: Study, space: Space, info: DataInfo) -> None:
    """Fail where something that was accepted cannot be written, read again or trained."""
    try:
        assert Study.from_tree(parse_tree(study.yaml(), "written")) == study
        assert space_from(tree_of(space), "settled").dimensions == space.dimensions
        check_recipe(space.recipe(space.own), info, ALONE)
        sampler = make_sampler(space, study.sampler.kind, study.seed, study.objective.direction)
        for number in (1, 2):
            values_of_trial(space, sampler.ask(number))
    except FaultyInput as error:
        raise AssertionError(f"accepted, and then refused: {error}") from error


def values_of_trial(space: Space, values: dict[str, Any]) -> None:
    """A trial whose values make no recipe has failed, and the next one is proposed: a documented case."""
    space.encode(values)


def info_of(data: Data, *, dense: bool = False) -> DataInfo:
    """Return what is known of data that are as the study says."""
    images = Images(train=min(2000, data.train_limit or 2000), side=min(data.image_size or 8, 4096))
    channels = data.channels or 1
    mean, std = images.info.mean[:1] * channels, images.info.std[:1] * channels
    found = replace(images.info, channels=channels, mean=mean, std=std, flips=data.flips or ())
    if not dense:
        return found
    return replace(found, format="folder", task_kind="segmentation", pixel_counts=found.class_counts)
