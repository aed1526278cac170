"""A search in simulated time charges every epoch, decides as the ledger does and repeats itself."""

from __future__ import annotations

import pytest
from optuna.trial import TrialState

from offline.our_search import Replay
from offline.replay import Replayed
from offline.search_task import SearchTask
from search.deciding.make import make_sampler
from search.deciding.sampler import RandomSampler
from search.deciding.scheduler import Asha, PromotionAsha, Scheduler
from search.deciding.tpe import TpeSampler
from tests.benchmarks.small_tasks import EPOCHS, SPACE, adamw, bowl, sgd, straight, task_of

UNPRUNED = Asha((), 3, "max")


def rising(scores: list[float]) -> SearchTask:
    """Rows that a search of rates from low to high meets in this order."""
    task: SearchTask = task_of(
        [straight(sgd(1e-3 * (number + 1)), score) for number, score in enumerate(scores)]
    )
    return task


def replay(
    task: SearchTask, budget: int, workers: int = 1, scheduler: Scheduler = UNPRUNED, seed: int = 0
) -> Replayed:
    return Replay(task.begin(), EPOCHS, RandomSampler(SPACE, seed), scheduler).run(budget, workers)


def test_a_trial_counts_once_its_last_epoch_is_paid_for() -> None:
    task = rising([0.5] * 6)
    assert replay(task, EPOCHS - 1).best == []
    assert replay(task, EPOCHS).best == [(EPOCHS, 0.5)]


def test_workers_share_the_budget() -> None:
    found = replay(rising([0.5] * 6), 2 * EPOCHS, workers=4)
    assert found.trials == 4
    assert found.ends == {}
    assert replay(rising([0.5] * 6), 2 * EPOCHS, workers=2).best == [(2 * EPOCHS - 1, 0.5)]


def test_only_what_is_better_moves_the_best() -> None:
    best = replay(bowl(), 30 * EPOCHS).best
    scores = [score for _, score in best]
    assert scores == sorted(set(scores))
    assert len(scores) > 1


def test_a_trial_that_diverges_costs_its_epochs_and_the_one_that_it_diverged_in() -> None:
    task = task_of([straight(sgd(0.1), 0.9, epochs=3), straight(adamw(1e-3), 0.5)], apart=None)
    sampler = RandomSampler(SPACE, 0)
    found = Replay(task.begin(), EPOCHS, sampler, UNPRUNED, own=sgd(0.1)).run(4 + EPOCHS, workers=1)
    assert found.ends == {"diverged": 1, "finished": 1}
    assert found.best == [(4 + EPOCHS, 0.5)]


@pytest.mark.parametrize("kind", [Asha, PromotionAsha])
def test_the_own_trial_is_trained_to_its_end_however_bad_it_is(kind: type[Scheduler]) -> None:
    rows = [straight(sgd(1e-3), 0.1), *(straight(adamw(1e-3 + 1e-6 * each), 0.9) for each in range(50))]
    sampler = RandomSampler(SPACE, 0)
    scheduler = kind((1, 3), 3, "max")
    found = Replay(task_of(rows).begin(), EPOCHS, sampler, scheduler, own=sgd(1e-3)).run(40, workers=4)
    assert found.best[0][1] == pytest.approx(0.1)


def test_pruning_lets_more_trials_start() -> None:
    pruned = replay(bowl(), 20 * EPOCHS, workers=4, scheduler=Asha((1, 3), 3, "max"))
    whole = replay(bowl(), 20 * EPOCHS, workers=4)
    assert pruned.trials > 1.5 * whole.trials
    assert pruned.ends["stopped"] > 0


def test_a_trial_that_was_paused_goes_on_where_it_was() -> None:
    """Of three at the rung the best goes on, and no fourth begins before it."""
    promotion = PromotionAsha((2,), 3, "max")
    found = replay(rising([0.1, 0.9, 0.3, 0.4]), 3 * 2 + EPOCHS - 2, scheduler=promotion)
    assert found.best == [(3 * 2 + EPOCHS - 2, pytest.approx(0.9))]
    assert (found.trials, found.ends) == (3, {"finished": 1, "stopped": 2})


def test_the_sampler_hears_of_every_trial_and_how_it_ended() -> None:
    sampler = TpeSampler(SPACE, 0, "max")
    found = Replay(bowl().begin(), EPOCHS, sampler, Asha((1, 3), 3, "max")).run(20 * EPOCHS, workers=4)
    states = [trial.state for trial in sampler.trials]
    assert len(states) == found.trials
    assert states.count(TrialState.COMPLETE) == found.ends["finished"]
    assert states.count(TrialState.PRUNED) == found.ends["stopped"] + found.ends.get("diverged", 0)
    assert states.count(TrialState.RUNNING) == found.trials - sum(found.ends.values())


def test_the_sampler_hears_the_values_of_the_row_that_it_got() -> None:
    task = task_of([straight(sgd(0.03, 0.5), 0.5)])
    sampler = TpeSampler(SPACE, 0, "max")
    Replay(task.begin(), EPOCHS, sampler, UNPRUNED).run(EPOCHS, workers=1)
    assert sampler.trials[0].params == SPACE.named(sgd(0.03, 0.5))


@pytest.mark.parametrize("kind", ["random", "tpe"])
def test_the_same_seed_gives_the_same_search(kind: str) -> None:
    def search(seed: int) -> Replayed:
        sampler = make_sampler(SPACE, "tpe" if kind == "tpe" else "random", seed, "max")
        return Replay(bowl().begin(), EPOCHS, sampler, Asha((1, 3), 3, "max")).run(12 * EPOCHS, workers=4)

    assert search(3) == search(3)
    assert search(3) != search(4)
