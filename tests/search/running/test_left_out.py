"""Tests which GPUs are left out: those on which several trials in a row crashed."""

from __future__ import annotations

from search.running.left_out import TRIALS, LeftOut
from trainable.tune.trial import Gpu

HERE, OTHER = Gpu("a1", "10.0.0.5", "3"), Gpu("a1", "10.0.0.5", "2")


def test_a_gpu_on_which_three_trials_in_a_row_crashed_is_left_out_and_that_is_said_once() -> None:
    left_out = LeftOut()
    said = [left_out.crashed(trial, [HERE]) for trial in (7, 4, 9, 11)]
    assert said == [[], [], ["10.0.0.5, GPU 3: left out, since trials 4, 7 and 9 failed there"], []]
    assert (HERE in left_out, OTHER in left_out) == (True, False)


def test_one_trial_that_crashes_again_and_again_says_nothing_of_its_gpu() -> None:
    left_out = LeftOut()
    assert not any(left_out.crashed(5, [HERE]) for _ in range(3 * TRIALS))
    assert HERE not in left_out


def test_an_epoch_in_between_shows_that_the_gpu_works() -> None:
    left_out = LeftOut()
    for trial in range(3 * TRIALS):
        left_out.crashed(trial, [HERE])
        if trial % (TRIALS - 1) == TRIALS - 2:
            left_out.finished_epoch([HERE])
    assert HERE not in left_out


def test_an_epoch_on_another_gpu_shows_nothing() -> None:
    left_out = LeftOut()
    for trial in range(TRIALS):
        left_out.crashed(trial, [HERE])
        left_out.finished_epoch([OTHER])
    assert HERE in left_out


def test_the_gpus_of_a_machine_are_counted_one_by_one_and_those_of_another_machine_are_others() -> None:
    left_out = LeftOut()
    restarted = Gpu("b2", HERE.address, HERE.number)
    for trial, gpu in enumerate([HERE, OTHER, restarted] * (TRIALS - 1)):
        left_out.crashed(trial, [gpu])
    assert left_out.words == []
    left_out.crashed(90, [OTHER])
    assert [gpu in left_out for gpu in (HERE, OTHER, restarted)] == [False, True, False]
