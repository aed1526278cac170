"""Tests facts as they are measured on data and a model, and replaced by what a person wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from search.facts.hardware import PerTrial
from search.facts.measured import facts_of, load_data, run_probes, with_written_facts, without_weights
from search.study import Study
from spaces.facts import Facts
from tests.search.small_studies import study_of
from tests.spaces.small_facts import digits_facts
from tests.trainable.small_segmentations import write_masks
from trainable.bench import ON_CPU, Bench
from trainable.data import DataInfo
from trainable.errors import UserError
from trainable.recipe import Recipe

CPU = PerTrial(cpus=2, gpus=0.0)


def facts_without_weights(base: Recipe, info: DataInfo) -> Facts:
    return facts_of(without_weights(base, info, None, bench=ON_CPU), base, info, CPU)


def measured(study: Study) -> Facts:
    base = study.base_recipe()
    return facts_without_weights(base, load_data(base, ON_CPU).info)


def test_facts_are_those_of_the_data_the_model_and_the_budget() -> None:
    facts = measured(study_of(budget__epochs=7))
    assert (facts.train_images, facts.classes, facts.channels, facts.image_size) == (1259, 10, 1, 8)
    assert 0.9 < facts.class_balance < 1.0
    assert (facts.epochs, facts.cpus, facts.gpus, facts.gpu_memory_bytes) == (7, 2, 0.0, None)
    assert (facts.parameters, facts.attention, facts.batch_norm) == (77_754, False, True)
    assert (facts.lr_band, facts.largest_micro_batch) == (None, None)


def test_facts_of_masks_count_pixels_and_say_how_large_the_images_are(tmp_path: Path) -> None:
    root = write_masks(tmp_path, sizes=((40, 24), (32, 32), (40, 40)))
    masks = {"kind": "segmentation", "masks": {"classes": str(root / "classes.txt")}}
    study = Study.from_tree({"data": {"path": str(root)}, "base": {"task": masks}})
    base = study.base_recipe()
    info = load_data(base, ON_CPU).info
    facts = facts_without_weights(base, info)
    assert (facts.task, facts.classes) == ("segmentation", 3)
    assert facts.class_balance == min(info.pixel_counts) / max(info.pixel_counts) < 0.2
    assert (facts.longer_side, facts.image_size) == (40, 40)
    assert with_written_facts(facts, study).classes_count_alike


def test_facts_of_an_earlier_version_are_those_of_a_classification() -> None:
    tree = {
        name: value for name, value in digits_facts().tree().items() if name not in ("task", "longer_side")
    }
    assert Facts.from_tree(tree) == digits_facts()


def test_facts_tell_a_pretrained_model_without_its_weights() -> None:
    plain = measured(study_of())
    assert not plain.pretrained
    weights = {"base__model.weights": "/nowhere/weights.safetensors"}
    assert measured(study_of(**weights)) == plain.model_copy(update={"pretrained": True})


def test_facts_tell_a_transformer() -> None:
    vit = {"kind": "timm", "name": "vit_tiny_patch16_224"}
    facts = measured(study_of(base__model=vit, data__image_size=32))
    assert (facts.attention, facts.batch_norm) == (True, False)
    assert 5_000_000 < facts.parameters < 6_000_000


def test_what_is_written_stands_and_the_rest_is_as_measured() -> None:
    study = study_of(facts__parameters=25_000_000, facts__attention=True, facts__pretrained=True)
    expected = digits_facts(parameters=25_000_000, attention=True, pretrained=True)
    assert with_written_facts(digits_facts(), study) == expected
    assert with_written_facts(digits_facts(), study_of()) == digits_facts()


@pytest.mark.parametrize(
    ("metric", "alike"), [("val_accuracy", False), ("val_loss", False), ("val_balanced_accuracy", True)]
)
def test_facts_tell_whether_the_objective_counts_classes_alike(metric: str, alike: bool) -> None:
    facts = with_written_facts(digits_facts(), study_of(objective__metric=metric))
    assert facts == digits_facts(classes_count_alike=alike)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ({}, None),
        ({"base__optimizer.kind": "adamw"}, "adamw"),
        ({"base__optimizer.kind": "adamw", "facts__lr_band_kind": "sgd"}, "sgd"),
    ],
)
def test_a_written_band_is_of_the_optimizer_that_is_written_or_pinned(
    values: dict[str, Any], kind: str | None
) -> None:
    facts = with_written_facts(digits_facts(), study_of(facts__lr_band=[0.1, 0.4], **values))
    assert (facts.lr_band, facts.lr_band_kind) == ((0.1, 0.4), kind)


def test_a_study_without_probes_runs_none() -> None:
    study = study_of()
    base = study.base_recipe()
    data = load_data(base, ON_CPU)
    assert run_probes(study, digits_facts(), base, data) == digits_facts()


def test_probes_of_a_gpu_need_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    study = study_of(space__probes=["batch-find"])
    base = study.base_recipe()
    with pytest.raises(UserError, match=r"space\.probes: trials run on a GPU.*tunebook batch-find"):
        run_probes(study, digits_facts(gpus=1.0), base, load_data(base, ON_CPU))


@pytest.mark.slow("measures networks")
def test_a_sweep_without_a_band_is_said_and_leaves_the_fact_open() -> None:
    """The model memorises ten images before any rate is too high, or the loss explodes at once."""
    written = {"loop.batch_size": 4, "precision.kind": "fp32"}
    study = study_of(space__probes=["lr-find"], base=written, data__train_limit=10)
    base, said = study.base_recipe(), list[str]()
    facts = run_probes(study, digits_facts(), base, load_data(base, ON_CPU), bench=Bench(say=said.append))
    assert facts == digits_facts()
    assert said[0].startswith("lr-find: no band: ")
