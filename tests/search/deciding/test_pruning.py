"""Tests which rungs and which factor fit a budget and a space, and what is said of them."""

from __future__ import annotations

from typing import Any

import pytest

from search.deciding.make import make_scheduler
from search.deciding.model_asha import ModelAsha
from search.deciding.pruning import (
    Pruning,
    bits_of,
    choose_pruning,
    compared_early,
    has_uneven_schedules,
    suggested,
)
from search.deciding.scheduler import Asha, PromotionAsha, Scheduler
from search.study import Study, StudyError
from spaces.catalog.catalog import make_space
from spaces.space import Space
from tests.search.small_studies import study_of
from tests.spaces.small_facts import digits_facts
from trainable.recipe import Recipe

ALIKE = 3.0


def space_of(study: Study, **known: Any) -> Space:
    facts = digits_facts(epochs=study.budget.epochs, **known)
    pinned = frozenset(study.pinned)
    return make_space(
        study.space.name or "document", study.base_recipe(), pinned, facts, study.space.overrides
    )


def rungs_of(study: Study) -> list[int]:
    return list(choose_pruning(study, space_of(study)).rungs)


# --- what fits ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("epochs", "warmup", "bits", "uneven", "rungs", "factor"),
    [
        (9, 0.9, 0.0, False, (2,), 3),  # as benchmarks/results/pruning.md has them
        (9, 3.0, 0.0, True, (4,), 3),
        (9, 0.9, ALIKE, True, (3,), 2),
        (9, 0.9, ALIKE, False, (2,), 3),
        (20, 2.0, 0.0, False, (3, 9), 3),
        (20, 2.0, ALIKE, False, (3,), 3),
        (20, 2.0, ALIKE, True, (7,), 2),
        (52, 2.0, ALIKE, False, (7,), 3),
        (52, 2.0, 0.0, True, (7, 21), 3),
        (100, 10.0, 0.0, False, (13, 39), 3),
        (30, 10.0, 0.0, False, (11,), 3),
        (3, 1.0, 0.0, False, (2,), 3),
        (1, 0.0, 0.0, False, (), 3),
        (20, 0.0, 0.5, False, (3,), 3),
        (20, 0.0, 0.499, False, (3, 9), 3),
    ],
)
def test_rungs_lie_behind_the_warm_up_and_alike_trials_are_compared_once(
    epochs: int, warmup: float, bits: float, uneven: bool, rungs: tuple[int, ...], factor: int
) -> None:
    found = suggested(epochs, warmup, bits, uneven=uneven)
    assert (found.rungs(found.factor, epochs), found.factor) == (rungs, factor)


@pytest.mark.parametrize(
    ("epochs", "warmup", "bits", "uneven", "wanted"),
    [
        (20, 4.0, ALIKE, False, "the longest warm-up"),
        (20, 0.0, ALIKE, False, "first eighth of a run"),
        (20, 0.0, ALIKE, True, "first third of a run"),
        (20, 0.0, 0.0, True, "first eighth of a run"),
    ],
)
def test_the_reason_is_the_one_that_decides(
    epochs: int, warmup: float, bits: float, uneven: bool, wanted: str
) -> None:
    assert wanted in suggested(epochs, warmup, bits, uneven=uneven).rung_reason


@pytest.mark.parametrize(
    ("epochs", "warmup", "frozen", "grace", "wanted"),
    [
        (10, 0.0, 5, 6, "longest freeze"),
        (10, 5.5, 5, 7, "longest warm-up"),
        (10, 5.0, 5, 6, "longest warm-up"),  # both ask for it
        (10, 1.0, 0, 2, "longest warm-up"),
        (80, 0.0, 5, 10, "first eighth of a run"),
    ],
)
def test_the_first_rung_lies_behind_the_longest_freeze_too(
    epochs: int, warmup: float, frozen: int, grace: int, wanted: str
) -> None:
    found = suggested(epochs, warmup, ALIKE, uneven=False, frozen=frozen)
    assert found.grace == grace
    assert wanted in found.rung_reason


@pytest.mark.parametrize(
    ("bits", "wanted"),
    [
        (0.0, "trials drawn uniformly"),
        (0.2, "the priors are too weak (0.2 bits)"),
        (ALIKE, "the priors make trials similar (3.0 bits)"),
    ],
)
def test_even_draws_and_weak_priors_are_distinguished(bits: float, wanted: str) -> None:
    assert suggested(20, 2.0, bits, uneven=False).factor_reason.startswith(wanted)


