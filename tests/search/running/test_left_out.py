"""Tests what is left out: GPUs and machines on which several trials failed."""

from __future__ import annotations

from collections.abc import Sequence

from search.record.machines import LeftOut
from search.running.left_out import SURE, TRIALS, Suspects
from trainable.tune.place import Gpu, Place


def place(node: str, gpu: str = "", address: str = "") -> Place:
    gpus = (Gpu(number=gpu),) if gpu else ()
    return Place(
        machine=f"host-{node}", address=address or f"10.0.0.{ord(node)}", node=node, process=1, gpus=gpus
    )


HERE, OTHER, ELSEWHERE = place("a", "3"), place("a", "2"), place("b", "0")


def words(found: Sequence[LeftOut]) -> list[str]:
    return [str(each) for each in found]


def both(suspects: Suspects) -> None:
    """Show that the machine has two GPUs."""
    for each in (HERE, OTHER):
        suspects.saw(each)
        assert each not in suspects


def test_a_gpu_on_which_three_trials_in_a_row_failed_is_left_out_and_that_is_said_once() -> None:
    suspects = Suspects()
    both(suspects)
    said = [suspects.failed(trial, HERE) for trial in (7, 4, 9, 11)]
    line = "host-a (10.0.0.97), GPU 3: left out, since trials 4, 7 and 9 failed there"
    assert [*map(words, said)] == [[], [], [line], []]
    assert words(suspects.why) == [line]
    assert (HERE in suspects, OTHER in suspects) == (True, False)


def test_one_trial_that_fails_again_and_again_says_nothing_of_its_place() -> None:
    suspects = Suspects()
    for _ in range(3 * TRIALS):
        assert not suspects.failed(5, HERE)
        suspects.finished_epoch(5, ELSEWHERE)
    assert HERE not in suspects


def test_an_epoch_in_between_shows_that_the_place_works() -> None:
    suspects = Suspects()
    suspects.finished_epoch(99, ELSEWHERE)
    for trial in range(3 * TRIALS):
        suspects.failed(trial, HERE)
        suspects.finished_epoch(98, HERE)
        suspects.finished_epoch(trial, ELSEWHERE)
    assert HERE not in suspects


def test_a_bad_gpu_of_several_does_not_take_its_machine_along() -> None:
    suspects = Suspects()
    both(suspects)
    for trial in range(TRIALS + 2):
        suspects.failed(trial, HERE)
        suspects.finished_epoch(trial, ELSEWHERE)
    assert words(suspects.why) == [
        "host-a (10.0.0.97), GPU 3: left out, since trials 0, 1 and 2 failed there"
    ]
    assert (HERE in suspects, OTHER in suspects) == (True, False)


def test_the_gpus_of_a_machine_are_counted_one_by_one_and_those_of_another_machine_are_others() -> None:
    suspects = Suspects()
    restarted = place("b", "3", HERE.address)
    for trial, each in enumerate([HERE, OTHER, restarted] * (TRIALS - 1)):
        suspects.failed(trial, each)
    assert words(suspects.why) == []
    suspects.failed(90, OTHER)
    assert [each in suspects for each in (HERE, OTHER, restarted)] == [False, True, False]


def test_a_machine_on_which_two_trials_failed_one_of_which_another_one_has_trained_is_left_out() -> None:
    suspects, bad, good = Suspects(), place("a"), place("b")
    assert suspects.failed(1, bad) == []
    suspects.finished_epoch(1, good)
    assert SURE == 2
    assert words(suspects.failed(2, bad)) == [
        "host-a (10.0.0.97): left out, since trials 1 and 2 failed there"
    ]
    assert (bad in suspects, good in suspects) == (True, False)
    assert suspects.failed(3, bad) == []


def test_all_gpus_of_a_machine_go_with_it() -> None:
    suspects = Suspects()
    both(suspects)
    suspects.failed(0, HERE)
    suspects.finished_epoch(0, ELSEWHERE)
    assert words(suspects.failed(1, OTHER)) == [
        "host-a (10.0.0.97): left out, since trials 0 and 1 failed there"
    ]
    assert place("a", "0") in suspects


def test_trials_that_train_nowhere_say_nothing_of_the_only_machine() -> None:
    suspects = Suspects()
    for trial in range(3 * TRIALS):
        assert suspects.failed(trial, place("a")) == []


def test_a_machine_on_which_all_fail_while_another_one_trains_is_left_out() -> None:
    suspects = Suspects()
    suspects.failed(0, place("a"))
    suspects.finished_epoch(50, place("b"))
    said = [words(suspects.failed(trial, place("a"))) for trial in range(1, TRIALS)]
    assert said == [[], ["host-a (10.0.0.97): left out, since trials 0, 1 and 2 failed there"]]


def test_a_fault_that_strikes_all_machines_at_once_leaves_out_none() -> None:
    """Those that come back train; what failed on the others before is no further failure."""
    suspects = Suspects()
    machines = [place("a"), place("b"), place("c")]
    for trial in range(9):
        suspects.finished_epoch(trial, machines[trial % 3])
    for trial in range(9):
        suspects.failed(trial, machines[trial % 3])
    for trial in range(9):
        suspects.finished_epoch(trial, machines[(trial + 1) % 3])
    assert words(suspects.why) == []


def test_the_last_machine_stays() -> None:
    suspects, first, last = Suspects(), place("a"), place("b")
    for trial in (0, 1):
        suspects.failed(trial, first)
        suspects.finished_epoch(trial, last)
    assert first in suspects
    for trial in range(2, 9):
        suspects.failed(trial, last)
        suspects.finished_epoch(trial, first)  # of a trial that had begun there
    assert last not in suspects
