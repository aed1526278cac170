"""Tests that a written table gives the answers that the function itself would give."""

from itertools import product

import pytest

from spaces.domains import Choice, Domain, Float, Integer, SpaceError, Value, Values
from spaces.tables import ByValue, Case, answer, answers, mapped, read_paths, with_conditions, written_out

KIND, BATCH, RATE, FREEZE = "optimizer.kind", "loop.batch_size", "optimizer.lr", "model.freeze_norm"
SETTLED: dict[str, Value] = {KIND: "sgd", BATCH: 32, RATE: 0.1, FREEZE: False}
DOMAINS: dict[str, list[Domain]] = {
    KIND: [Choice(("sgd",)), Choice(("adamw", "lamb"))],
    BATCH: [Integer(8, 20)],
    RATE: [Float(0.01, 1.0)],
    FREEZE: [Choice((False, True, 1))],
}


def by_kind_and_batch(values: Values) -> str:
    """Read the batch only for SGD."""
    if values[KIND] == "sgd":
        return "small" if values[BATCH] in range(16) else "large"
    return "any"


def test_every_combination_is_answered_as_the_function_would() -> None:
    table = written_out(by_kind_and_batch, SETTLED, DOMAINS)
    for kind, batch in product(("sgd", "adamw", "lamb"), (*range(8, 21), 32)):
        values: Values = {KIND: kind, BATCH: batch}
        assert answer(table, values) == by_kind_and_batch(values)
    assert answer(table, {}) == by_kind_and_batch(SETTLED)


def test_a_table_names_the_paths_that_it_reads_and_no_others() -> None:
    assert read_paths(written_out(by_kind_and_batch, SETTLED, DOMAINS)) == {KIND, BATCH}
    assert read_paths(written_out(lambda values: "any", SETTLED, DOMAINS)) == frozenset()


def test_equal_answers_are_written_once() -> None:
    assert written_out(by_kind_and_batch, SETTLED, DOMAINS) == ByValue(
        KIND,
        "sgd",
        (
            Case(
                ("sgd",),
                ByValue(BATCH, 32, (Case(tuple(range(8, 16)), "small"), Case((*range(16, 21), 32), "large"))),
            ),
            Case(("adamw", "lamb"), "any"),
        ),
    )


def test_what_moves_nothing_is_not_in_the_table() -> None:
    assert written_out(lambda values: len(str(values[FREEZE])) > 0, SETTLED, DOMAINS) is True


def test_true_is_not_one() -> None:
    table = written_out(lambda values: repr(values[FREEZE]), SETTLED, DOMAINS)
    options: tuple[Value, ...] = (False, True, 1)
    assert [answer(table, {FREEZE: each}) for each in options] == ["False", "True", "1"]


def test_a_function_that_goes_by_real_numbers_is_refused() -> None:
    with pytest.raises(SpaceError, match=r"optimizer\.lr: .* not 0\.01 to 1"):
        written_out(lambda values: values[RATE], SETTLED, DOMAINS)


def test_what_does_not_vary_may_be_a_real_number() -> None:
    assert written_out(lambda values: values[RATE], SETTLED, {}) == 0.1


def test_a_function_may_not_read_all_values_at_once() -> None:
    with pytest.raises(TypeError, match="by their paths"):
        written_out(lambda values: dict(values), SETTLED, DOMAINS)


def test_a_value_of_which_nothing_is_written_is_refused_by_name() -> None:
    table = written_out(by_kind_and_batch, SETTLED, DOMAINS)
    with pytest.raises(SpaceError, match=r"optimizer\.kind: no trial of this space has lars"):
        answer(table, {KIND: "lars"})


def test_answers_come_with_the_values_that_lead_to_them() -> None:
    table = written_out(by_kind_and_batch, SETTLED, DOMAINS)
    assert [*answers(table)] == ["small", "large", "any"]
    conditions = [found for found, each in with_conditions(table) if each == "any"]
    assert conditions == [((KIND, ("adamw", "lamb")),)]


def test_a_mapped_table_has_no_more_cases_than_its_answers_need() -> None:
    table = written_out(by_kind_and_batch, SETTLED, DOMAINS)
    assert mapped(table, lambda each: each == "any") == ByValue(
        KIND, "sgd", (Case(("sgd",), False), Case(("adamw", "lamb"), True))
    )