@pytest.mark.parametrize(
    ("kinds", "uneven"),
    [
        (["cosine", "poly"], False),
        (["cosine"], False),
        (["cosine", "onecycle"], True),
        (["poly", "constant"], True),
        (["step", "exp"], True),
    ],
)
def test_only_a_cosine_and_a_power_have_one_shape(kinds: list[str], uneven: bool) -> None:
    study = study_of(**{"space__overrides.schedule.kind": {"choice": kinds}})
    assert has_uneven_schedules(space_of(study)) is uneven


def test_a_pinned_schedule_is_one_shape_whatever_it_is() -> None:
    assert not has_uneven_schedules(space_of(study_of(**{"base__schedule.kind": "onecycle"})))


# --- what a study says ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "rungs", "factor"),
    [
        ({"scheduler__kind": "none"}, (), None),
        ({"scheduler__rungs": [3, 5]}, (3, 5), None),
        ({"scheduler__grace_epochs": 2, "scheduler__reduction_factor": 3}, (2, 6, 18), 3),
        ({"scheduler__grace_epochs": 5, "scheduler__reduction_factor": 4}, (5,), 4),
    ],
)
def test_what_is_written_wins(values: dict[str, Any], rungs: tuple[int, ...], factor: int | None) -> None:
    study = study_of(**values)
    pruning = choose_pruning(study, space_of(study))
    assert pruning.rungs == rungs
    assert pruning.factor == (factor if factor is not None else pruning.factor)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("asha", Asha), ("none", Asha), ("promotion", PromotionAsha), ("model", ModelAsha)],
)
def test_the_study_says_whether_trials_are_stopped_or_paused_or_forecast(
    kind: str, expected: type[Scheduler]
) -> None:
    study = study_of(scheduler__kind=kind)
    space = space_of(study)
    pruning = choose_pruning(study, space)
    made = make_scheduler(space, pruning, "min")
    assert type(made) is expected
    assert (made.rungs, made.factor, made.direction) == (pruning.rungs, pruning.factor, "min")


def test_the_space_decides_between_the_documents_priors_and_even_draws() -> None:
    """All schedules have one shape, so that only the draws differ."""
    pinned = {"base__schedule.kind": "cosine", "budget__epochs": 20}
    names = ("document", "quick", "wide")
    studies = [study_of(space__name=name, **pinned) for name in names]
    assert list(map(rungs_of, studies)) == [[3], [3], [3, 9]]


@pytest.mark.parametrize(
    ("values", "rungs"),
    [
        ({"space__name": "finetune"}, [6]),  # freeze_epochs is drawn from 0 to 5
        ({"base__model.freeze_epochs": 4}, [5]),
        ({"space__name": "finetune", "base__model.freeze_epochs": 0}, [2]),
    ],
)
def test_no_trial_is_compared_while_its_head_alone_is_trained(
    values: dict[str, Any], rungs: list[int]
) -> None:
    study = study_of(**{"budget__epochs": 10, "base__model.weights": "learnt.safetensors", **values})
    assert list(choose_pruning(study, space_of(study, pretrained=True)).rungs) == rungs


def test_priors_that_the_sampler_does_not_ask_make_no_trials_alike() -> None:
    pinned = {"base__schedule.kind": "cosine"}
    asked, unasked = (study_of(sampler__kind=kind, **pinned) for kind in ("prior-tpe", "tpe"))
    assert bits_of(asked, space_of(asked)) > 1.0
    assert bits_of(unasked, space_of(unasked)) == 0.0
    pruning = choose_pruning(unasked, space_of(unasked))
    assert pruning.factor == 3
    assert "trials drawn uniformly" in pruning.why


