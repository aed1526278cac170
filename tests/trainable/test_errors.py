"""Tests errors of faulty inputs: they have all faults in the message, and survive a way between processes."""

from __future__ import annotations

import pickle

import pytest

from trainable.errors import DataError, Fault, FaultyInput, ModelError, RecipeError, StateError, UserError

FAULTS = [Fault("optimizer.lr", "expected a number, got 'x'"), Fault("", "not plain data")]


@pytest.mark.parametrize("kind", [FaultyInput, RecipeError])
@pytest.mark.parametrize("where", ["best.yaml", ""])
def test_a_faulty_input_is_the_same_after_pickling(kind: type[FaultyInput], where: str) -> None:
    error = kind(FAULTS, where)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert (again.faults, again.where) == (tuple(FAULTS), where)
    assert str(again) == str(error)
    assert str(again).splitlines() == [
        f"{where or kind.subject}: 2 faults",
        "  optimizer.lr: expected a number, got 'x'",
        "  not plain data",
    ]


@pytest.mark.parametrize("kind", [UserError, DataError, ModelError, StateError])
def test_other_errors_for_users_are_the_same_after_pickling(kind: type[UserError]) -> None:
    again = pickle.loads(pickle.dumps(kind("no such folder")))
    assert type(again) is kind
    assert str(again) == "no such folder"
