"""Tests that a rebuilt ledger goes on exactly as the one before."""

from functools import partial
from pathlib import Path

import pytest

from search.deciding.ledger import Decision
from search.record.chain import JournalError
from search.record.home import EVENTS_FILE
from search.record.journal import EpochEvent, RetryEvent, SearchEvent, StartEvent, read
from search.study import SamplerKind, SchedulerKind
from spaces.space import Space
from tests.search.deciding.small_ledgers import (
    SLOTS,
    Open,
    drive,
    ends,
    essence,
    result,
    trained,
    try_kills,
    with_holes,
)
from tests.search.small_events import replace_journal
from trainable.training.metrics import EpochResult


@pytest.mark.slow("replays a search after each line")
@pytest.mark.parametrize(
    ("kind", "every", "scheduler", "by_time"),
    [
        ("random", 1, "asha", False),
        ("qmc", 5, "asha", False),
        ("tpe", 9, "asha", False),
        ("auto", 9, "asha", False),
        ("gp", 9, "asha", True),
        ("auto", 9, "promotion", False),
        ("random", 1, "promotion", False),
        ("tpe", 9, "promotion", False),
    ],
)
def test_killed_after_any_line_a_search_goes_on_as_if_it_had_never_stopped(
    open_ledger: Open, tmp_path: Path, kind: SamplerKind, every: int, scheduler: SchedulerKind, by_time: bool
) -> None:
    open_one = partial(open_ledger, kind=kind, begun=False, scheduler=scheduler, by_time=by_time)
    drive(open_one(whole := tmp_path / "whole"))
    count = len(read(whole / EVENTS_FILE))
    assert count > 60
    try_kills(whole, range(0, count, every), lambda part: drive(open_one(part)))


@pytest.mark.slow("replays a search after each line")
@pytest.mark.parametrize("scheduler", ["asha", "promotion"])
def test_killed_after_every_single_epoch_a_search_still_comes_to_the_same_end(
    open_ledger: Open, tmp_path: Path, scheduler: SchedulerKind
) -> None:
    whole, part = tmp_path / "whole", tmp_path / "part"
    drive(open_ledger(whole, scheduler=scheduler))
    size = 0
    while size < len(essence(whole)):
        ledger = open_ledger(part, scheduler=scheduler)
        ledger.begin("test")
        proposals = [ledger.propose() for _ in range(SLOTS)]
        handed_out = [proposal for proposal in proposals if proposal is not None]
        if handed_out:
            first = min(handed_out, key=lambda each: (ledger.epochs_done(each.trial), each.trial))
            ledger.epoch(first.trial, trained(dict(first.values), ledger.epochs_done(first.trial) + 1))
        size = len(essence(part))
    assert essence(part) == essence(whole)


def test_an_epoch_trained_again_changes_nothing(open_ledger: Open, tmp_path: Path) -> None:
    ledger = open_ledger()
    ledger.propose()
    ledger.epoch(0, result(1, 0.5))
    ledger.epoch(0, result(2, 0.6))
    before = (tmp_path / EVENTS_FILE).read_bytes()
    ledger = open_ledger()
    assert ledger.epoch(0, result(1, 0.1)) is Decision.CONTINUE
    assert ledger.epoch(0, result(2, 0.0, diverged=True)) is Decision.CONTINUE
    assert (tmp_path / EVENTS_FILE).read_bytes() == before
    assert ledger.epoch(0, result(3, 0.7)) is Decision.CONTINUE


def test_a_resumed_search_first_proposes_what_was_left_unfinished(open_ledger: Open) -> None:
    ledger = open_ledger()
    ledger.begin("test")
    proposals = [ledger.propose() for _ in range(4)]
    for trial in range(4):
        ledger.start(trial, 0)
    ledger.retry(2, "the worker died")
    ledger.start(2, 0)
    ledger.fail(1, "out of memory")
    again = open_ledger()
    requeued = [again.propose() for _ in range(4)]
    attempts = [(each.trial, again.attempts(each.trial)) for each in requeued if each]
    assert attempts == [(0, 1), (2, 2), (3, 1), (4, 0)]
    assert [each.values for each in requeued[:3] if each] == [
        each.values for each in (proposals[0], proposals[2], proposals[3]) if each
    ]


def test_attempts_count_over_the_life_of_a_trial(open_ledger: Open, tmp_path: Path) -> None:
    ledger = open_ledger()
    ledger.propose()
    ledger.start(0, 0)
    ledger.retry(0, "the worker died")
    ledger.start(0, 2)
    again = open_ledger()
    again.start(0, 2)
    starts = [event for event in read(tmp_path / EVENTS_FILE) if isinstance(event, StartEvent)]
    assert [(event.attempt, event.epoch) for event in starts] == [(1, 0), (2, 2), (3, 2)]
    assert again.attempts(0) == 3
    retries = [event for event in read(tmp_path / EVENTS_FILE) if isinstance(event, RetryEvent)]
    assert [event.reason for event in retries] == ["the worker died"]


