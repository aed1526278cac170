"""What is decided and refused before a search starts: rungs, faults of every trial, weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from search.cluster import Hardware, Node
from search.prepare import (
    check_trials,
    load_data,
    make_scheduler,
    measure_facts,
    prepare,
    prepare_again,
    write_facts,
)
from search.study import Resources, Study, StudyError
from spaces.catalog import make_space
from spaces.facts import Facts
from spaces.space import Space
from tests.spaces.small_facts import digits_facts
from trainable.errors import ModelError
from trainable.models.make import make_model

CPU = Resources(cpus=1, gpus=0.0)
MACHINE = Hardware((Node(cpus=2, gpus=0),))


def study_of(**values: Any) -> Study:
    """A study of digits, with values by dotted path (`__` for the dot)."""
    written = {path.replace("__", "."): value for path, value in values.items()}
    return Study.from_tree({"data": {"path": "digits"}}).with_values(written)


def space_of(study: Study, facts: Facts | None = None) -> Space:
    pinned = frozenset(study.pinned)
    facts = facts if facts is not None else digits_facts(epochs=study.budget.epochs)
    return make_space(study.space.name, study.base_recipe(), pinned, facts, study.space.overrides)


def rungs_of(study: Study) -> list[int]:
    return list(make_scheduler(study, space_of(study)).recorded)


@pytest.mark.parametrize(
    ("values", "rungs"),
    [
        ({}, [4, 12]),
        ({"scheduler__kind": "none"}, []),
        ({"scheduler__rungs": [3, 5]}, [3, 5]),
        ({"scheduler__grace_epochs": 2}, [2, 6, 18]),
    ],
)
def test_without_cycles_rungs_follow_the_warm_up_or_what_is_written(
    values: dict[str, Any], rungs: list[int]
) -> None:
    assert rungs_of(study_of(**values)) == rungs


SGDR: dict[str, Any] = {"base__schedule.kind": "sgdr"}
SHORT: dict[str, Any] = {**SGDR, "base__schedule.cycle_epochs": 1.0}  # ends 1, 3, 7, 15
EQUAL: dict[str, Any] = {**SGDR, "base__schedule.cycle_epochs": 5.0, "base__schedule.growth": 1}
TRIANGLES: dict[str, Any] = {"base__schedule.kind": "cyclic", "base__schedule.rise_epochs": 2.0}


@pytest.mark.parametrize(
    ("values", "epochs", "rungs"),
    [
        (SGDR, 150, [10, 30, 70]),
        (SGDR, 20, [10]),
        (SGDR, 30, [10]),
        (SGDR, 10, []),
        (SHORT, 20, [3, 7]),
        ({**SHORT, "scheduler__grace_epochs": 4}, 20, [7, 15]),
        ({**SGDR, "scheduler__kind": "none"}, 150, []),
        ({**SGDR, "scheduler__rungs": [30]}, 150, [30]),
        (EQUAL, 60, [5, 10, 20, 55]),
        (TRIANGLES, 20, [4, 8]),
        ({**SGDR, "base__schedule.warmup_epochs": 2.0}, 20, [12]),
        ({**SGDR, "base__schedule.warmup_epochs": 1.5}, 20, []),
    ],
)
def test_with_cycles_rungs_stand_at_their_ends(values: dict[str, Any], epochs: int, rungs: list[int]) -> None:
    assert rungs_of(study_of(budget__epochs=epochs, **values)) == rungs


@pytest.mark.parametrize(
    ("epochs", "rungs", "told"),
    [
        (150, [10, 12, 40], "[12, 40] are no ends of the sgdr schedule's cycles"),
        (10, [5], "none before epoch 10"),
    ],
)
def test_a_written_rung_off_the_end_of_a_cycle_is_refused(epochs: int, rungs: list[int], told: str) -> None:
    study = study_of(budget__epochs=epochs, scheduler__rungs=rungs, **SGDR)
    with pytest.raises(StudyError) as caught:
        make_scheduler(study, space_of(study))
    ((path, message),) = caught.value.faults
    assert path == "scheduler.rungs"
    assert told in message


def test_a_space_that_fixes_a_schedule_of_cycles_has_its_rungs_at_their_ends() -> None:
    study = study_of(budget__epochs=40, **{"space__overrides.schedule.kind": {"fixed": "sgdr"}})
    assert rungs_of(study) == [10, 30]


@pytest.mark.parametrize("flips", [(), ("vertical",)])
@pytest.mark.parametrize(
    ("place", "values"),
    [
        ("base.evaluation.flip", {"base__evaluation.flip": True}),
        (
            "space.overrides.evaluation.flip",
            {"space__overrides.evaluation.flip": {"choice": [False, True]}},
        ),
    ],
)
def test_mirror_images_are_scored_only_where_labels_survive(
    flips: tuple[str, ...], place: str, values: dict[str, Any]
) -> None:
    study = study_of(**values)
    refused = digits_facts(flips=flips)
    with pytest.raises(StudyError) as caught:
        check_trials(study, space_of(study, refused), refused)
    ((path, message),) = caught.value.faults
    assert path == place
    assert "data.flips to hold horizontal" in message
    allowed = digits_facts(flips=("horizontal",))
    check_trials(study, space_of(study, allowed), allowed)


def test_facts_tell_a_pretrained_model_without_its_weights() -> None:
    study = study_of(**{"base__model.weights": "/nowhere/weights.safetensors"})
    info = load_data(study.base_recipe(), CPU).info
    plain = measure_facts(study_of().base_recipe(), info, CPU)
    assert not plain.pretrained
    assert measure_facts(study.base_recipe(), info, CPU) == plain.model_copy(update={"pretrained": True})


def test_weights_that_are_missing_or_fit_nothing_are_told_before_any_trial(tmp_path: Path) -> None:
    """As a search begins, and as it is resumed."""
    fitting, strange = tmp_path / "fitting.safetensors", tmp_path / "strange.safetensors"
    model = make_model(study_of().base_recipe().model, classes=10, channels=1, image_size=8)
    save_file(model.state_dict(), fitting)
    save_file({"other.weight": torch.zeros(3)}, strange)
    study = study_of(**{"base__model.weights": str(fitting)})
    prepared = prepare(study, tmp_path, MACHINE)
    assert prepared.facts.pretrained
    write_facts(prepared)
    for path in (tmp_path / "gone.safetensors", strange):
        other = study_of(**{"base__model.weights": str(path)})
        with pytest.raises(ModelError, match=path.name):
            prepare(other, tmp_path, MACHINE)
        with pytest.raises(ModelError, match=path.name):
            prepare_again(other, tmp_path, MACHINE)
    assert prepare_again(study, tmp_path, MACHINE).space == prepared.space
