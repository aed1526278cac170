"""Tests how the best trials are trained again: which, when, with which seeds, and what learns from it."""

from functools import partial
from pathlib import Path

import pytest

from search.deciding.finalists import choose_final
from search.deciding.ledger import Ledger
from search.deciding.pruning import Pruning
from search.record.chain import JournalError
from search.record.home import EVENTS_FILE
from search.record.journal import EpochEvent, Repeat, TrialEvent, read
from search.record.record import Record
from search.record.summary import summarise
from search.record.trials import Trial
from search.running.driver import why_out_of_time
from search.study import SamplerKind
from search.study.study import Finalists
from tests.search.deciding.small_ledgers import (
    EPOCHS,
    SLOTS,
    TRIALS,
    Open,
    drive,
    essence,
    result,
    trained,
    try_kills,
)
from tests.search.small_studies import study_of
from trainable.training.metrics import worst

TWO_TWICE = Finalists(top=2, seeds=2)


def trials_of(folder: Path) -> list[Trial]:
    return Record(read(folder / EVENTS_FILE)).trials


def repeats_of(folder: Path) -> list[tuple[int, int | None, int | None]]:
    found = [each.repeat for each in trials_of(folder)]
    return [(each.of, each.seed, each.split) for each in found if each is not None]


def test_the_best_trials_are_trained_again_with_fresh_seeds_when_all_others_have_ended(
    open_ledger: Open, tmp_path: Path
) -> None:
    ledger = open_ledger(finalists=TWO_TWICE, begun=False)
    drive(ledger)
    drawn = [each for each in trials_of(tmp_path) if each.repeat is None]
    finished = [each for each in drawn if each.end == "finished"]
    best = sorted(finished, key=lambda each: -each.metrics["val_accuracy"])[:2]
    assert len(drawn) == TRIALS
    assert repeats_of(tmp_path) == [(each.id, seed, None) for seed in (1, 2) for each in best]
    order = [event for event in read(tmp_path / EVENTS_FILE) if isinstance(event, TrialEvent | EpochEvent)]
    first_run = next(at for at, event in enumerate(order) if isinstance(event, TrialEvent) and event.repeat)
    assert all(event.trial >= TRIALS for event in order[first_run:])
    assert ledger.is_complete


def test_a_run_of_a_finalist_has_its_recipe_with_another_seed(open_ledger: Open, tmp_path: Path) -> None:
    drive(open_ledger(finalists=Finalists(top=1, seeds=2, splits="fresh"), begun=False))
    *_, first, second = trials_of(tmp_path)
    assert first.repeat is not None
    original = trials_of(tmp_path)[first.repeat.of].whole_recipe
    for run, k in ((first, 1), (second, 2)):
        seeds = {"loop.seed": original.loop.seed + k, "data.validation_seed": k}
        assert run.whole_recipe == original.with_values(seeds)
        assert run.end == "finished"
        assert run.epochs == EPOCHS
        assert all(event.rung is None for event in run.history)


@pytest.mark.parametrize("kind", ["random", "tpe", "prior-tpe"])
def test_the_sampler_and_the_scheduler_learn_nothing_from_finalists(
    open_ledger: Open, tmp_path: Path, kind: SamplerKind
) -> None:
    with_final, without = tmp_path / "with", tmp_path / "without"
    drive(open_ledger(with_final, kind, finalists=TWO_TWICE, begun=False))
    drive(open_ledger(without, kind, begun=False))
    assert essence(with_final)[: len(essence(without))] == essence(without)


def test_killed_after_any_line_the_final_goes_on_as_if_it_had_never_stopped(
    open_ledger: Open, tmp_path: Path
) -> None:
    open_one = partial(open_ledger, finalists=TWO_TWICE, begun=False)
    drive(open_one(whole := tmp_path / "whole"))
    events = read(whole / EVENTS_FILE)
    first_run = next(at for at, event in enumerate(events) if getattr(event, "repeat", None))
    try_kills(whole, range(first_run, len(events)), lambda part: drive(open_one(part)))


