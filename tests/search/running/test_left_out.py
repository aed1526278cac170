"""Tests what is left out: GPUs and machines on which several trials failed."""

from __future__ import annotations

from search.running.left_out import SURE, TRIALS, LeftOut
from trainable.tune.place import Gpu, Place


def place(node: str, gpu: str = "", address: str = "") -> Place:
    gpus = (Gpu(number=gpu),) if gpu else ()
    return Place(
        machine=f"host-{node}", address=address or f"10.0.0.{ord(node)}", node=node, process=1, gpus=gpus
    )


HERE, OTHER, ELSEWHERE = place("a", "3"), place("a", "2"), place("b", "0")


def both(left_out: LeftOut) -> None:
    """Show that the machine has two GPUs."""
    for each in (HERE, OTHER):
        left_out.saw(each)
        assert each not in left_out


def test_a_gpu_on_which_three_trials_in_a_row_failed_is_left_out_and_that_is_said_once() -> None:
    left_out = LeftOut()
    both(left_out)
    said = [left_out.failed(trial, HERE) for trial in (7, 4, 9, 11)]
    words = ["host-a (10.0.0.97), GPU 3: left out, since trials 4, 7 and 9 failed there"]
    assert said == [[], [], words, []]
    assert left_out.words == words
    assert (HERE in left_out, OTHER in left_out) == (True, False)


def test_one_trial_that_fails_again_and_again_says_nothing_of_its_place() -> None:
    left_out = LeftOut()
    for _ in range(3 * TRIALS):
        assert not left_out.failed(5, HERE)
        left_out.finished_epoch(5, ELSEWHERE)
    assert HERE not in left_out


def test_an_epoch_in_between_shows_that_the_place_works() -> None:
    left_out = LeftOut()
    left_out.finished_epoch(99, ELSEWHERE)
    for trial in range(3 * TRIALS):
        left_out.failed(trial, HERE)
        left_out.finished_epoch(98, HERE)
        left_out.finished_epoch(trial, ELSEWHERE)
    assert HERE not in left_out


def test_a_bad_gpu_of_several_does_not_take_its_machine_along() -> None:
    left_out = LeftOut()
    both(left_out)
    for trial in range(TRIALS + 2):
        left_out.failed(trial, HERE)
        left_out.finished_epoch(trial, ELSEWHERE)
    assert left_out.words == ["host-a (10.0.0.97), GPU 3: left out, since trials 0, 1 and 2 failed there"]
    assert (HERE in left_out, OTHER in left_out) == (True, False)


def test_the_gpus_of_a_machine_are_counted_one_by_one_and_those_of_another_machine_are_others() -> None:
    left_out = LeftOut()
    restarted = place("b", "3", HERE.address)
    for trial, each in enumerate([HERE, OTHER, restarted] * (TRIALS - 1)):
        left_out.failed(trial, each)
    assert left_out.words == []
    left_out.failed(90, OTHER)
    assert [each in left_out for each in (HERE, OTHER, restarted)] == [False, True, False]


def test_a_machine_on_which_two_trials_failed_one_of_which_another_one_has_trained_is_left_out() -> None:
    left_out, bad, good = LeftOut(), place("a"), place("b")
    assert left_out.failed(1, bad) == []
    left_out.finished_epoch(1, good)
    assert SURE == 2
    assert left_out.failed(2, bad) == ["host-a (10.0.0.97): left out, since trials 1 and 2 failed there"]
    assert (bad in left_out, good in left_out) == (True, False)
    assert left_out.failed(3, bad) == []


def test_all_gpus_of_a_machine_go_with_it() -> None:
    left_out = LeftOut()
    both(left_out)
    left_out.failed(0, HERE)
    left_out.finished_epoch(0, ELSEWHERE)
    assert left_out.failed(1, OTHER) == ["host-a (10.0.0.97): left out, since trials 0 and 1 failed there"]
    assert place("a", "0") in left_out


def test_trials_that_train_nowhere_say_nothing_of_the_only_machine() -> None:
    left_out = LeftOut()
    for trial in range(3 * TRIALS):
        assert left_out.failed(trial, place("a")) == []


def test_a_machine_on_which_all_fail_while_another_one_trains_is_left_out() -> None:
    left_out = LeftOut()
    left_out.failed(0, place("a"))
    left_out.finished_epoch(50, place("b"))
    said = [left_out.failed(trial, place("a")) for trial in range(1, TRIALS)]
    assert said == [[], ["host-a (10.0.0.97): left out, since trials 0, 1 and 2 failed there"]]


def test_a_fault_that_strikes_all_machines_at_once_leaves_out_none() -> None:
    """Those that come back train; what failed on the others before is no further failure."""
    left_out = LeftOut()
    machines = [place("a"), place("b"), place("c")]
    for trial in range(9):
        left_out.finished_epoch(trial, machines[trial % 3])
    for trial in range(9):
        left_out.failed(trial, machines[trial % 3])
    for trial in range(9):
        left_out.finished_epoch(trial, machines[(trial + 1) % 3])
    assert left_out.words == []


def test_the_last_machine_stays() -> None:
    left_out, first, last = LeftOut(), place("a"), place("b")
    for trial in (0, 1):
        left_out.failed(trial, first)
        left_out.finished_epoch(trial, last)
    assert first in left_out
    for trial in range(2, 9):
        left_out.failed(trial, last)
        left_out.finished_epoch(trial, first)  # of a trial that had begun there
    assert last not in left_out
