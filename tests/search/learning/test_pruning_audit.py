"""Tests the audit of pruning: which trials it trains, and what their ends say of the rungs."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import spearmanr

from search.deciding.audited import sampled
from search.deciding.pruning import Pruning
from search.learning.pruning_audit import Stratum, audit_of, rank_correlations
from search.record.journal import EpochEvent, Repeat, TrialEnd
from search.record.summary import Summary
from search.record.trials import HOURS_SPENT, Trial
from search.reporting.tables import audit_lines
from tests.epoch_results import epoch_result

EPOCHS, RUNG = 4, 1
PRUNING = Pruning((RUNG,), 3, "")


def trial(number: int, scores: Sequence[float], end: TrialEnd, of: int | None = None) -> Trial:
    repeat = None if of is None else Repeat(of=of, purpose="pruning")
    history = tuple(
        EpochEvent(
            trial=number,
            result=epoch_result(epoch, score, diverged=end == "diverged" and epoch == len(scores)),
            rung=RUNG if epoch == RUNG and repeat is None else None,
        )
        for epoch, score in enumerate(scores, start=1)
    )
    return Trial(id=number, values={}, repeat=repeat, history=history, end=end)


def summary(trials: Sequence[Trial], repeats: Sequence[Trial] = ()) -> Summary:
    return Summary(
        search="audited",
        search_id="0a",
        state="finished",
        outcome_reason=None,
        objective="val_accuracy",
        trials=tuple(trials),
        budget_epochs=EPOCHS,
        wall_seconds=1.0,
        repeats=tuple(repeats),
    )


def curve(first: float, last: float) -> list[float]:
    return [float(each) for each in np.linspace(first, last, EPOCHS)]


def search_of(firsts: Sequence[float], lasts: Sequence[float], go_on: int) -> tuple[list[Trial], list[Trial]]:
    """Return a search in which the `go_on` best at the rung finish, and all others trained to their end."""
    best = set(np.argsort(-np.array(firsts))[:go_on].tolist())
    whole = [curve(*ends) for ends in zip(firsts, lasts, strict=True)]
    trials = [
        trial(number, each if number in best else each[:RUNG], "finished" if number in best else "stopped")
        for number, each in enumerate(whole)
    ]
    repeats = [
        trial(100 + number, each, "finished", of=number)
        for number, each in enumerate(whole)
        if number not in best
    ]
    return trials, repeats


RANDOM = np.random.default_rng(0)
FIRSTS = RANDOM.uniform(0.1, 0.5, 12).tolist()
LASTS = (np.array(FIRSTS) + RANDOM.uniform(0.0, 0.5, 12)).tolist()


def test_a_share_of_each_rungs_stopped_trials_is_trained_and_more_for_a_larger_one() -> None:
    trials, _ = search_of(FIRSTS, LASTS, go_on=4)
    stopped = {each.id for each in trials if each.end == "stopped"}
    small, large = (sampled(summary(trials), share, seed=3) for share in (0.25, 0.5))
    assert (len(small), len(large)) == (2, 4)
    assert set(small) < set(large) <= stopped
    assert set(sampled(summary(trials), 1.0, seed=3)) == stopped
    assert sampled(summary(trials), 0.25, seed=4) != small


def test_trials_that_were_trained_before_are_not_trained_again() -> None:
    trials, repeats = search_of(FIRSTS, LASTS, go_on=4)
    before = sampled(summary(trials), 0.25, seed=3)
    done = [each for each in repeats if each.repeat is not None and each.repeat.of in before]
    assert set(sampled(summary(trials, done), 0.5, seed=3)).isdisjoint(before)
    assert sampled(summary(trials, done), 0.25, seed=3) == []


@pytest.mark.parametrize("epochs", [RUNG, RUNG + 1], ids=["at a rung", "between rungs"])
def test_trials_that_the_hours_cut_short_are_not_audited(epochs: int) -> None:
    trials, _ = search_of(FIRSTS, LASTS, go_on=4)
    stopped = {each.id for each in trials if each.end == "stopped"}
    cut = replace(trial(50, [0.2] * epochs, "stopped"), outcome_reason=HOURS_SPENT)
    assert set(sampled(summary([*trials, cut]), 1.0, seed=0)) == stopped


def test_trials_that_a_forecast_stopped_between_rungs_are_audited_with_the_rung_before() -> None:
    trials, _ = search_of(FIRSTS, LASTS, go_on=4)
    stopped = {each.id for each in trials if each.end == "stopped"}
    between = trial(50, [0.2] * (RUNG + 1), "stopped")
    found = summary([*trials, between])
    assert set(sampled(found, 1.0, 3)) == stopped | {50}
    done = trial(150, [0.2] * EPOCHS, "finished", of=50)
    audit = audit_of(summary([*trials, between], [done]), Pruning((RUNG,), 3, "", "model"))
    assert audit is not None
    assert (audit.stopped, audit.trained) == (len(stopped) + 1, (50,))


def test_with_all_trials_trained_the_correlation_is_that_of_the_whole_search() -> None:
    trials, repeats = search_of(FIRSTS, LASTS, go_on=4)
    found = audit_of(summary(trials, repeats), PRUNING)
    assert found is not None
    (rung,) = found.rungs
    assert rung.correlation == pytest.approx(spearmanr(FIRSTS, LASTS).statistic)
    assert rung.low < rung.correlation < rung.high


def test_a_trained_trial_stands_for_all_that_were_stopped_at_its_rung() -> None:
    trials, repeats = search_of([0.9, 0.8, 0.7, 0.3, 0.2, 0.1], [0.95, 0.8, 0.9, 0.5, 0.4, 0.3], go_on=3)
    one = [each for each in repeats if each.repeat is not None and each.repeat.of == 3]
    found = audit_of(summary(trials, one), PRUNING)
    assert found is not None
    assert (found.stopped, found.trained) == (3, (3,))
    whole = spearmanr([0.9, 0.8, 0.7, 0.3, 0.3, 0.3], [0.95, 0.8, 0.9, 0.5, 0.5, 0.5]).statistic
    assert found.rungs[0].correlation == pytest.approx(whole)


@pytest.mark.slow("judges many searches")
@pytest.mark.parametrize(("trials", "planted"), [(60, 0.5), (120, 0.8)])
def test_the_interval_holds_the_true_correlation_where_a_tenth_of_the_stopped_trials_is_audited(
    trials: int, planted: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("search.learning.pruning_audit.RESAMPLES", 200)
    random, searches, held = np.random.default_rng(1), 300, 0
    true = 6.0 / math.pi * math.asin(planted / 2.0)  # Spearman's, of two normal scores
    finished, audited = trials // 3, math.ceil(0.1 * (trials - trials // 3))
    for _ in range(searches):
        scores = random.multivariate_normal([0.0, 0.0], [[1.0, planted], [planted, 1.0]], trials)
        best, others = np.split(scores[np.argsort(-scores[:, 0])], [finished])
        chosen = random.permutation(others)[:audited]
        strata = [Stratum(best, 1), Stratum(chosen, round(len(others) / audited))]
        (rung,) = rank_correlations(strata, (1,))
        assert rung.low is not None
        assert rung.high is not None
        held += rung.low <= true <= rung.high
    # measured: 0.93 and 0.96; 0.54 to 0.62 where copies are drawn as trials of their own
    assert held / searches >= 0.85


def test_a_better_trial_that_was_stopped_is_named() -> None:
    trials, repeats = search_of([0.5, 0.4, 0.3], [0.6, 0.9, 0.5], go_on=1)
    found = audit_of(summary(trials, repeats), PRUNING)
    assert found is not None
    assert (found.better, found.chance, found.best) == ((1,), 1.0, 0.6)


def test_a_trial_that_diverges_when_it_is_trained_on_is_no_better() -> None:
    trials, _ = search_of([0.5, 0.4], [0.6, 0.9], go_on=1)
    found = audit_of(summary(trials, [trial(100, [0.4, 0.0], "diverged", of=1)]), PRUNING)
    assert found is not None
    assert found.better == ()


def test_nothing_ends_better_than_a_share_of_one() -> None:
    trials, repeats = search_of([0.5, 0.4, 0.3, 0.2, 0.1], [1.0, 0.9, 0.8, 0.7, 0.6], go_on=1)
    found = audit_of(summary(trials, repeats[:1]), PRUNING)
    assert found is not None
    assert (found.best, found.better, found.chance) == (1.0, (), 0.0)


def test_an_audit_says_the_chance_of_those_that_it_did_not_train_and_nothing_where_it_trained_all() -> None:
    trials, repeats = search_of(FIRSTS, [0.9 * each for each in FIRSTS], go_on=4)
    part, whole = (audit_of(summary(trials, each), PRUNING) for each in (repeats[:2], repeats))
    assert part is not None
    assert whole is not None
    assert 0.0 < part.chance < 1.0
    assert f"any of the other 6 would have ended better: {part.chance:.0%}" in "; ".join(
        audit_lines(part, (RUNG,))
    )
    assert whole.chance == 0.0
    assert "chance" not in "; ".join(audit_lines(whole, (RUNG,)))


def test_where_early_scores_are_right_the_first_rung_may_come_at_once() -> None:
    firsts = np.linspace(0.1, 0.5, 12).tolist()
    trials, repeats = search_of(firsts, [2 * each - 0.05 for each in firsts], go_on=4)
    found = audit_of(summary(trials, repeats), PRUNING)
    assert found is not None
    assert found.grace == 1
    assert [each.epoch for each in found.graces] == [1, 2]
    assert found.graces[0].worth == 1.0
    assert found.graces[0].spent < found.graces[1].spent < 1.0


def test_where_early_scores_are_wrong_no_early_rung_is_good_enough() -> None:
    firsts = np.linspace(0.1, 0.5, 12).tolist()
    trials, repeats = search_of(firsts, [1.0 - each for each in firsts], go_on=4)
    found = audit_of(summary(trials, repeats), PRUNING)
    assert found is not None
    assert found.grace is None
    assert found.rungs[0].correlation == pytest.approx(-1.0)
    assert all(math.isfinite(each.worth) for each in found.graces)


def test_a_search_in_which_nothing_was_trained_on_has_no_audit() -> None:
    trials, _ = search_of(FIRSTS, LASTS, go_on=4)
    assert audit_of(summary(trials), PRUNING) is None


def test_a_rung_that_every_resample_ranks_alike_has_no_interval() -> None:
    scores = np.array([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6], [0.7, 0.8], [0.8, 0.9]])
    (rung,) = rank_correlations([Stratum(scores, 1)], (1,))
    assert (rung.correlation, rung.low, rung.high) == (pytest.approx(1.0), None, None)
