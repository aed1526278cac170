"""Tests that what a result costs does not grow with the number of trials."""

import sys
from pathlib import Path

import pytest

from search.deciding.ledger import Decision, Ledger
from search.deciding.make import make_sampler
from search.deciding.scheduler import Asha, PromotionAsha, Scheduler
from search.record.journal import Journal
from search.record.record import Record
from spaces.space import Space
from tests.search.deciding.small_ledgers import Open, drive, result

FEW, MANY, LAST = 100, 1_000, 50


@pytest.mark.slow("thousands of trials")
@pytest.mark.parametrize("scheduler", [Asha, PromotionAsha])
def test_a_result_takes_about_as_many_calls_among_few_trials_and_among_many(
    tmp_path: Path, small_space: Space, scheduler: type[Scheduler]
) -> None:
    """Calls are counted, not seconds; each step of a generator is one."""

    def calls(trials: int) -> float:
        (folder := tmp_path / str(trials)).mkdir()
        with Journal(folder) as journal:
            sampler = make_sampler(small_space, "random", 7, "max")
            rungs = scheduler((1, 2), 3, "max")
            ledger = Ledger(
                journal, small_space, sampler, rungs, trials=trials, epochs=3, metric="val_accuracy"
            )
            return calls_a_result(ledger, trials)

    assert calls(MANY) < 1.2 * calls(FEW)


def test_a_ledger_forgets_the_epochs_of_trials_that_have_ended(open_ledger: Open, tmp_path: Path) -> None:
    drive(open_ledger(begun=False))
    ledger = open_ledger()
    record = ledger._record
    assert {len(trial.history) for trial in record.trials if trial.ended} == {1}
    whole = Record(Journal(tmp_path).events)
    assert [trial.epochs for trial in record.trials] == [trial.epochs for trial in whole.trials]
    assert [trial.metrics for trial in record.trials] == [trial.metrics for trial in whole.trials]
    assert record.open_trials == whole.open_trials == ()


def test_the_recipes_of_a_search_share_what_they_have_in_common(open_ledger: Open) -> None:
    ledger = open_ledger(begun=False)
    drive(ledger)
    first, *others = [trial.recipe for trial in ledger._record.trials if trial.recipe is not None]
    assert others
    assert all(each is not None and each["model"] is first["model"] for each in others)
    assert any(each["optimizer"] is not first["optimizer"] for each in others)


def calls_a_result(ledger: Ledger, trials: int) -> float:
    """Run a search of four trials at once; return the calls in `epoch` for a result of the last trials."""
    ledger.begin("test")
    running: list[int] = []
    calls = results = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    while True:
        while len(running) < 4 and (proposal := ledger.propose()) is not None:
            ledger.start(proposal.trial, ledger.epochs_done(proposal.trial))
            running.append(proposal.trial)
        if not running:
            return calls / results
        trial = running.pop(0)
        reported = result(ledger.epochs_done(trial) + 1, trial * 7919 % 1000 / 1000)
        counted = ledger.trials > trials - LAST
        sys.setprofile(count if counted else None)
        decision = ledger.epoch(trial, reported)
        sys.setprofile(None)
        results += counted
        if decision is Decision.CONTINUE:
            running.append(trial)
