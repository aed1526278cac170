"""Tests what a sampler learns from: trials at levels, ranked together whatever their outcome."""

from __future__ import annotations

import numpy as np
import pytest

from search.deciding.cube import Cube
from search.deciding.observations import MOST_LEVELS, Observations, incumbents, levels_of, score_table
from search.record.journal import TrialEnd
from tests.search.small_spaces import conditional_space
from trainable.recipe.metrics import Mode

SPACE = conditional_space()
Ended = tuple[TrialEnd, dict[int, float]]


def told(*ends: Ended, direction: Mode = "max", excesses: dict[int, float] | None = None) -> Observations:
    """Return what trials with these ends, numbered from 0, come to; `excesses` holds those above a limit."""
    observations = Observations(Cube(SPACE), direction)
    for number, (outcome, scores) in enumerate(ends):
        observations.add(number, SPACE.own)
        above = {"parameters": each} if (each := (excesses or {}).get(number)) is not None else {}
        observations.tell(number, outcome, scores, above)
    return observations


def test_levels_are_the_epochs_at_which_trials_ended() -> None:
    found = told(
        ("finished", {1: 0.1, 2: 0.2, 9: 0.5}), ("stopped", {1: 0.1, 3: 0.2}), ("diverged", {1: 0.1, 5: 0.1})
    )
    assert levels_of(found.observed) == [3, 9]


def test_of_many_epochs_those_at_which_most_trials_ended_and_the_last_are_levels() -> None:
    rare: list[Ended] = [("stopped", {epoch: 0.1}) for epoch in range(20, 40)]
    often: list[Ended] = [("stopped", {epoch: 0.1}) for epoch in range(1, 1 + MOST_LEVELS) for _ in range(2)]
    assert levels_of(told(*rare, *often).observed) == [*range(1, MOST_LEVELS), 39]


def test_where_all_scores_are_of_epoch_1_they_are_of_the_end() -> None:
    found = score_table(told(("finished", {1: 0.1}), ("finished", {1: 0.3})).observed)
    assert found.times_of(found.epochs).tolist() == [1.0, 1.0]
    later = score_table(told(("finished", {9: 0.1}), ("stopped", {3: 0.3})).observed)
    assert later.times_of(later.epochs) == pytest.approx([1.0, 0.5])


def test_a_trial_counts_at_each_level_and_all_scores_are_ranked_together() -> None:
    found = score_table(
        told(("stopped", {1: 0.1, 2: 0.3}), ("finished", {1: 0.0, 2: 0.3, 3: 0.2, 4: 0.9})).observed
    )
    assert found.places.tolist() == [0, 1, 1]
    assert found.epochs.tolist() == [2, 2, 4]
    assert found.ranks.tolist() == [1.5, 1.5, 3]
    assert found.rows(found.places).shape == (3, len(SPACE.dimensions))


def test_diverged_trials_rank_last_and_those_that_break_a_constraint_below_them() -> None:
    ends: list[Ended] = [
        ("infeasible", {}),
        ("diverged", {1: 0.99}),
        ("stopped", {2: 0.1}),
        ("infeasible", {}),
    ]
    found = score_table(told(*ends, excesses={0: 0.5, 3: 0.1}).observed)
    assert found.ranks.tolist() == [1, 3, 4, 2]
    assert np.isfinite(found.normal_scores).all()
    assert np.isfinite(found.stretched).all()


def test_what_is_minimised_is_ranked_the_other_way() -> None:
    found = score_table(told(("finished", {1: 0.1}), ("finished", {1: 0.3}), direction="min").observed)
    assert found.ranks.tolist() == [2, 1]


def test_nothing_is_learnt_from_failed_trials_and_those_without_a_score() -> None:
    found = told(("failed", {1: 0.5}), ("stopped", {}))
    assert found.observed == []
    assert len(found.open_rows()) == 0


