"""Tests that a search with a larger budget goes on as one that had it from the start, or was never killed."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from search.deciding.ledger import MOST_INFEASIBLE, Ledger, extended
from search.record.home import EVENTS_FILE
from search.record.journal import Event, SearchState, TrialEvent, read
from search.record.record import Record
from search.record.summary import Summary, summarise
from search.record.trials import Trial
from search.study import SamplerKind
from search.study.study import Finalists
from tests.search.deciding.small_ledgers import SMALL, TRIALS, Open, cost, drive, essence, result, try_kills

TWO_TWICE = Finalists(top=2, seeds=2)
MORE = TRIALS + 8


def drive_on(ledger: Ledger, trials: int = MORE) -> None:
    """Do what a driver does that extends a search."""
    ledger.begin("test")
    ledger.extend(trials)
    drive(ledger)
    ledger.close("finished")


def finish(ledger: Ledger) -> Ledger:
    drive(ledger)
    ledger.close("finished")
    return ledger


def record_of(folder: Path) -> Record:
    return Record(read(folder / EVENTS_FILE))


def summary_of(folder: Path) -> Summary:
    return summarise(record_of(folder), 0.0, objective="val_accuracy", epochs=4, locked=False)


def drawn(folder: Path) -> list[Trial]:
    return [trial for trial in record_of(folder).trials if trial.repeat is None]


def repeats(folder: Path) -> list[tuple[int, int | None]]:
    found = [trial.repeat for trial in record_of(folder).trials]
    return [(each.of, each.seed) for each in found if each is not None]


def unnumbered(events: Sequence[Event]) -> list[Event]:
    """Return the events of the search's own trials, numbered as if there were no other ones."""
    repeated = {event.trial for event in events if isinstance(event, TrialEvent) and event.repeat}
    own = sorted({event.trial for event in events if isinstance(event, TrialEvent)} - repeated)
    kept = [event for event in events if getattr(event, "trial", None) in own]
    return [event.model_copy(update={"trial": own.index(getattr(event, "trial", 0))}) for event in kept]


@pytest.mark.parametrize("kind", ["random", "qmc"])
def test_the_new_trials_are_those_of_a_search_that_had_the_budget_from_the_start(
    open_ledger: Open, tmp_path: Path, kind: SamplerKind
) -> None:
    once, twice = tmp_path / "once", tmp_path / "twice"
    drive_on(open_ledger(once, kind, begun=False))
    finish(open_ledger(twice, kind, begun=False, finalists=TWO_TWICE))
    drive_on(open_ledger(twice, kind, finalists=TWO_TWICE))
    assert len(drawn(twice)) == MORE
    assert [trial.values for trial in drawn(twice)] == [trial.values for trial in drawn(once)]


@pytest.mark.parametrize("kind", ["random", "tpe", "prior-tpe", "auto"])
def test_the_new_trials_depend_on_no_run_of_a_finalist(
    open_ledger: Open, tmp_path: Path, kind: SamplerKind
) -> None:
    with_final, without = tmp_path / "with", tmp_path / "without"
    for folder, finalists in ((with_final, TWO_TWICE), (without, None)):
        finish(open_ledger(folder, kind, begun=False, finalists=finalists))
        drive_on(open_ledger(folder, kind, finalists=finalists))
    assert unnumbered(essence(with_final)) == unnumbered(essence(without))
    assert any(trial.id != at for at, trial in enumerate(drawn(with_final)))


@pytest.mark.slow("replays a search after each line")
@pytest.mark.parametrize("kind", ["tpe", "auto"])
def test_killed_after_any_line_an_extension_goes_on_as_if_it_had_never_stopped(
    open_ledger: Open, tmp_path: Path, kind: SamplerKind
) -> None:

    def drive_one(folder: Path) -> None:
        ledger = open_ledger(folder, kind, finalists=TWO_TWICE)
        assert ledger.budget == MORE
        drive(ledger)

    whole = tmp_path / "whole"
    finish(open_ledger(whole, kind, begun=False, finalists=TWO_TWICE))
    before = len(read(whole / EVENTS_FILE))
    drive_on(open_ledger(whole, kind, finalists=TWO_TWICE))
    lines = (whole / EVENTS_FILE).read_bytes().splitlines(keepends=True)
    extension = before + 1
    assert b'"extend"' in lines[extension]
    try_kills(whole, range(extension + 1, len(lines), 4), drive_one)


