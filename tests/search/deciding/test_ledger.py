"""The ledger: what it proposes and decides, and that a rebuilt one goes on exactly as the one before."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from search.deciding.ledger import Decision, Ledger
from search.deciding.make import Kind, make_sampler
from search.deciding.scheduler import Asha
from search.record.chain import JournalError
from search.record.home import EVENTS_FILE
from search.record.journal import (
    EndEvent,
    EpochEvent,
    Event,
    Journal,
    RetryEvent,
    SearchEvent,
    StartEvent,
    TrialEvent,
    read,
)
from spaces.domains import Integer, Value
from spaces.space import Dimension, Space
from tests.epoch_results import epoch_result
from trainable.training.metrics import EpochResult, worst

TRIALS, EPOCHS, SLOTS = 16, 4, 3

Open = Callable[..., Ledger]


def result(epoch: int, accuracy: float, *, diverged: bool = False) -> EpochResult:
    return epoch_result(epoch, val_accuracy=accuracy, diverged=diverged)


def trained(values: dict[str, Value], epoch: int) -> EpochResult:
    """What training to an epoch would give: better near a rate of 0.1, diverged far above it."""
    rate = values["optimizer.lr"]
    assert isinstance(rate, float)
    if rate > 0.25:
        return result(epoch, worst("val_accuracy", 10), diverged=True)
    return result(epoch, (1.0 - math.exp(-epoch)) * math.exp(-abs(math.log10(rate) + 1.0)))


@pytest.fixture
def open_ledger(tmp_path: Path, small_space: Space) -> Iterator[Open]:
    """Opens a ledger over a folder's journal, as each driver does; the one before is closed, as by a kill."""
    journals: list[Journal] = []

    def open_one(
        folder: Path = tmp_path,
        kind: Kind = "random",
        rungs: tuple[int, ...] = (1, 2),
        metric: str = "val_accuracy",
        space: Space = small_space,
        begun: bool = True,
    ) -> Ledger:
        for journal in journals:
            journal.close()
        journals.append(Journal(folder))
        ledger = Ledger(
            journals[-1],
            space,
            make_sampler(space, kind, 7, "max"),
            Asha(rungs, 3, "max"),
            trials=TRIALS,
            epochs=EPOCHS,
            metric=metric,
        )
        if begun and ledger.search_id is None:
            ledger.begin("test")
        return ledger

    yield open_one
    for journal in journals:
        journal.close()


def drive(ledger: Ledger) -> None:
    """Train to the end on three slots; always the running trial that is the least far goes on."""
    ledger.begin("test")
    running: dict[int, dict[str, Value]] = {}
    while True:
        while len(running) < SLOTS and (proposal := ledger.propose()) is not None:
            ledger.start(proposal.trial, ledger.epochs_done(proposal.trial))
            running[proposal.trial] = dict(proposal.values)
        if not running:
            return
        trial = min(running, key=lambda number: (ledger.epochs_done(number), number))
        decision = ledger.epoch(trial, trained(running[trial], ledger.epochs_done(trial) + 1))
        if decision is Decision.STOP:
            del running[trial]


def essence(folder: Path) -> list[Event]:
    """What a search proposed, measured and decided, without when and by which driver."""
    return [
        event.model_copy(update={"sequence": -1, "time": 0.0})
        for event in read(folder / EVENTS_FILE)
        if isinstance(event, TrialEvent | EpochEvent | EndEvent)
    ]


def ends(folder: Path) -> dict[int, str]:
    return {event.trial: event.state for event in read(folder / EVENTS_FILE) if isinstance(event, EndEvent)}


@pytest.mark.parametrize("kind", ["random", "tpe"])
def test_a_search_trains_its_budget_and_each_trial_ends_once(
    open_ledger: Open, tmp_path: Path, kind: Kind
) -> None:
    drive(open_ledger(kind=kind))
    events = essence(tmp_path)
    assert [event.trial for event in events if isinstance(event, TrialEvent)] == list(range(TRIALS))
    assert sorted(event.trial for event in events if isinstance(event, EndEvent)) == list(range(TRIALS))
    assert {"finished", "stopped", "diverged"} <= set(ends(tmp_path).values())
    again = open_ledger(kind=kind)
    assert again.has_finished_trial
    assert again.propose() is None