SGDR: dict[str, Any] = {"base__schedule.kind": "sgdr"}
SHORT: dict[str, Any] = {**SGDR, "base__schedule.cycle_epochs": 1.0}  # ends 1, 3, 7, 15
EQUAL: dict[str, Any] = {**SGDR, "base__schedule.cycle_epochs": 5.0, "base__schedule.growth": 1}
TRIANGLES: dict[str, Any] = {"base__schedule.kind": "cyclic", "base__schedule.rise_epochs": 2.0}
TWO_THEN_THIRDS = {"scheduler__grace_epochs": 2, "scheduler__reduction_factor": 3}


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
        (EQUAL, 60, [5, 10, 20, 55]),
        (TRIANGLES, 20, [4, 8]),
        ({**SGDR, "base__schedule.warmup_epochs": 2.0}, 20, [12]),
        ({**SGDR, "base__schedule.warmup_epochs": 1.5}, 20, []),
    ],
)
def test_with_cycles_rungs_stand_at_their_ends(values: dict[str, Any], epochs: int, rungs: list[int]) -> None:
    """They stand at the first end after each of 2, 6, 18 and 54 epochs, or after each written one."""
    study = study_of(budget__epochs=epochs, **{**TWO_THEN_THIRDS, **values})
    assert rungs_of(study) == rungs


@pytest.mark.parametrize(
    ("epochs", "rungs", "wanted"),
    [
        (150, [10, 12, 40], "[12, 40]: scores"),
        (10, [5], "none before epoch 10"),
    ],
)
def test_a_written_rung_off_the_end_of_a_cycle_is_refused(epochs: int, rungs: list[int], wanted: str) -> None:
    study = study_of(budget__epochs=epochs, scheduler__rungs=rungs, **SGDR)
    with pytest.raises(StudyError) as caught:
        choose_pruning(study, space_of(study))
    ((path, message),) = caught.value.faults
    assert path == "scheduler.rungs"
    assert wanted in message


def test_a_written_rung_at_the_end_of_a_cycle_stands() -> None:
    assert rungs_of(study_of(budget__epochs=150, scheduler__rungs=[30], **SGDR)) == [30]


def test_a_space_that_fixes_a_schedule_of_cycles_has_its_rungs_at_their_ends() -> None:
    study = study_of(budget__epochs=40, **{"space__overrides.schedule.kind": {"fixed": "sgdr"}})
    assert rungs_of(study) == [10]


# --- in words -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "rungs", "said"),
    [
        ({"schedule.warmup_epochs": 2.0}, (3, 9), ""),
        (
            {"schedule.warmup_epochs": 2.5},
            (3, 9),
            "its warm-up takes 2.5 epochs; it is compared after epoch 3",
        ),
        ({"schedule.warmup_epochs": 2.5}, (), ""),
        (
            {"schedule.kind": "sgdr", "schedule.warmup_epochs": 0.0},
            (3, 9),
            "it is compared after epoch 3, within a cycle of its sgdr schedule",
        ),
    ],
)
def test_a_recipe_of_a_persons_own_that_is_compared_early_is_named(
    values: dict[str, Any], rungs: tuple[int, ...], said: str
) -> None:
    recipe = Recipe().with_values({"loop.epochs": 20, **values})
    assert compared_early(recipe, Pruning(rungs, 3, "")) == said


def test_the_sentence_has_rungs_part_saving_and_reasons() -> None:
    study = study_of(**{"base__schedule.kind": "cosine"})
    pruning = choose_pruning(study, space_of(study))
    wanted = pruning.describe(20)
    assert wanted.startswith("compared after 3 epochs, where one in three goes on; this saves about 57%")
    assert pruning.why in wanted
    assert "longest warm-up" in wanted
    assert "priors make trials similar" in wanted


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ({"scheduler__kind": "none"}, "no trial is stopped early: scheduler.kind is none"),
        ({"budget__epochs": 1}, "no trial is stopped early: no rung"),
        ({"scheduler__grace_epochs": 2}, "the study sets the epochs; "),
        ({"scheduler__rungs": [5]}, "compared after 5 epochs"),
        ({"scheduler__rungs": [1]}, "compared after 1 epoch, where"),
        ({"scheduler__rungs": [1, 5]}, "compared after 1 and 5 epochs, where"),
        ({"scheduler__rungs": [5], "scheduler__kind": "promotion"}, "paused after 5 epochs, where one in"),
        ({"scheduler__reduction_factor": 7}, "one in 7 goes on"),
        ({"scheduler__reduction_factor": 4}, "; the study sets how many go on"),
        ({**SGDR, "budget__epochs": 40}, "at the ends of the sgdr schedule's cycles"),
    ],
)
def test_each_case_is_said_in_its_own_words(values: dict[str, Any], wanted: str) -> None:
    study = study_of(**values)
    assert wanted in choose_pruning(study, space_of(study)).describe(study.budget.epochs)