def test_epochs_that_only_the_checkpoint_knows_are_recovered(open_ledger: Open, tmp_path: Path) -> None:
    ledger = open_ledger()
    ledger.propose()
    ledger.epoch(0, result(1, 0.5))
    again = open_ledger()
    assert again.recover(0, [result(1, 0.1), result(2, 0.6), result(3, 0.7)]) is Decision.CONTINUE
    epochs = [event for event in read(tmp_path / EVENTS_FILE) if isinstance(event, EpochEvent)]
    assert [event.epoch for event in epochs] == [1, 2, 3]
    assert [event.result.val_accuracy for event in epochs] == [0.5, 0.6, 0.7]
    assert again.epoch(0, result(4, 0.8)) is Decision.STOP


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        ([result(epoch, 0.9) for epoch in (1, 2, 3, 4)], "finished"),
        ([result(1, 0.1), result(2, 0.9)], "stopped"),
        ([result(1, 0.9), result(2, 0.0, diverged=True)], "diverged"),
    ],
)
def test_a_trial_may_end_by_what_its_checkpoint_knows(
    open_ledger: Open, tmp_path: Path, history: list[EpochResult], expected: str
) -> None:
    ledger = open_ledger()
    for _ in range(3):
        ledger.propose()
    ledger.epoch(0, result(1, 0.5))
    assert ledger.recover(2, history) is Decision.STOP
    assert ends(tmp_path) == {2: expected}
    epochs = [event for event in essence(tmp_path) if isinstance(event, EpochEvent)]
    journaled = 1 if expected == "stopped" else len(history)  # what follows the end is left out
    assert [event.epoch for event in epochs if event.trial == 2] == list(range(1, journaled + 1))


def test_a_journal_of_other_rungs_is_refused(open_ledger: Open) -> None:
    ledger = open_ledger()
    ledger.propose()
    ledger.epoch(0, result(1, 0.5))
    with pytest.raises(
        JournalError, match=r"rungs is \[1, 2\] in the journal and \[2\] by .*start a new search"
    ):
        open_ledger(rungs=(2,))


def test_a_kill_between_the_last_epoch_and_the_end_is_repaired(open_ledger: Open, tmp_path: Path) -> None:
    ledger = open_ledger()
    ledger.propose()
    for epoch in (1, 2, 3, 4):
        ledger.epoch(0, result(epoch, 0.5))
    lines = (tmp_path / EVENTS_FILE).read_bytes().splitlines(keepends=True)
    replace_journal(tmp_path, b"".join(lines[:-1]))
    assert ends(tmp_path) == {}
    again = open_ledger()
    assert ends(tmp_path) == {0: "finished"}
    proposal = again.propose()
    assert proposal is not None
    assert proposal.trial == 1


def test_a_search_keeps_its_id_and_tells_how_each_driver_left(open_ledger: Open, tmp_path: Path) -> None:
    first = open_ledger(begun=False)
    with pytest.raises(ValueError, match="has not begun"):
        first.close("finished")
    search_id = first.begin("digits")
    first.close("interrupted", "Ctrl-C")
    again = open_ledger()
    assert again.begin("digits") == search_id == again.search_id
    again.close("finished")
    events = [event for event in read(tmp_path / EVENTS_FILE) if isinstance(event, SearchEvent)]
    assert [(event.state, event.search_id, event.name, event.reason) for event in events] == [
        ("started", search_id, "digits", None),
        ("interrupted", search_id, "digits", "Ctrl-C"),
        ("resumed", search_id, "digits", None),
        ("finished", search_id, "digits", None),
    ]


def test_a_trial_that_its_checkpoint_ends_is_not_proposed_again(open_ledger: Open) -> None:
    ledger = open_ledger()
    ledger.propose()
    ledger.propose()
    again = open_ledger()
    assert again.recover(0, [result(epoch, 0.5) for epoch in (1, 2, 3, 4)]) is Decision.STOP
    proposal = again.propose()
    assert proposal is not None
    assert proposal.trial == 1


def test_a_resumed_search_fails_what_its_driver_died_of(
    open_ledger: Open, tmp_path: Path, small_space: Space
) -> None:
    space = with_holes(small_space)
    ledger = open_ledger(space=space)
    while not ends(tmp_path):
        ledger.propose()
    (failed,) = ends(tmp_path)
    lines = (tmp_path / EVENTS_FILE).read_bytes().splitlines(keepends=True)
    killed = next(number for number, line in enumerate(lines) if line.startswith(b'{"event":"end"'))
    replace_journal(tmp_path, b"".join(lines[:killed]))
    again = open_ledger(space=space)
    proposals = [again.propose() for _ in range(failed + 1)]
    assert ends(tmp_path) == {failed: "failed"}
    assert [each.trial for each in proposals if each][:failed] == list(range(failed))


@pytest.mark.parametrize("kind", ["random", "tpe"])
def test_trials_of_another_space_are_refused_with_the_way_out(
    open_ledger: Open, tmp_path: Path, small_space: Space, kind: SamplerKind
) -> None:
    """Another version of the product, or an edited study, makes such trials."""
    ledger = open_ledger(kind=kind)
    ledger.propose()
    before = (tmp_path / EVENTS_FILE).read_bytes()
    wanted = r"space\..* in the journal and .* by this version of tunebook; .* start a new search"
    with pytest.raises(JournalError, match=wanted):
        open_ledger(kind=kind, space=with_holes(small_space))
    assert (tmp_path / EVENTS_FILE).read_bytes() == before