def test_nothing_is_proposed_while_trials_of_the_search_train(open_ledger: Open) -> None:
    ledger = open_ledger(finalists=TWO_TWICE)
    last = last_running(ledger)
    assert ledger.propose() is None
    assert not ledger.is_complete
    ledger.fail(last, "it crashed")
    proposal = ledger.propose()
    assert proposal is not None
    assert proposal.trial == TRIALS


def last_running(ledger: Ledger) -> int:
    """Train all trials but the last one, which is left running."""
    while (proposal := ledger.propose()) is not None:
        ledger.start(proposal.trial, 0)
        if proposal.trial == TRIALS - 1:
            break
        for epoch in range(1, EPOCHS + 1):
            ledger.epoch(proposal.trial, trained(dict(proposal.values), epoch))
    return TRIALS - 1


def test_a_finalist_that_no_recipe_of_the_search_finished_is_refused(
    open_ledger: Open, tmp_path: Path
) -> None:
    drive(open_ledger(begun=False))
    record = Record(read(tmp_path / EVENTS_FILE))
    stopped = next(each for each in record.trials if each.end == "stopped")
    repeat = Repeat(of=stopped.id, purpose="finalist", seed=1)
    event = TrialEvent(trial=TRIALS, values=dict(stopped.values), repeat=repeat)
    with pytest.raises(JournalError, match=f"a trial that was finished, got trial {stopped.id}"):
        record.apply(event)


def test_finalists_that_the_search_did_not_begin_with_are_refused(open_ledger: Open) -> None:
    drive(open_ledger(finalists=TWO_TWICE, begun=False))
    with pytest.raises(JournalError, match=r"finalists\.top is 2 in the journal and 3"):
        open_ledger(finalists=Finalists(top=3, seeds=2))


@pytest.mark.parametrize(
    ("trials", "rungs", "top"),
    [
        (14, (), None),
        (15, (), 1),
        (29, (), 1),
        (30, (), 2),
        (45, (), 3),
        (16, (2,), None),
        (100, (2,), 2),
        (120, (2,), 3),
    ],
)
def test_by_default_the_finalists_cost_a_fifth_of_the_search_at_most(
    trials: int, rungs: tuple[int, ...], top: int | None
) -> None:
    final = choose_final(study_of(budget__trials=trials), Pruning(rungs, 3, ""))
    assert (final.finalists.top if final.finalists else None) == top
    if final.finalists is None:
        assert "`finalists: {top: 1, seeds: 3}` in the study asks for it" in final.words
    else:
        assert final.finalists.seeds == 3
        share = int(final.words.rpartition("about ")[2].removesuffix("%"))
        assert share <= 20


def test_a_study_that_says_so_has_its_finalists_whatever_they_cost() -> None:
    study = study_of(finalists={"top": 2, "seeds": 5, "splits": "fresh"})
    final = choose_final(study, Pruning((), 3, ""))
    assert final.finalists == Finalists(top=2, seeds=5, splits="fresh")
    assert final.words == (
        "then the best 2 trials are trained again with 5 fresh seeds and fresh splits: "
        "200 epochs more, about 62%"
    )
    assert choose_final(study_of(finalists="none", budget__trials=100), Pruning((), 3, "")).finalists is None


def test_the_plan_says_that_hours_may_end_before_the_final() -> None:
    final = choose_final(study_of(budget__trials=100, budget__hours=2), Pruning((), 3, ""))
    assert final.words.endswith("; the hours may end first")


