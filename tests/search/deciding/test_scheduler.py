"""Tests ASHA's stopping rule, as tables and against a brute-force reference."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search.deciding.scheduler import Asha, expected_share, first_at_or_after, rungs, survivors
from trainable.recipe.metrics import Mode

REPORTS = st.lists(st.integers(0, 6).map(lambda step: step / 6), min_size=1, max_size=30)


@pytest.mark.parametrize(
    ("grace", "factor", "epochs", "expected"),
    [
        (2, 3, 20, (2, 6, 18)),
        (1, 3, 9, (1, 3)),
        (1, 3, 10, (1, 3, 9)),
        (1, 3, 244, (1, 3, 9, 27, 81, 243)),
        (1, 3, 243, (1, 3, 9, 27, 81)),
        (1, 2, 2, (1,)),
        (5, 4, 100, (5, 20, 80)),
        (7, 3, 7, ()),
        (1, 3, 1, ()),
    ],
)
def test_rungs_multiply_up_to_but_not_including_the_last_epoch(
    grace: int, factor: int, epochs: int, expected: tuple[int, ...]
) -> None:
    assert rungs(grace, factor, epochs) == expected


@pytest.mark.parametrize(("grace", "factor"), [(0, 3), (1, 1), (-1, 2)])
def test_rungs_that_would_never_rise_are_refused(grace: int, factor: int) -> None:
    with pytest.raises(ValueError, match="grace >= 1 and factor >= 2"):
        rungs(grace, factor, 10)


@pytest.mark.parametrize(
    ("wanted", "allowed", "expected"),
    [
        ((2, 6, 18), (10, 30, 70), (10, 30)),
        ((2, 6, 18, 54), (10, 30, 70), (10, 30, 70)),
        ((2, 6, 18), tuple(range(1, 20)), (2, 6, 18)),
        ((2, 6, 18), (1, 5), (5,)),
        ((2, 6), (), ()),
        ((), (10,), ()),
    ],
)
def test_each_wanted_rung_moves_to_the_next_epoch_that_is_allowed(
    wanted: tuple[int, ...], allowed: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    assert first_at_or_after(wanted, allowed) == expected


@pytest.mark.parametrize(("count", "expected"), [(1, 1), (2, 1), (3, 1), (5, 1), (6, 2), (8, 2), (9, 3)])
def test_a_third_go_on_but_at_least_one(count: int, expected: int) -> None:
    assert survivors(count, 3) == expected


@pytest.mark.parametrize(
    ("mode", "values", "expected"),
    [
        ("max", (0.1, 0.2, 0.15, 0.3, 0.25), (True, True, False, True, False)),
        ("max", (0.9, 0.8, 0.7, 0.6, 0.5, 0.85), (True, False, False, False, False, True)),
        ("min", (0.9, 0.8, 0.85), (True, True, False)),
        ("max", (0.5, 0.5, 0.5), (True, True, True)),
    ],
)
def test_trials_go_on_by_what_was_recorded_when_they_arrived(
    mode: Mode, values: tuple[float, ...], expected: tuple[bool, ...]
) -> None:
    asha = Asha((2,), 3, mode)
    assert tuple(asha.report(trial, 2, value) for trial, value in enumerate(values)) == expected


def test_the_order_of_arrival_decides_who_is_stopped() -> None:
    rising, falling = Asha((1,), 3, "max"), Asha((1,), 3, "max")
    assert [rising.report(trial, 1, value) for trial, value in enumerate((0.1, 0.2, 0.3))] == [
        True,
        True,
        True,
    ]
    assert [falling.report(trial, 1, value) for trial, value in enumerate((0.3, 0.2, 0.1))] == [
        True,
        False,
        False,
    ]


def test_a_trial_that_arrives_late_in_its_life_leaves_earlier_rungs_alone() -> None:
    asha = Asha((1, 3, 9), 3, "max")
    assert asha.report(0, 7, 0.88)
    assert asha.report(0, 9, 0.9)
    assert asha.recorded == {1: {}, 3: {}, 9: {0: 0.9}}
    assert asha.report(1, 1, 0.2), "0.9 at epoch 9 says nothing about epoch 1"


def test_between_rungs_every_trial_goes_on_and_nothing_is_recorded() -> None:
    asha = Asha((2, 6), 3, "max")
    assert asha.report(0, 2, 0.9)
    assert asha.report(1, 3, 0.0)
    assert asha.rung_at(3) is None
    assert asha.recorded == {2: {0: 0.9}, 6: {}}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("epoch", [1, 2])
@pytest.mark.parametrize("exempt", [False, True])
def test_a_value_that_is_not_finite_stops_its_trial_and_is_not_recorded(
    value: float, epoch: int, exempt: bool
) -> None:
    asha = Asha((2,), 3, "max")
    assert not asha.report(0, epoch, value, exempt=exempt)
    assert asha.recorded == {2: {}}


def test_an_exempt_trial_is_recorded_and_never_stopped() -> None:
    asha = Asha((1,), 2, "max")
    assert asha.report(1, 1, 0.9)
    assert asha.report(0, 1, 0.5, exempt=True)
    assert not asha.report(2, 1, 0.4)
    assert asha.rank_at(2, 1) == (3, 3, 1)


def test_without_rungs_nothing_is_stopped() -> None:
    asha = Asha((), 3, "max")
    assert all(asha.report(trial, epoch, -float(trial)) for trial in range(9) for epoch in (1, 2, 3))


def test_two_reports_of_one_trial_at_a_rung_are_an_error() -> None:
    asha = Asha((1,), 3, "max")
    asha.report(4, 1, 0.5)
    with pytest.raises(ValueError, match="trial 4 has reported at rung 1 before"):
        asha.report(4, 1, 0.6)


@pytest.mark.parametrize("wrong", [(3, 1), (1, 1), (0, 2)])
def test_rungs_out_of_order_are_refused(wrong: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="rungs must rise"):
        Asha(wrong, 3, "max")


@given(values=REPORTS, factor=st.integers(2, 5), mode=st.sampled_from(("max", "min")))
def test_decisions_are_those_of_sorting_everything_anew(values: list[float], factor: int, mode: Mode) -> None:
    asha = Asha((1,), factor, mode)
    for trial, value in enumerate(values):
        best_first = sorted(values[: trial + 1], reverse=mode == "max")
        last_to_go_on = best_first[max(1, (trial + 1) // factor) - 1]
        expected = value >= last_to_go_on if mode == "max" else value <= last_to_go_on
        assert asha.report(trial, 1, value) == expected


@given(
    reports=st.lists(
        st.tuples(st.integers(0, 9), st.integers(1, 9), st.floats(0, 1)), unique_by=lambda r: r[:2]
    ),
    cut=st.integers(0, 90),
)
def test_replaying_the_reports_gives_the_same_decisions_and_rungs(
    reports: list[tuple[int, int, float]], cut: int
) -> None:
    live, rebuilt = Asha((1, 3), 3, "max"), Asha((1, 3), 3, "max")
    before = [live.report(*report) for report in reports[:cut]]
    assert [rebuilt.report(*report) for report in reports[:cut]] == before
    assert rebuilt.recorded == live.recorded
    assert [rebuilt.report(*report) for report in reports[cut:]] == [live.report(*r) for r in reports[cut:]]


@pytest.mark.parametrize(
    ("epochs_of_rungs", "epochs", "expected"),
    [((), 20, 1.0), ((10,), 20, (10 + 10 / 3) / 20), ((2, 6, 18), 20, (2 + 4 / 3 + 12 / 9 + 2 / 27) / 20)],
)
def test_the_expected_share_of_epochs_falls_with_each_rung(
    epochs_of_rungs: tuple[int, ...], epochs: int, expected: float
) -> None:
    assert expected_share(epochs_of_rungs, 3, epochs) == pytest.approx(expected)
