"""Tests what MLflow is told of trials that train others again, without MLflow."""

from __future__ import annotations

from pathlib import Path

import pytest

from search.followers.run_updates import Outbox, final_numbers, purpose_tags, run_name
from search.record.finals import finals_of
from search.record.journal import Event, Repeat
from search.record.trials import Trial
from tests.search.followers.small_final import (
    SEARCHED,
    a_search_with_a_final,
    an_audit,
    before_the_final,
    the_final,
)
from trainable.recipe import Recipe

FOLDER = Path("searches/small")


def outbox(events: list[Event]) -> Outbox:
    """Return an outbox with these events, one a second."""
    box = Outbox("val_accuracy", epochs=2)
    for number, event in enumerate(events):
        box.apply(event.model_copy(update={"sequence": number, "time": 100.0 + number}))
    return box


def numbers_of(box: Outbox, run: int | None) -> dict[str, float]:
    """Return the last value of each metric."""
    return {point.key: point.value for point in box.updates[run].points}


@pytest.mark.parametrize(
    ("repeat", "name"),
    [
        (None, "12"),
        (Repeat(of=5, purpose="finalist", seed=3), "5 again, seed 3"),
        (Repeat(of=5, purpose="finalist", seed=3, split=2), "5 again, seed 3, split 2"),
        (Repeat(of=5, purpose="pruning"), "5 to its end"),
    ],
)
def test_a_runs_name_says_which_trial_it_trains_again_and_how(repeat: Repeat | None, name: str) -> None:
    assert run_name(Trial(id=12, values={}, repeat=repeat)) == name
    recipe = Recipe().with_values({"model.width": 24})
    named = run_name(Trial(id=12, values={}, repeat=repeat, recipe=recipe.tree()))
    assert named == f"{name}: {recipe.sentence}"


def test_a_runs_name_is_no_longer_than_mlflows_table_has_room_for() -> None:
    recipe = Recipe().with_values({"model": {"kind": "timm", "name": "x" * 400}})
    assert len(run_name(Trial(id=12, values={}, recipe=recipe.tree()))) == 250


def test_tags_say_which_trial_is_trained_again_for_what_and_with_which_seeds() -> None:
    assert purpose_tags(None) == {"tunebook.purpose": "search"}
    assert purpose_tags(Repeat(of=5, purpose="finalist", seed=3, split=2)) == {
        "tunebook.purpose": "finalist",
        "tunebook.repeat_of": "5",
        "tunebook.seed": "3",
        "tunebook.split": "2",
    }
    pruning = purpose_tags(Repeat(of=5, purpose="pruning"))
    assert pruning == {"tunebook.purpose": "pruning", "tunebook.repeat_of": "5"}


def test_repeats_are_no_improvement_while_the_search_goes_on() -> None:
    box = outbox(a_search_with_a_final(FOLDER)[:-1])
    points = [point.value for point in box.updates[None].points if point.key == "best_val_accuracy"]
    assert points == [SEARCHED[0]] * 3, "one for each trial of the search"
    unfinished = outbox([*before_the_final(FOLDER), *the_final()[0]])
    assert unfinished.best is not None
    assert unfinished.best.id == 0


def test_at_the_end_the_winner_of_the_final_is_the_best() -> None:
    box = outbox(a_search_with_a_final(FOLDER))
    assert box.best is not None
    assert box.best.id == 1
    found = numbers_of(box, None)
    assert (found["best_trial"], found["best_val_accuracy"], found["trials"]) == (1, SEARCHED[1], 3)
    assert found["final_mean"] == pytest.approx(0.925)
    assert found["final_deviation"] == pytest.approx(0.01 / 2**0.5)
    assert found["final_low"] < found["final_estimate"] < found["final_high"]


def test_every_finalist_has_its_estimate_at_its_last_epoch_and_the_repeats_have_none() -> None:
    box = outbox(a_search_with_a_final(FOLDER))
    final = [point for point in box.updates[0].points if point.key.startswith("final_")]
    assert {point.step for point in final} == {2}
    assert numbers_of(box, 0)["final_mean"] == pytest.approx(0.81)
    assert numbers_of(box, 1)["final_estimate"] == numbers_of(box, None)["final_estimate"]
    assert not [name for run in range(2, 7) for name in numbers_of(box, run) if name.startswith("final_")]


def test_an_estimate_is_sent_when_all_of_its_runs_have_ended() -> None:
    interrupted = a_search_with_a_final(FOLDER)[-1].model_copy(update={"state": "interrupted"})
    first = [event for run in the_final()[:2] for event in run]
    box = outbox([*before_the_final(FOLDER), *first, interrupted])
    assert "final_estimate" not in numbers_of(box, None)
    assert "final_estimate" not in numbers_of(box, 0)
    assert numbers_of(box, None)["best_trial"] == 0


def test_an_audit_of_pruning_changes_neither_the_best_nor_the_estimates() -> None:
    before, after = (
        outbox(events)
        for events in (
            a_search_with_a_final(FOLDER),
            [*a_search_with_a_final(FOLDER), *an_audit(FOLDER)],
        )
    )
    assert after.best is not None
    assert after.best.id == 1
    same = ("best_trial", "best_val_accuracy", "final_estimate", "trials")
    assert [numbers_of(after, None)[key] for key in same] == [numbers_of(before, None)[key] for key in same]
    assert set(after.updates[1].points) == set(before.updates[1].points)


def test_without_a_winner_there_is_nothing_to_say() -> None:
    assert final_numbers(None) == {}
    assert final_numbers(finals_of([], [], "val_accuracy", 1.0, over=True)) == {}