@pytest.mark.parametrize(("kind", "every"), [("random", 1), ("qmc", 5), ("tpe", 9)])
def test_killed_after_any_line_a_search_goes_on_as_if_it_had_never_stopped(
    open_ledger: Open, tmp_path: Path, kind: Kind, every: int
) -> None:
    whole, part = tmp_path / "whole", tmp_path / "part"
    whole.mkdir()
    part.mkdir()
    drive(open_ledger(whole, kind, begun=False))
    lines = (whole / EVENTS_FILE).read_bytes().splitlines(keepends=True)
    assert len(lines) > 60
    for cut in range(0, len(lines), every):
        torn = lines[cut][: len(lines[cut]) // 2]
        (part / EVENTS_FILE).write_bytes(b"".join(lines[:cut]) + torn)
        drive(open_ledger(part, kind, begun=False))
        assert essence(part) == essence(whole), f"killed in line {cut + 1}: {lines[cut].decode()}"


def test_killed_after_every_single_epoch_a_search_still_comes_to_the_same_end(
    open_ledger: Open, tmp_path: Path
) -> None:
    whole, part = tmp_path / "whole", tmp_path / "part"
    whole.mkdir()
    part.mkdir()
    drive(open_ledger(whole))
    size = 0
    while size < len(essence(whole)):
        ledger = open_ledger(part)
        ledger.begin("test")
        proposals = [ledger.propose() for _ in range(SLOTS)]
        handed_out = [proposal for proposal in proposals if proposal is not None]
        if handed_out:
            first = min(handed_out, key=lambda each: (ledger.epochs_done(each.trial), each.trial))
            ledger.epoch(first.trial, trained(dict(first.values), ledger.epochs_done(first.trial) + 1))
        size = len(essence(part))
    assert essence(part) == essence(whole)


def test_the_first_trial_is_the_own_recipe_and_is_never_stopped(
    open_ledger: Open, small_space: Space, tmp_path: Path
) -> None:
    ledger = open_ledger()
    own, other = ledger.propose(), ledger.propose()
    assert own is not None
    assert other is not None
    assert (own.trial, own.own, own.values) == (0, True, small_space.own)
    assert own.recipe == small_space.recipe(small_space.own)
    assert (other.trial, other.own) == (1, False)
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


def test_a_result_that_arrives_after_the_end_is_told_to_stop(open_ledger: Open, tmp_path: Path) -> None:
    ledger = open_ledger()
    ledger.propose()
    ledger.fail(0, "out of memory")
    before = (tmp_path / EVENTS_FILE).read_bytes()
    assert ledger.epoch(0, result(1, 0.9)) is Decision.STOP
    ledger.fail(0, "again")
    assert (tmp_path / EVENTS_FILE).read_bytes() == before


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
    assert [(each.trial, each.attempt) for each in requeued if each] == [(0, 2), (2, 3), (3, 2), (4, 1)]
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


def test_a_journal_of_other_rungs_is_refused(open_ledger: Open) -> None:
    ledger = open_ledger()
    ledger.propose()
    ledger.epoch(0, result(1, 0.5))
    with pytest.raises(
        JournalError, match=r"rungs is \[1, 2\] in the journal and \[2\] by .*start a new search"
    ):
        open_ledger(rungs=(2,))


def test_a_kill_between_the_last_epoch_and_the_end_is_made_good(open_ledger: Open, tmp_path: Path) -> None:
    ledger = open_ledger()
    ledger.propose()
    for epoch in (1, 2, 3, 4):
        ledger.epoch(0, result(epoch, 0.5))
    path = tmp_path / EVENTS_FILE
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
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


def test_a_search_cut_short_stops_what_has_not_ended(open_ledger: Open, tmp_path: Path) -> None:
    ledger = open_ledger()
    for _ in range(3):
        ledger.propose()
    ledger.epoch(1, result(1, 0.5))
    ledger.fail(0, "out of memory")
    ledger.cut_short("the budget of hours is spent")
    assert ends(tmp_path) == {0: "failed", 1: "stopped", 2: "stopped"}
    assert not ledger.has_finished_trial
    again = open_ledger()
    assert again.ended(2) == "stopped"
    proposal = again.propose()
    assert proposal is not None
    assert proposal.trial == 3


def test_a_trial_that_its_checkpoint_ends_is_not_proposed_again(open_ledger: Open) -> None:
    ledger = open_ledger()
    ledger.propose()
    ledger.propose()
    again = open_ledger()
    assert again.recover(0, [result(epoch, 0.5) for epoch in (1, 2, 3, 4)]) is Decision.STOP
    proposal = again.propose()
    assert proposal is not None
    assert proposal.trial == 1


# --- trials that cannot be ------------------------------------------------------------------------------


class Unchecked(Space):
    """A space as it would be if the checks when it is built had missed something."""

    def __post_init__(self) -> None:
        """No check."""


def with_holes(space: Space) -> Space:
    """One of whose draws most are no recipes: a ResNet's depth is one of a few."""
    depth = Dimension("model.depth", Integer(8, 20), "for the test", "none")
    return Unchecked(space.base, (*space.dimensions, depth), {**space.own, "model.depth": 8})


@pytest.mark.parametrize("kind", ["random", "prior-tpe"])
def test_a_trial_whose_values_make_no_recipe_fails_and_the_search_goes_on(
    open_ledger: Open, tmp_path: Path, small_space: Space, kind: Kind
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
    (tmp_path / EVENTS_FILE).write_bytes(b"".join(lines[:killed]))
    again = open_ledger(space=space)
    proposals = [again.propose() for _ in range(failed + 1)]
    assert ends(tmp_path) == {failed: "failed"}
    assert [each.trial for each in proposals if each][:failed] == list(range(failed))


@pytest.mark.parametrize("kind", ["random", "tpe"])
def test_trials_of_another_space_are_refused_with_the_way_out(
    open_ledger: Open, tmp_path: Path, small_space: Space, kind: Kind
) -> None:
    """As another version of the product, or an edited study, makes one."""
    ledger = open_ledger(kind=kind)
    ledger.propose()
    before = (tmp_path / EVENTS_FILE).read_bytes()
    told = r"space\..* in the journal and .* by this version of tunebook; .* start a new search"
    with pytest.raises(JournalError, match=told):
        open_ledger(kind=kind, space=with_holes(small_space))
    assert (tmp_path / EVENTS_FILE).read_bytes() == before