def test_where_hours_end_before_the_final_or_in_it_the_search_lacks_it(open_ledger: Open) -> None:
    ledger = open_ledger(finalists=TWO_TWICE)
    last = last_running(ledger)
    assert why_out_of_time(ledger).endswith("before the best trials were trained again as planned")
    ledger.fail(last, "it crashed")
    while (proposal := ledger.propose()) is not None:
        assert ledger.lacks_final
        for epoch in range(1, EPOCHS + 1):
            ledger.epoch(proposal.trial, trained(dict(proposal.values), epoch))
    assert not ledger.lacks_final
    assert why_out_of_time(ledger) == "the budget of hours is spent"


def test_slots_are_shared_by_runs_of_several_finalists(open_ledger: Open) -> None:
    ledger = open_ledger(finalists=Finalists(top=2, seeds=3))
    ledger.fail(last_running(ledger), "it crashed")
    proposals = [ledger.propose() for _ in range(SLOTS)]
    assert [each.trial for each in proposals if each is not None] == [TRIALS, TRIALS + 1, TRIALS + 2]


@pytest.mark.parametrize("end", ["diverged", "failed"])
def test_a_finalist_with_a_run_that_did_not_finish_trains_no_other_run(
    open_ledger: Open, tmp_path: Path, end: str
) -> None:
    def reopened() -> Ledger:
        return open_ledger(rungs=(), finalists=Finalists(top=2, seeds=3))

    ledger = reopened()
    ledger.fail(last_running(ledger), "it crashed")
    first = ledger.propose()
    assert first is not None
    if end == "failed":
        ledger.fail(first.trial, "it crashed")
    else:
        ledger.epoch(first.trial, result(1, worst("val_accuracy", 10), diverged=True))
    while (proposal := (ledger := reopened()).propose()) is not None:  # each time by the journal alone
        for epoch in range(1, EPOCHS + 1):
            ledger.epoch(proposal.trial, trained(dict(proposal.values), epoch))
    (out, *_), *others = repeats_of(tmp_path)
    other = others[0][0]
    assert other != out
    assert others == [(other, 1, None), (other, 2, None), (other, 3, None)]
    assert reopened().is_complete
    record = Record(read(tmp_path / EVENTS_FILE))
    finals = summarise(record, 0.0, objective="val_accuracy", epochs=EPOCHS, locked=True).finals
    assert finals is not None
    assert finals.winner is not None
    assert finals.winner.estimate is not None
    assert (finals.winner.trial, finals.winner.estimate.seeds) == (other, (1, 2, 3))


def test_an_audit_trains_stopped_trials_to_their_end_and_proposes_nothing_else(
    open_ledger: Open, tmp_path: Path
) -> None:
    drive(open_ledger(begun=False))
    before = trials_of(tmp_path)
    stopped = [each.id for each in before if each.end == "stopped"][:2]
    ledger = open_ledger()
    ledger.train_on(stopped)
    proposals = [ledger.propose(), ledger.propose()]
    assert ledger.propose() is None
    for proposal in proposals:
        assert proposal is not None
        ledger.start(proposal.trial, 0)
        for epoch in range(1, EPOCHS + 1):
            ledger.epoch(proposal.trial, trained(dict(proposal.values), epoch))
    runs = trials_of(tmp_path)[len(before) :]
    assert [(each.repeat, each.end) for each in runs] == [
        (Repeat(of=number, purpose="pruning"), "finished") for number in stopped
    ]
    assert [each.recipe for each in runs] == [before[number].recipe for number in stopped]


def test_a_resumed_audit_trains_what_is_unfinished_and_no_finalist(open_ledger: Open, tmp_path: Path) -> None:
    drive(open_ledger(begun=False, finalists=TWO_TWICE))
    stopped = next(each.id for each in trials_of(tmp_path) if each.end == "stopped")
    open_ledger(finalists=TWO_TWICE).train_on([stopped])
    again = open_ledger(finalists=TWO_TWICE)
    proposal = again.propose()
    assert proposal is not None
    assert trials_of(tmp_path)[proposal.trial].repeat == Repeat(of=stopped, purpose="pruning")
    assert again.propose() is None
