"""Tests a ledger with constraints: what ends before it trains, what it costs, and that a replay agrees."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from search.deciding.ledger import MOST_INFEASIBLE, Decision
from search.record.chain import JournalError
from search.record.home import EVENTS_FILE
from search.record.journal import CostEvent, read
from search.study.objective import Constraints
from spaces.domains import Choice, Float
from spaces.space import Dimension, Space
from tests.search.deciding.small_ledgers import SMALL, TRIALS, Open, drive, ends, result, try_kills
from trainable.recipe.network_cost import NetworkCost

ABOVE = NetworkCost(parameters=100, latency_ms=12.0, memory_gib=1.0)
BELOW = ABOVE.model_copy(update={"latency_ms": 10.0})


def test_a_trial_above_a_limit_ends_and_is_neither_measured_nor_tried_again(
    open_ledger: Open, tmp_path: Path
) -> None:
    ledger = open_ledger(constraints=SMALL)
    for _ in range(2):
        ledger.propose()
    ledger.start(0, 0)
    assert ledger.lacks_cost(0)
    assert ledger.cost(0, ABOVE) is Decision.STOP
    assert ledger.cost(1, BELOW) is Decision.CONTINUE
    assert ledger.cost(1, ABOVE) is Decision.CONTINUE  # the first cost counts
    ledger.retry(0, "too late")
    ledger.fail(0, "too late")
    assert (ledger.ended(0), ledger.lacks_cost(0), ledger.lacks_cost(1)) == ("infeasible", False, False)
    assert ends(tmp_path) == {0: "infeasible"}
    ledger = open_ledger(constraints=SMALL)
    assert (ledger.ended(0), ledger.lacks_cost(1)) == ("infeasible", False)
    assert ledger.epoch(1, result(1, 0.5)) is Decision.CONTINUE


def test_trials_that_break_a_limit_are_replaced_and_then_the_whole_budget_trains(
    open_ledger: Open, tmp_path: Path
) -> None:
    drive(open_ledger(constraints=SMALL))
    states = list(ends(tmp_path).values())
    assert states.count("infeasible") >= 3
    assert len(states) - states.count("infeasible") == TRIALS
    measured = {event.trial for event in read(tmp_path / EVENTS_FILE) if isinstance(event, CostEvent)}
    assert measured == set(range(len(states)))


@pytest.mark.parametrize(("path", "measured"), [("model.depth", True), ("model.dropout", False)])
def test_networks_that_differ_are_measured_without_a_limit_too(
    open_ledger: Open, small_space: Space, tmp_path: Path, path: str, measured: bool
) -> None:
    domain: Choice | Float = Choice((8, 14)) if measured else Float(0.0, 0.5)
    varied = Dimension(path, domain, "for the test", "none")
    own = {**small_space.own, path: 8 if measured else 0.0}
    space = replace(small_space, dimensions=(*small_space.dimensions, varied), own=own)
    drive(open_ledger(space=space))
    trials = open_ledger(space=space).trials
    costs = [event for event in read(tmp_path / EVENTS_FILE) if isinstance(event, CostEvent)]
    assert len(costs) == (trials if measured else 0)
    assert "infeasible" not in ends(tmp_path).values()


def test_a_search_that_nothing_can_meet_ends(open_ledger: Open, tmp_path: Path) -> None:
    ledger = open_ledger(constraints=Constraints.model_validate({"latency_ms": {"max": 0.001}}))
    drive(ledger)
    assert ledger.is_complete
    assert list(ends(tmp_path).values()) == ["infeasible"] * (1 + MOST_INFEASIBLE) * TRIALS


@pytest.mark.slow("replays a search after each line")
def test_killed_after_any_line_a_constrained_search_goes_on_as_if_it_had_not_stopped(
    open_ledger: Open, tmp_path: Path
) -> None:
    open_one = partial(open_ledger, kind="tpe", begun=False, constraints=SMALL)
    drive(open_one(whole := tmp_path / "whole"))
    try_kills(whole, range(0, len(read(whole / EVENTS_FILE)), 23), lambda part: drive(open_one(part)))


def test_other_constraints_than_the_journal_s_are_another_search(open_ledger: Open) -> None:
    open_ledger(constraints=SMALL)
    with pytest.raises(JournalError, match=r"constraints\.latency_ms"):
        open_ledger()
