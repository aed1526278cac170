"""Tests what the finalists' runs say: estimates and intervals against other ways to compute them."""

from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats

from search.followers.run_updates import final_numbers
from search.record.finals import Finals, estimated, finals_of
from search.record.journal import EpochEvent, Repeat, TrialEnd
from search.record.trials import Trial
from search.reporting.tables import finals_table, winner_line
from tests.epoch_results import epoch_result
from trainable.recipe.provenance import AGREE

METRIC = "val_accuracy"


def ended(number: int, score: float, end: TrialEnd = "finished", repeat: Repeat | None = None) -> Trial:
    history = (EpochEvent(trial=number, result=epoch_result(1, score)),)
    return Trial(id=number, values={}, repeat=repeat, history=history, end=end)


def final(scores: Sequence[Sequence[float]], searched: Sequence[float] = (), over: bool = True) -> Finals:
    """Return the final of as many trials as there are rows; a row holds the scores with seeds 1, 2, ..."""
    chosen = [ended(number, score) for number, score in enumerate(searched or [max(row) for row in scores])]
    runs = [
        ended(10 * number + seed, score, repeat=Repeat(of=number, purpose="finalist", seed=seed))
        for number, row in enumerate(scores)
        for seed, score in enumerate(row, start=1)
    ]
    return finals_of(chosen, runs, METRIC, 1.0, over=over)


def values(final: Finals) -> list[float]:
    return [each.estimate.value for each in final.finalists if each.estimate is not None]


def test_one_finalist_has_the_mean_and_the_t_interval_of_its_runs() -> None:
    runs = [0.81, 0.84, 0.80, 0.83]
    (found,) = final([runs]).finalists
    wanted = stats.t.interval(0.95, 3, np.mean(runs), stats.sem(runs))
    assert found.estimate is not None
    assert found.estimate.value == pytest.approx(np.mean(runs))
    assert found.estimate.bounds == pytest.approx(wanted)
    assert found.estimate.deviation == pytest.approx(np.std(runs, ddof=1))
    assert found.gap == pytest.approx(0.84 - np.mean(runs))


def test_mean_squares_are_those_of_a_least_squares_fit() -> None:
    rng = np.random.default_rng(0)
    scores = 0.8 + 0.02 * rng.standard_normal((3, 4)) + 0.03 * np.array([[1.0], [0.0], [-1.0]])
    estimates, half_width = estimated(scores)

    def unexplained(*designs: np.ndarray) -> float:
        rows = np.column_stack([np.ones(12), *designs])
        fit = np.linalg.lstsq(rows, scores.reshape(-1), rcond=None)[0]
        return float(((scores.reshape(-1) - rows @ fit) ** 2).sum())

    finalist, seed = np.repeat(np.eye(3), 4, axis=0), np.tile(np.eye(4), (3, 1))
    residual = unexplained(finalist, seed) / 6
    between = (unexplained(seed) - unexplained(finalist, seed)) / 2
    of_seeds = (unexplained(finalist) - unexplained(finalist, seed)) / 3
    kept = 1.0 - residual / between
    assert 0.0 < kept < 1.0
    assert estimates == pytest.approx(scores.mean() + kept * (scores.mean(1) - scores.mean()))
    total = of_seeds + 2 * residual
    freedom = total**2 / (of_seeds**2 / 3 + (2 * residual) ** 2 / 6)
    assert half_width == pytest.approx(stats.t.ppf(0.975, freedom) * (total / 12) ** 0.5)


