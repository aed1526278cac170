"""Compares pretrained networks on a study's images, by linear heads on their frozen features."""

from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np
import torch
from torch import nn

from search.facts.cache import name_by
from search.study import WEIGHTS, Study
from trainable.bench import Bench, DeviceKind
from trainable.data import DataSet
from trainable.errors import ModelError, UserError
from trainable.files.paths import cache_root
from trainable.models.make import count_parameters
from trainable.models.weights import weights_digest
from trainable.origins import versions
from trainable.probes.backbones import (
    HeadFeatures,
    HeadScore,
    best_head,
    chances_to_be_best,
    features_of,
    training_bytes,
)
from trainable.probes.speed import measure_speeds
from trainable.recipe import Recipe
from trainable.recipe.models import OF_ANY_NETWORK, OWN_WEIGHTS
from trainable.recipe.network_cost import fastest
from trainable.recipe.training import Precision
from trainable.recipe.yamlfile import write_whole
from trainable.stages import stage, track
from trainable.tasks.kits import load_for
from trainable.training.network import make_network
from trainable.training.pixels import resolved

CHOSEN = 3  # networks that the space of the next study chooses between
# Part of the choice's prior that is even: features that are frozen are no certain sign of tuned ones
EVEN_SHARE = 0.25


class Costs(NamedTuple):
    """What training all layers of a network takes: images a second on this machine, 0 where that could
    not be timed, and the bytes of a step on 32 images."""

    parameters: int
    images_per_second: float
    training_bytes: int


@dataclass(frozen=True)
class Candidate:
    """What was measured of one network."""

    name: str
    score: HeadScore
    chance: float  # of being the best on images drawn anew
    costs: Costs


def compare(
    study: Study,
    names: Sequence[str],
    bench: Bench,
    *,
    weights: str | None = None,
) -> list[Candidate]:
    """Return what is measured of each network, the best first; say a line for each that is not at hand.

    Raises UserError if none can be compared, and for images that cannot be used.
    """
    scores: dict[str, HeadScore] = {}
    costs: dict[str, Costs] = {}
    remarks: set[str] = set()
    for name in track(names, "network", len(names)):
        try:
            with stage(f"loading {name}"):
                recipe, data = _seen_by(study, name, weights or OWN_WEIGHTS, bench)
            for line in data.info.remarks:
                if line not in remarks:
                    bench.say(line)
            remarks |= set(data.info.remarks)
            with stage(f"computing features of {name}"):
                features, costs[name] = _measured(recipe, data, bench)
        except ModelError as error:
            bench.say(f"{name}: left out: {error}")
            continue
        with stage(f"fitting a head on features of {name}"):
            scores[name] = best_head(features)
        bench.say(f"{name}: {scores[name].accuracy:.1%} of {len(scores[name].right):,} validation images")
    if not scores:
        raise UserError("no network can be compared: pass --download to fetch weights, or --weights DIR")
    chances = chances_to_be_best([each.right for each in scores.values()])
    found = [
        Candidate(name, score, chance, costs[name])
        for (name, score), chance in zip(scores.items(), chances, strict=True)
    ]
    return sorted(found, key=lambda each: each.score.accuracy, reverse=True)


def priors(found: Sequence[Candidate]) -> dict[str, float]:
    """Return the networks for the next study to choose between, each with its weight: the probability that
    it is the best of them, and an even share of EVEN_SHARE."""
    first = found[:CHOSEN]
    chances = chances_to_be_best([each.score.right for each in first])
    even = EVEN_SHARE / len(first)
    return {
        each.name: round(even + (1 - EVEN_SHARE) * chance, 3)
        for each, chance in zip(first, chances, strict=True)
    }


def _seen_by(study: Study, name: str, weights: str, bench: Bench) -> tuple[Recipe, DataSet]:
    """Return a recipe with this network, and the images as its weights know them."""
    base = study.base_recipe()
    recipe = base.with_values({"model": {"kind": "timm", "name": name, "weights": weights}, **pins_of(study)})
    data = load_for(recipe, bench)
    data.refuse_leaks(study.data)
    data.be_here()
    return resolved(recipe, data, bench=bench), data


def pins_of(study: Study) -> dict[str, Any]:
    """Return what a study pins of any network, by dotted path, without the weights."""
    fields = {f"model.{name}" for name in OF_ANY_NETWORK} - {WEIGHTS}
    return {path: value for path, value in study.pinned.items() if ".".join(path.split(".")[:2]) in fields}


def _measured(recipe: Recipe, data: DataSet, bench: Bench) -> tuple[HeadFeatures, Costs]:
    """Return a network's features of the images and its costs, from the person's cache if they are there."""
    file = _cache_file(recipe, data, bench.kind)
    if (known := _read(file)) is not None:
        return known
    network = make_network(recipe.model, data.info, bench=bench)
    found = features_of(network, data, recipe, bench)
    costs = _costs(network, data, bench.device)
    content = io.BytesIO()
    np.savez(content, **vars(found), costs=np.array(costs, np.float64))
    with suppress(UserError, OSError):  # only time is lost
        write_whole(file, content.getvalue())
    return found, costs


def _cache_file(recipe: Recipe, data: DataSet, device: DeviceKind) -> Path:
    follows_from = {
        "model": recipe.tree()["model"],
        "weights": weights_digest(recipe.model),
        "data": recipe.tree()["data"],
        "digest": data.info.digest,
        "files": data.files,
        "training images": "of each class",  # before, those of a class of few could be missing
        "resize": data.resize.model_dump(),
        "device": device,
        "versions": versions(),
    }
    return cache_root() / "features" / f"{name_by(follows_from)}.npz"


def _read(file: Path) -> tuple[HeadFeatures, Costs] | None:
    try:
        with np.load(file) as stored:
            features = HeadFeatures(**{each.name: stored[each.name] for each in fields(HeadFeatures)})
            parameters, rate, size = stored["costs"].tolist()
    except (OSError, ValueError, KeyError, BadZipFile):
        return None
    return features, Costs(int(parameters), rate, int(size))


def _costs(network: nn.Module, data: DataSet, device: torch.device) -> Costs:
    """Return the costs of a network whose weights are no longer needed: timing changes them."""
    shape = (data.info.channels, data.info.image_size, data.info.image_size)
    size = training_bytes(network, shape)
    speeds = measure_speeds(network, data.info, device, Precision())
    rate = fastest(speeds).images_per_second if speeds else 0.0
    return Costs(count_parameters(network), rate, size)
