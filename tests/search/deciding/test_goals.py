"""Tests when a search needs no more trials: a target, or no more gain than luck; and that resuming agrees."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from pathlib import Path
from statistics import fmean

import pytest

from search.deciding.goals import Goals, expected_gain, goals_of
from search.deciding.ledger import Decision, Ledger
from search.record.home import EVENTS_FILE
from search.record.journal import EpochEvent, TrialEnd, read
from search.record.record import Record
from search.record.trials import NO_MORE_GAIN, TARGET_REACHED, Trial
from search.study import StudyError
from search.study.study import Finalists
from spaces.domains import Value
from tests.search.deciding.small_ledgers import SLOTS, TRIALS, Open, ends, result, trained, try_kills
from tests.search.small_studies import study_of
from trainable.curves.levels import error_of_share

REACHED = Goals("val_accuracy", "max", target=0.8)


def finished(scores: Sequence[float], end: TrialEnd = "finished") -> list[Trial]:
    return [
        Trial(id=number, values={}, end=end, history=(EpochEvent(trial=number, result=result(1, score)),))
        for number, score in enumerate(scores)
    ]


def drive_deep(ledger: Ledger) -> None:
    """Train on three slots; the running trial with the most epochs is always the next, so that some trials
    end long before others begin."""
    ledger.begin("test")
    running: dict[int, dict[str, Value]] = {}
    while True:
        while len(running) < SLOTS and (proposal := ledger.propose()) is not None:
            ledger.start(proposal.trial, ledger.epochs_done(proposal.trial))
            running[proposal.trial] = dict(proposal.values)
        if not running:
            return
        trial = max(running, key=lambda number: (ledger.epochs_done(number), -number))
        decision = ledger.epoch(trial, trained(running[trial], ledger.epochs_done(trial) + 1))
        if decision is not Decision.CONTINUE:
            del running[trial]


def trials_of(folder: Path) -> list[Trial]:
    return Record(read(folder / EVENTS_FILE)).trials


def test_a_target_is_reached_by_a_finished_trial_alone() -> None:
    assert REACHED(finished([0.9], end="stopped")) is None
    assert REACHED(finished([0.7, 0.79])) is None
    words = REACHED(finished([0.7, 0.85, 0.85]))
    assert words == f"{TARGET_REACHED}: val_accuracy 0.8500 of trial 1, asked was 0.8"
    lowest = Goals("val_loss", "min", target=0.2)
    assert lowest(finished([0.7])) is None
    assert lowest(finished([0.9])) is not None


def test_the_expected_gain_is_the_mean_over_all_orders() -> None:
    scores = [0.1, 0.5, 0.5, 0.2, 0.9, 0.4]
    for more in (1, 2, 3):
        gains = [max(order) - max(order[:-more]) for order in permutations(scores)]
        last = max(scores) - max(scores[:-more])
        assert expected_gain(scores, more) == pytest.approx(max(fmean(gains), last))
    assert expected_gain(scores, 4) is None, "too few trials say nothing"


def test_what_the_last_trials_gained_counts_also_where_the_mean_is_lower() -> None:
    assert expected_gain([0.1] * 9 + [0.5], 2) == pytest.approx(0.4)
    assert expected_gain([0.5] + [0.1] * 9, 2) == pytest.approx(0.4 * 2 / 10)


def test_no_gain_is_expected_once_it_is_below_luck() -> None:
    scores = [0.9, 0.901, 0.902, 0.9, 0.85, 0.88, 0.9, 0.9]
    coarse, fine = (
        Goals("val_accuracy", "max", no_gain=3, validation_images=images) for images in (100, 10**6)
    )
    words = coarse(finished(scores))
    assert words is not None
    assert words.startswith(f"{NO_MORE_GAIN}: 3 trials more should gain 0.00")
    assert fine(finished(scores)) is None
    assert coarse(finished(scores[:5])) is None, "five are fewer than twice three"
    assert 0.0 < error_of_share(1.0, 100) < error_of_share(0.9, 100)


def test_a_reached_target_ends_the_trials_under_way_and_leaves_the_finalists(
    open_ledger: Open, tmp_path: Path
) -> None:
    ledger = open_ledger(goal=REACHED, finalists=Finalists(top=1, seeds=2), begun=False)
    drive_deep(ledger)
    trials = trials_of(tmp_path)
    own = [each for each in trials if not each.is_repeat]
    assert len(own) < TRIALS
    assert any(each.is_cut_short for each in own)
    assert all((each.outcome_reason or "") == ledger.reached for each in own if each.is_cut_short)
    assert [each.end for each in trials if each.is_repeat] == ["finished", "finished"]
    assert ledger.is_complete


@pytest.mark.parametrize(
    "goal", [REACHED, Goals("val_accuracy", "max", no_gain=2, validation_images=4)], ids=["target", "no gain"]
)
def test_a_search_that_is_killed_in_any_line_ends_at_the_same_goal(
    open_ledger: Open, tmp_path: Path, goal: Goals
) -> None:
    whole = tmp_path / "whole"
    drive_deep(open_ledger(whole, goal=goal, begun=False))
    assert len(ends(whole)) < TRIALS
    lines = len((whole / EVENTS_FILE).read_bytes().splitlines())

    def drive_one(folder: Path) -> None:
        drive_deep(open_ledger(folder, goal=goal, begun=False))

    try_kills(whole, range(2, lines), drive_one)


def test_an_extension_trains_what_it_asks_for_whatever_is_reached(open_ledger: Open, tmp_path: Path) -> None:
    drive_deep(open_ledger(goal=REACHED, begun=False))
    before = len(trials_of(tmp_path))
    again = open_ledger(goal=REACHED)
    again.begin("test")
    again.extend(before + 4)
    drive_deep(again)
    assert len(trials_of(tmp_path)) == before + 4
    assert again.reached is None


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"budget__target": 95}, "val_accuracy lies between 0 and 1, got 95; write 0.95 for 95 %"),
        ({"budget__target": 0}, "lies between 0 and 1, got 0"),
        ({"budget__target": -1, "objective__metric": "val_loss"}, "val_loss is never below 0"),
        ({"budget__no_gain": True, "objective__metric": "val_loss"}, "write budget.target instead"),
        ({"budget__no_gain": 1}, "budget.no_gain"),
        ({"budget__price": 5}, "needs price_per_gpu_hour"),
    ],
)
def test_a_goal_that_means_nothing_is_refused(values: dict[str, object], words: str) -> None:
    with pytest.raises(StudyError) as refused:
        study_of(**values)
    assert words in str(refused.value)


def test_a_study_has_its_goals() -> None:
    assert goals_of(study_of(), 100)(finished([1.0] * 30)) is None
    goals = goals_of(study_of(budget__no_gain=True, budget__target=0.97), 100)
    assert (goals.no_gain, goals.target) == (10, 0.97)
    assert goals_of(study_of(budget__no_gain=4), 100).no_gain == 4


def test_gpu_hours_are_those_of_the_tighter_limit() -> None:
    budget = study_of(budget__gpu_hours=4, budget__price=6, budget__price_per_gpu_hour=2).budget
    assert budget.most_gpu_hours == 3
    assert budget.is_time
    assert study_of().budget.most_gpu_hours is None
