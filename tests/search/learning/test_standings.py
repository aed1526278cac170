"""Tests standings: pairs meet where both trials were scored, and only where the search itself compares."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search.learning.standings import compared_epochs, standings
from search.record.journal import TrialEnd
from search.record.summary import Summary
from search.record.trials import Trial, TrialState
from tests.search.small_events import epoch

EPOCHS = 18


def trial(number: int, state: TrialState, scores: Mapping[int, float]) -> Trial:
    """Return a trial with these scores at the epochs that are compared, and worse ones between them."""
    last = max(scores, default=0)
    history = tuple(
        epoch(
            number, each, scores.get(each, -9.0), each if each in (2, 6) else None, val_loss=scores.get(each)
        )
        for each in range(1, last + 1)
    )
    outcomes: dict[TrialState, TrialEnd] = {each: each for each in get_args(TrialEnd)}
    return Trial(
        id=number,
        values={},
        attempts=state != "queued",
        trains=state == "running",
        history=history,
        end=outcomes.get(state),
    )


def summary(*trials: Trial, objective: str = "val_accuracy") -> Summary:
    return Summary("x", None, "finished", None, objective, trials, EPOCHS, 0.0)


def standing(*trials: Trial, objective: str = "val_accuracy") -> dict[int, float]:
    return dict(standings(summary(*trials, objective=objective)))


def test_a_pair_meets_at_the_last_epoch_that_both_have_reached() -> None:
    late = trial(0, "finished", {2: 0.1, 6: 0.6, 18: 0.9})
    early = trial(1, "finished", {2: 0.3, 6: 0.5, 18: 0.8})
    stopped = trial(2, "stopped", {2: 0.2})
    assert standing(late, early) == {0: 100.0, 1: 0.0}, "the last epoch counts, not the first rung"
    assert standing(late, stopped) == {0: 0.0, 2: 100.0}, "at epoch 2, whatever came of the longer one later"
    assert standing(late, early, stopped) == {0: 50.0, 1: 50.0, 2: 50.0}


def test_scores_of_different_epochs_are_never_compared() -> None:
    low = trial(0, "finished", {2: 0.5, 6: 0.01, 18: 0.02})
    high = trial(1, "stopped", {2: 0.4})
    assert standing(low, high) == {0: 100.0, 1: 0.0}


def test_a_lower_loss_is_better() -> None:
    assert standing(
        trial(0, "finished", {2: 1.0, 6: 1.0, 18: 1.0}),
        trial(1, "finished", {2: 2.0, 6: 2.0, 18: 2.0}),
        objective="val_loss",
    ) == {0: 100.0, 1: 0.0}


def test_a_tie_is_half_a_win() -> None:
    equals = [trial(number, "stopped", {2: 0.5}) for number in range(3)]
    assert standing(*equals) == {0: 50.0, 1: 50.0, 2: 50.0}


def test_diverged_trials_lose_to_all_others_and_tie_among_themselves() -> None:
    worst = trial(0, "stopped", {2: 0.0})
    late = trial(1, "diverged", {2: 0.9, 6: 0.9})
    early = trial(2, "diverged", {})
    assert standing(worst, late, early) == {0: 100.0, 1: 25.0, 2: 25.0}


@pytest.mark.parametrize("state", ["failed", "running", "paused", "queued"])
def test_trials_that_failed_or_go_on_are_left_out(state: TrialState) -> None:
    others = [trial(0, "stopped", {2: 0.1}), trial(1, "stopped", {2: 0.2})]
    assert standing(*others, trial(2, state, {2: 0.9})) == standing(*others)


def test_a_trial_cut_short_before_the_first_rung_is_left_out() -> None:
    others = [trial(0, "stopped", {2: 0.1}), trial(1, "stopped", {2: 0.2})]
    assert standing(*others, trial(2, "stopped", {1: 0.9})) == standing(*others)


def test_one_cut_short_between_rungs_meets_others_at_the_rung_before() -> None:
    cut = trial(0, "stopped", {2: 0.1, 4: 0.99})
    assert standing(cut, trial(1, "finished", {2: 0.2, 6: 0.0, 18: 0.0})) == {0: 0.0, 1: 100.0}


def test_one_trial_has_no_standing_and_standings_average_fifty() -> None:
    assert standing(trial(0, "stopped", {2: 0.1})) == {}
    outcomes: list[TrialEnd] = ["stopped", "finished", "diverged", "stopped", "finished"]
    scores: tuple[dict[int, float], ...] = (
        {2: 0.3},
        {2: 0.4, 6: 0.1, 18: 0.2},
        {},
        {2: 0.1},
        {2: 0.2, 6: 0.2, 18: 0.2},
    )
    found = standing(*map(trial, count(), outcomes, scores))
    assert sum(found.values()) / len(found) == pytest.approx(50.0)


def test_trials_are_compared_at_the_rungs_that_were_reached_and_the_last_epoch() -> None:
    trials = (trial(0, "stopped", {2: 0.1}), trial(1, "finished", {2: 0.2, 6: 0.3, 18: 0.4}))
    assert compared_epochs(summary(*trials)) == (2, 6, 18)
    assert compared_epochs(summary(trials[0])) == (2, 18)
    assert compared_epochs(summary()) == (18,)


SCORES = st.integers(0, 3).map(lambda step: step / 4)
ENDED: st.SearchStrategy[tuple[TrialEnd, tuple[int, ...]]] = st.sampled_from(
    [("stopped", (2,)), ("stopped", (2, 6)), ("finished", (2, 6, 18)), ("diverged", ())]
)
DRAWN = ENDED.flatmap(
    lambda ended: st.tuples(st.just(ended[0]), st.fixed_dictionaries(dict.fromkeys(ended[1], SCORES)))
)


@given(
    ended=st.lists(DRAWN, min_size=2, max_size=12), objective=st.sampled_from(("val_accuracy", "val_loss"))
)
def test_standings_are_those_of_comparing_every_pair(
    ended: list[tuple[TrialEnd, dict[int, float]]], objective: str
) -> None:
    sign = 1 if objective == "val_accuracy" else -1

    def wins(one: Mapping[int, float], other: Mapping[int, float]) -> int:
        common = max(one.keys() & other.keys(), default=None)
        mine, others = (len(one), len(other)) if common is None else (one[common], other[common])
        return ((mine > others) - (mine < others)) * (1 if common is None else sign)

    trials = [trial(number, *each) for number, each in enumerate(ended)]
    expected = {
        number: 50 + 50 * sum(wins(scores, other) for _, other in ended) / (len(ended) - 1)
        for number, (_, scores) in enumerate(ended)
    }
    assert standing(*trials, objective=objective) == expected
