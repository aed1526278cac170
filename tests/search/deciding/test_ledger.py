"""Tests what the ledger proposes and decides."""

from pathlib import Path

import pytest

from search.deciding.ledger import Decision
from search.record.chain import JournalError
from search.record.home import EVENTS_FILE
from search.record.journal import EndEvent, EpochEvent, TrialEvent, read
from search.study import SamplerKind
from spaces.space import Space
from tests.search.deciding.small_ledgers import TRIALS, Open, drive, ends, essence, result, with_holes


@pytest.mark.parametrize("kind", ["random", "tpe"])
def test_a_search_trains_its_budget_and_each_trial_ends_once(
    open_ledger: Open, tmp_path: Path, kind: SamplerKind
) -> None:
    drive(open_ledger(kind=kind))
    events = essence(tmp_path)
    assert [event.trial for event in events if isinstance(event, TrialEvent)] == list(range(TRIALS))
    assert sorted(event.trial for event in events if isinstance(event, EndEvent)) == list(range(TRIALS))
    assert {"finished", "stopped", "diverged"} <= set(ends(tmp_path).values())
    again = open_ledger(kind=kind)
    assert again.has_finished_trial
    assert again.propose() is None


def test_the_first_trial_is_the_own_recipe_and_is_never_stopped(
    open_ledger: Open, small_space: Space, tmp_path: Path
) -> None:
    ledger = open_ledger()
    own, other = ledger.propose(), ledger.propose()
    assert own is not None
    assert other is not None
    assert (own.trial, own.values) == (0, small_space.own)
    assert own.recipe == small_space.recipe(small_space.own)
    assert other.trial == 1
    assert ledger.epoch(1, result(1, 0.9)) is Decision.CONTINUE
    assert ledger.epoch(0, result(1, 0.1)) is Decision.CONTINUE
    assert [ledger.epoch(0, result(epoch, 0.1)) for epoch in (2, 3, 4)][-1] is Decision.STOP
    assert ends(tmp_path) == {0: "finished"}


def test_a_stopped_trial_says_what_it_was_measured_against(open_ledger: Open, tmp_path: Path) -> None:
    ledger = open_ledger()
    for _ in range(3):
        ledger.propose()
    ledger.epoch(0, result(1, 0.5))
    ledger.epoch(1, result(1, 0.75))
    assert ledger.epoch(2, result(1, 0.25)) is Decision.STOP
    last = read(tmp_path / EVENTS_FILE)[-1]
    assert isinstance(last, EndEvent)
    assert (last.trial, last.state) == (2, "stopped")
    assert last.reason == "val_accuracy 0.25 at epoch 1 ranks 3 of 3; the best goes on"


def test_epochs_that_reach_a_rung_say_so(open_ledger: Open, tmp_path: Path) -> None:
    ledger = open_ledger(rungs=(2,))
    ledger.propose()
    for epoch in (1, 2, 3, 4):
        ledger.epoch(0, result(epoch, 0.5))
    epochs = [event for event in read(tmp_path / EVENTS_FILE) if isinstance(event, EpochEvent)]
    assert [event.rung for event in epochs] == [None, 2, None, None]
    assert epochs[0].result == result(1, 0.5)


def test_a_diverged_trial_ends_at_once_and_leaves_no_score_at_the_rung(
    open_ledger: Open, tmp_path: Path
) -> None:
    ledger = open_ledger()
    ledger.propose()
    ledger.propose()
    assert ledger.epoch(0, result(1, 0.0, diverged=True)) is Decision.STOP
    assert ledger.ended(0) == "diverged"
    assert ledger.epoch(1, result(1, 0.1)) is Decision.CONTINUE, "the first value at its rung"
    last = [event for event in read(tmp_path / EVENTS_FILE) if isinstance(event, EndEvent)]
    assert last[0].reason == "the loss was not finite in epoch 1"


def test_a_result_that_arrives_after_the_end_is_answered_with_a_stop(
    open_ledger: Open, tmp_path: Path
) -> None:
    ledger = open_ledger()
    ledger.propose()
    ledger.fail(0, "out of memory")
    before = (tmp_path / EVENTS_FILE).read_bytes()
    assert ledger.epoch(0, result(1, 0.9)) is Decision.STOP
    ledger.fail(0, "again")
    assert (tmp_path / EVENTS_FILE).read_bytes() == before


def test_an_epoch_after_a_gap_is_refused_before_it_is_written(open_ledger: Open, tmp_path: Path) -> None:
    ledger = open_ledger()
    ledger.propose()
    before = (tmp_path / EVENTS_FILE).read_bytes()
    with pytest.raises(JournalError, match="trial 0, epoch 3: expected epoch 1"):
        ledger.epoch(0, result(3, 0.5))
    assert (tmp_path / EVENTS_FILE).read_bytes() == before


def test_a_missing_objective_is_an_error_that_names_the_metrics_there_are(
    open_ledger: Open, tmp_path: Path
) -> None:
    ledger = open_ledger(metric="val_top5_accuracy")
    ledger.propose()
    with pytest.raises(
        JournalError, match=r"no metric 'val_top5_accuracy' .* known: train_loss, .*val_accuracy"
    ):
        ledger.epoch(0, result(1, 0.5))
    assert [event.event for event in read(tmp_path / EVENTS_FILE)] == ["search", "settled", "trial"]


def test_a_search_cut_short_stops_what_has_not_ended(open_ledger: Open, tmp_path: Path) -> None:
    ledger = open_ledger()
    for _ in range(3):
        ledger.propose()
    ledger.epoch(1, result(1, 0.5))
    ledger.fail(0, "out of memory")
    ledger.cut_short()
    assert ends(tmp_path) == {0: "failed", 1: "stopped", 2: "stopped"}
    assert not ledger.has_finished_trial
    again = open_ledger()
    assert again.ended(2) == "stopped"
    proposal = again.propose()
    assert proposal is not None
    assert proposal.trial == 3


# --- trials that cannot be ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["random", "prior-tpe"])
def test_a_trial_whose_values_make_no_recipe_fails_and_the_search_goes_on(
    open_ledger: Open, tmp_path: Path, small_space: Space, kind: SamplerKind
) -> None:
    space = with_holes(small_space)
    drive(open_ledger(kind=kind, space=space))
    trials = [event for event in read(tmp_path / EVENTS_FILE) if isinstance(event, TrialEvent)]
    depths = {event.trial: event.values["model.depth"] for event in trials}
    assert len(trials) == TRIALS
    failed = {number for number, state in ends(tmp_path).items() if state == "failed"}
    assert failed == {number for number, depth in depths.items() if depth not in (8, 14, 20)} != set()
    assert set(ends(tmp_path)) == set(depths)
    reasons = [
        event.reason
        for event in read(tmp_path / EVENTS_FILE)
        if isinstance(event, EndEvent) and event.trial in failed
    ]
    assert all(reason and "make no recipe: model.depth: expected 8, 14, 20" in reason for reason in reasons)
    assert open_ledger(kind=kind, space=space).propose() is None