def test_a_trial_outside_the_space_is_neither_learnt_from_nor_waited_for() -> None:
    found = told(("finished", {1: 0.5}))
    found.add(1, {**SPACE.own, "regularisation.label_smoothing": 0.9})
    found.add(2, SPACE.own)
    assert len(found.open_rows()) == 1
    found.tell(1, "finished", {1: 0.9}, {})
    assert [each.trial for each in found.observed] == [0]


@pytest.mark.parametrize(("count", "wanted"), [(2, [0]), (3, [9])])
def test_the_best_of_the_highest_level_with_enough_trials_are_worth_changing(
    count: int, wanted: list[int]
) -> None:
    early: list[Ended] = [("stopped", {1: 0.9 - number / 10}) for number in range(3)]
    late: list[Ended] = [("finished", {1: 0.1, 4: number / 10}) for number in range(count)]
    spoilt: list[Ended] = [("diverged", {1: 0.99}) for _ in range(4)]
    found = incumbents(told(*early, *spoilt, *late).observed)
    assert [each.trial for each in found][:1] == wanted


def test_what_was_told_of_a_paused_trial_is_replaced_when_it_goes_on() -> None:
    found = told(("stopped", {1: 0.5}), ("stopped", {1: 0.4}))
    found.tell(0, "finished", {1: 0.5, 2: 0.6}, {})
    assert [max(each.scores) for each in found.observed] == [1, 2]
    assert [[max(each.scores) for each in found.first_observed(times)] for times in (1, 2, 3)] == [
        [1],
        [1, 1],
        [2, 1],
    ]
    found.tell(0, "failed", {1: 0.5, 2: 0.6}, {})
    assert [each.trial for each in found.observed] == [1]
    assert [each.trial for each in found.first_observed(found.times_observed)] == [1]


def test_a_trial_that_trains_on_counts_where_it_is_and_stays_open_until_it_ends() -> None:
    found = Observations(Cube(SPACE), "max")
    found.add(0, SPACE.own)
    found.report(0, {1: 0.1})
    assert [each.end for each in found.observed] == [(1, 0.1)]
    assert len(found.open_rows()) == 1
    found.tell(0, "finished", {1: 0.1, 2: 0.3}, {})
    assert [each.end for each in found.observed] == [(2, 0.3)]
    assert len(found.open_rows()) == 0


def test_stretched_scores_keep_ranks_below_the_median_and_distances_above_it() -> None:
    ends: list[Ended] = [
        *[("finished", {1: score}) for score in (-1000.0, -5.0, 0.1, 0.2, 0.3, 0.31, 0.32, 0.4, 1.2)],
        ("diverged", {}),
    ]
    found = score_table(told(*ends).observed)
    below, above = found.scores <= 0.3, found.scores > 0.3
    np.testing.assert_array_equal(found.stretched[below], found.normal_scores[below])
    assert (np.diff(found.stretched[np.argsort(found.ranks)]) > 0).all()
    first, second, _, last = found.stretched[above]
    assert (last - first) / (second - first) == pytest.approx((1.2 - 0.31) / (0.32 - 0.31))


@pytest.mark.parametrize("scores", [[0.5, 0.5, 0.5], [0.5], []])
def test_scores_that_are_all_alike_are_not_stretched(scores: list[float]) -> None:
    ends: list[Ended] = [*[("finished", {1: score}) for score in scores], ("diverged", {})]
    found = score_table(told(*ends).observed)
    np.testing.assert_array_equal(found.stretched, found.normal_scores)


def test_the_scores_of_the_last_level_are_ranked_among_themselves() -> None:
    found = score_table(
        told(("stopped", {1: 0.9}), *[("finished", {1: 0.1, 4: each}) for each in (0.3, 0.2)]).observed
    )
    last = found.at_last_level
    assert last.scores.tolist() == [0.3, 0.2]
    assert last.ranks.tolist() == [2, 1]
    assert last.places.tolist() == [1, 2]
