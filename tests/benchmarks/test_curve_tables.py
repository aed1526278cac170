"""A table gives a proposal the nearest row that is left, by the (log-)ranges of its space."""

from __future__ import annotations

import math

import pytest

from offline.curve_tables import Table, fashion_mnist, taskset
from offline.search_task import WORST
from tests.benchmarks.small_tasks import EPOCHS, SPACE, adamw, sgd, straight, task_of


def test_a_proposal_gets_the_nearest_row_on_the_ranges_own_scale() -> None:
    train = Table(SPACE, [straight(sgd(0.001), 0.1), straight(sgd(0.1), 0.2)]).begin()
    assert train(sgd(0.02)).values == sgd(0.1)


def test_each_row_is_given_once_a_search() -> None:
    table = Table(SPACE, [straight(sgd(0.001), 0.1), straight(sgd(0.1), 0.2)])
    train = table.begin()
    assert [train(sgd(0.1)).values, train(sgd(0.1)).values] == [sgd(0.1), sgd(0.001)]
    assert table.begin()(sgd(0.1)).values == sgd(0.1)


def test_a_search_that_wants_more_rows_than_there_are_is_refused() -> None:
    train = Table(SPACE, [straight(sgd(0.001), 0.1)]).begin()
    train(sgd(0.1))
    with pytest.raises(ValueError, match="all 1 rows have been tried"):
        train(sgd(0.1))


def test_another_option_counts_one_unless_it_is_told_apart() -> None:
    rows = [straight(sgd(1e-4, 0.9), 0.1), straight(adamw(1e-4), 0.2)]
    far_corner = sgd(1.0, 0.0)
    assert Table(SPACE, rows).begin()(far_corner).values == adamw(1e-4)
    assert Table(SPACE, rows, apart="optimizer.kind").begin()(far_corner).values == sgd(1e-4, 0.9)


def test_a_run_that_diverged_counts_worst() -> None:
    task = task_of([straight(sgd(0.1), 0.9, epochs=EPOCHS - 1), straight(sgd(0.001), 0.2)])
    assert task.final(task.begin()(sgd(0.1))) == WORST
    assert task.best() == pytest.approx(0.2)


def test_even_draws_are_independent_and_repeat() -> None:
    task = task_of([straight(sgd(0.1), 0.9), straight(adamw(0.001), 0.2)])
    draws = task.even_draws(20, seed=0)
    assert draws == task.even_draws(20, seed=0)
    assert sorted({task.final(each) for each in draws}) == pytest.approx([0.2, 0.9])


@pytest.mark.data
@pytest.mark.usefixtures("real_images")
def test_tasksets_curves_are_whole_or_end_where_the_loss_does() -> None:
    task = taskset()
    lengths = [len(each.curve) for each in task.even_draws(300, seed=0)]
    assert max(lengths) == task.epochs == 51
    assert min(lengths) < 51
    assert task.usual == pytest.approx(-math.log(2), abs=0.01)


def test_every_row_of_our_own_table_lies_in_the_box_of_its_task() -> None:
    task = fashion_mnist()
    own = [task.begin()(each.values) for each in task.even_draws(30, seed=0)]
    assert own == task.even_draws(30, seed=0)
    assert 0.1 < task.usual < task.best() < 1.0