@pytest.mark.parametrize("spread", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("luck_of_splits", [0.0, 1.5])
def test_the_winners_interval_holds_its_true_mean_in_nine_searches_of_ten(
    spread: float, luck_of_splits: float
) -> None:
    rng = np.random.default_rng(1)
    searches, held, bias = 2_000, 0, 0.0
    for _ in range(searches):
        truth = spread * rng.standard_normal(3)
        luck = rng.standard_normal((3, 3)) + luck_of_splits * rng.standard_normal(3)
        estimates, half_width = estimated(truth[:, None] + luck)
        winner = int(np.argmax(estimates))
        held += abs(estimates[winner] - truth[winner]) <= half_width
        bias += (estimates[winner] - truth[winner]) / searches
    assert held / searches > 0.93  # measured: 0.94 to 0.97
    assert abs(bias) < 0.25  # the mean of the best of three is 0.49 too high where they are equally good


def test_equal_recipes_are_drawn_together_and_different_ones_stay_apart() -> None:
    alike = final([[0.80, 0.82, 0.84], [0.82, 0.84, 0.80], [0.84, 0.80, 0.821]])
    assert values(alike) == pytest.approx([0.8203] * 3, abs=1e-3)
    apart = final([[0.90, 0.901, 0.902], [0.70, 0.701, 0.702]])
    assert values(apart) == pytest.approx([0.901, 0.701], abs=1e-6)


def test_the_winner_is_the_best_by_fresh_seeds_and_not_by_the_search() -> None:
    found = final([[0.80, 0.81, 0.80], [0.84, 0.86, 0.85]], searched=[0.90, 0.89])
    assert found.winner is not None
    assert (found.winner.trial, found.winner.score) == (1, 0.89)
    assert found.winner.gap == pytest.approx(0.89 - values(found)[1])


def test_of_equal_estimates_the_best_mean_wins_and_the_line_says_so() -> None:
    apart, alike = final([[0.80, 0.81], [0.84, 0.86]]), final([[0.80, 0.86], [0.85, 0.80]])
    assert apart.winner is not None
    assert alike.winner is not None
    assert (apart.winner.trial, alike.winner.trial) == (1, 0)
    assert "of trial 1; the search" in winner_line(apart, METRIC)
    assert "of trial 0, which has the best mean of equal estimates; the search" in winner_line(alike, METRIC)


def test_nobody_wins_before_the_final_is_over() -> None:
    assert final([[0.80, 0.81], [0.84, 0.86]], over=False).winner is None


def test_an_interval_has_no_values_that_a_share_cannot_have() -> None:
    (found,) = final([[0.99, 1.0]]).finalists
    assert found.estimate is not None
    assert found.estimate.interval is not None
    assert found.estimate.interval.high == 1.0
    assert found.estimate.interval.low < 0.99


@pytest.mark.parametrize("scores", [[[0.9, 0.9, 0.9]], [[1.0, 1.0], [0.8, 0.8]]])
def test_seeds_that_agree_give_no_interval_but_words(scores: list[list[float]]) -> None:
    found = final(scores)
    assert [each.estimate.bounds for each in found.finalists if each.estimate] == [(None, None)] * len(scores)
    assert AGREE in winner_line(found, METRIC)
    assert [row[-1] for row in finals_table(found, METRIC).rows] == [AGREE] * len(scores)
    assert all(
        numbers.keys() == {"final_estimate", "final_mean", "final_deviation"}
        for numbers in final_numbers(found).values()
    )


@pytest.mark.parametrize("end", ["diverged", "failed"])
def test_a_recipe_that_fails_with_one_seed_takes_no_further_part(end: TrialEnd) -> None:
    chosen = [ended(0, 0.9), ended(1, 0.8)]
    scores = {(0, 1): "finished", (0, 2): end, (1, 1): "finished", (1, 2): "finished"}
    runs = [
        ended(10 + 2 * of + seed, 0.9 - 0.1 * of, state, Repeat(of=of, purpose="finalist", seed=seed))
        for (of, seed), state in scores.items()
    ]
    found = finals_of(chosen, runs, METRIC, 1.0, over=True)
    assert found.winner is not None
    assert found.winner.trial == 1
    assert found.finalists[0].estimate is None


def test_only_seeds_with_which_all_have_finished_count() -> None:
    chosen = [ended(0, 0.9), ended(1, 0.8)]
    runs = [
        ended(10, 0.9, repeat=Repeat(of=0, purpose="finalist", seed=1)),
        ended(11, 0.8, repeat=Repeat(of=1, purpose="finalist", seed=1)),
        ended(12, 0.92, repeat=Repeat(of=0, purpose="finalist", seed=2)),
        ended(13, 0.82, repeat=Repeat(of=1, purpose="finalist", seed=2)),
        ended(14, 0.99, repeat=Repeat(of=0, purpose="finalist", seed=3)),
        ended(15, 0.10, "stopped", Repeat(of=1, purpose="finalist", seed=3)),
    ]
    found = finals_of(chosen, runs, METRIC, 1.0, over=True)
    assert [each.estimate.scores for each in found.finalists if each.estimate] == [(0.9, 0.92), (0.8, 0.82)]


def test_one_common_seed_gives_no_estimate_and_no_winner() -> None:
    found = final([[0.9], [0.8]])
    assert found.winner is None
    assert [each.estimate for each in found.finalists] == [None, None]