def test_finalists_are_chosen_anew_and_only_their_missing_runs_are_trained(
    open_ledger: Open, tmp_path: Path
) -> None:
    finish(open_ledger(finalists=TWO_TWICE, begun=False))
    first = repeats(tmp_path)
    drive_on(open_ledger(finalists=TWO_TWICE), TRIALS + 30)
    best = [trial.id for trial in summary_of(tmp_path).best_first[:2]]
    assert sorted(set(first) | {(each, seed) for each in best for seed in (1, 2)}) == sorted(
        repeats(tmp_path)
    )
    assert len(set(repeats(tmp_path))) == len(repeats(tmp_path))
    kept = {of for of, _ in first} & set(best)
    assert 0 < len(kept) < 2, "in this search, one of the two stays"


def test_while_a_search_is_extended_no_finalist_has_won(open_ledger: Open, tmp_path: Path) -> None:
    finish(open_ledger(finalists=TWO_TWICE, begun=False))
    before = summary_of(tmp_path).finals
    assert before is not None
    assert before.winner is not None
    ledger = open_ledger(finalists=TWO_TWICE)
    ledger.begin("test")
    ledger.extend(MORE)
    proposal = ledger.propose()
    assert proposal is not None
    for epoch in range(1, 5):
        ledger.epoch(proposal.trial, result(epoch, 1.0))
    finals = summary_of(tmp_path).finals
    assert finals is not None
    assert finals.winner is None
    assert not ledger.is_complete


@pytest.mark.parametrize("killed", [False, True])
def test_an_audit_of_pruning_that_was_cut_is_ended_before_the_new_trials(
    open_ledger: Open, tmp_path: Path, killed: bool
) -> None:
    ledger = finish(open_ledger(begun=False))
    stopped = next(trial.id for trial in record_of(tmp_path).trials if trial.end == "stopped")
    ledger.begin("test")
    ledger.train_on([stopped])
    assert summary_of(tmp_path).is_being_audited
    ledger = open_ledger()
    ledger.begin("test")
    ledger.extend(MORE)
    assert not summary_of(tmp_path).is_being_audited
    if killed:  # right after the extension
        ledger = open_ledger()
    drive(ledger)
    assert ledger.is_complete
    assert [trial.end for trial in record_of(tmp_path).trials if trial.repeat is not None] == ["finished"]
    assert len(drawn(tmp_path)) == MORE


def test_a_search_may_be_extended_again_and_again(open_ledger: Open, tmp_path: Path) -> None:
    finish(open_ledger(begun=False))
    for trials in (MORE, MORE + 1):
        drive_on(open_ledger(), trials)
        assert len(drawn(tmp_path)) == trials
        assert open_ledger().is_complete


@pytest.mark.parametrize(
    ("state", "trained", "expected"),
    [
        ("finished", 10, 18),  # hours ended it: the six that it lacks are not made up for
        ("failed", 10, 18),
        ("interrupted", 10, TRIALS + 8),
        ("resumed", 10, TRIALS + 8),
    ],
)
def test_a_search_that_is_over_goes_on_from_the_trials_that_it_has(
    open_ledger: Open, tmp_path: Path, state: SearchState, trained: int, expected: int
) -> None:
    ledger = open_ledger()
    for _ in range(trained):
        proposal = ledger.propose()
        assert proposal is not None
        ledger.fail(proposal.trial, "for the test")
    match state:
        case "finished" | "failed" | "interrupted":
            ledger.close(state)
        case _:
            ledger.begin("test")
    assert extended(record_of(tmp_path), TRIALS, 8) == expected


@pytest.mark.parametrize("more", [1, 8, 40])
def test_an_extension_has_as_many_trials_as_asked_for_where_all_before_broke_a_constraint(
    open_ledger: Open, tmp_path: Path, more: int
) -> None:
    ledger = open_ledger(constraints=SMALL)
    while (proposal := ledger.propose()) is not None:
        ledger.cost(proposal.trial, cost({"loop.batch_size": 256}))
    ledger.close("failed")
    assert ledger.trials == (1 + MOST_INFEASIBLE) * TRIALS
    budget = extended(record_of(tmp_path), TRIALS, more)
    ledger.begin("test")
    ledger.extend(budget)
    proposed = 0
    while ledger.propose() is not None:
        proposed += 1
    assert more <= proposed <= more + MOST_INFEASIBLE, "budgets are whole numbers"


def test_infeasible_trials_do_not_count_in_the_budget_of_an_extension(
    open_ledger: Open, tmp_path: Path
) -> None:
    finish(open_ledger(constraints=SMALL, begun=False))
    infeasible = sum(trial.end == "infeasible" for trial in record_of(tmp_path).trials)
    assert 0 < infeasible < MOST_INFEASIBLE * TRIALS
    assert extended(record_of(tmp_path), TRIALS, 8) == MORE
    drive_on(open_ledger(constraints=SMALL))
    trained = [trial for trial in record_of(tmp_path).trials if trial.end != "infeasible"]
    assert len(trained) == MORE
