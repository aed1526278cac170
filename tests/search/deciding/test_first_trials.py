"""Tests a person's first trials in a ledger: when they run, what learns from them, what a kill changes."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from search.deciding.ledger import Decision, Ledger
from search.deciding.make import make_sampler
from search.learning.standings import positions
from search.record.chain import JournalError
from search.record.home import EVENTS_FILE
from search.record.journal import read
from search.record.record import Record
from search.record.summary import summarise
from search.record.trials import Trial
from search.reporting.tables import trials_table
from search.study import SamplerKind
from search.study.first import First, FirstTrial
from search.study.study import Finalists
from spaces.domains import Float
from spaces.priors import Normal
from spaces.space import Believed, Dimension, Space
from tests.search.deciding.small_ledgers import TRIALS, Open, drive, trained, try_kills
from trainable.recipe import Recipe


def written(space: Space, source: str, values: dict[str, Any], **fixed: Any) -> FirstTrial:
    """Return a first trial; `fixed` are fields that the space does not vary, with __ for dots."""
    own = {**space.own, **values}
    outside = {path.replace("__", "."): value for path, value in fixed.items()}
    recipe = space.recipe(own).with_values(outside)
    return FirstTrial(source=source, outside=tuple(outside), values=own, recipe=recipe.tree())


@pytest.fixture
def inside(small_space: Space) -> FirstTrial:
    return written(small_space, "a.yaml", {"optimizer.lr": 0.11})


@pytest.fixture
def outside(small_space: Space) -> FirstTrial:
    """A recipe that wins here, with a schedule that the space does not vary."""
    return written(
        small_space, "b.yaml", {"optimizer.lr": 0.1, "loop.batch_size": 64}, schedule__kind="constant"
    )


def trials_of(folder: Path) -> list[Trial]:
    return Record(read(folder / EVENTS_FILE)).trials


def test_first_trials_come_after_the_documented_recipe_and_are_marked(
    open_ledger: Open, tmp_path: Path, inside: FirstTrial, outside: FirstTrial
) -> None:
    drive(open_ledger(begun=False, first=(inside, outside)))
    own, first, second, *rest = trials_of(tmp_path)
    assert own.own
    assert own.first is None
    assert (first.first, second.first) == (
        First(source="a.yaml"),
        First(source="b.yaml", outside=("schedule.kind",)),
    )
    assert first.whole_recipe == Recipe.from_tree(inside.recipe)
    assert second.whole_recipe == Recipe.from_tree(outside.recipe)
    assert [each.first for each in rest] == [None] * (TRIALS - 3)


def test_a_first_trial_is_stopped_at_a_rung_as_others_are(
    open_ledger: Open, tmp_path: Path, small_space: Space
) -> None:
    weak = written(small_space, "weak.yaml", {"optimizer.lr": 0.0011})
    drive(open_ledger(begun=False, first=(weak,)))
    own, first, *_ = trials_of(tmp_path)
    assert (own.end, first.end, first.epochs) == ("finished", "stopped", 1)


@pytest.mark.slow("replays a search after each line")
@pytest.mark.parametrize("kind", ["random", "tpe", "prior-tpe", "auto"])
def test_killed_after_any_line_a_search_with_first_trials_goes_on_as_if_it_had_never_stopped(
    open_ledger: Open, tmp_path: Path, inside: FirstTrial, outside: FirstTrial, kind: SamplerKind
) -> None:
    final = Finalists(top=2, seeds=2)
    open_one = partial(open_ledger, kind=kind, first=(inside, outside), finalists=final, begun=False)
    drive(open_one(whole := tmp_path / "whole"))
    repeated = [each for each in trials_of(whole) if each.repeat is not None]
    assert any(each.first is not None for each in repeated), "a first trial is among the finalists"
    count = len(read(whole / EVENTS_FILE))
    cuts = (*range(0, 12), *range(12, count, 11), count - 1)
    try_kills(whole, cuts, lambda part: drive(open_one(part)))


def test_a_first_trial_that_is_trained_again_has_its_own_recipe_with_another_seed(
    open_ledger: Open, tmp_path: Path, outside: FirstTrial
) -> None:
    drive(open_ledger(begun=False, first=(outside,), finalists=Finalists(top=2, seeds=2)))
    run = trials_of(tmp_path)[-1]
    assert run.repeat is not None
    assert run.repeat.of == 1, "it is as good as the documented recipe, and both are the best"
    wanted = Recipe.from_tree(outside.recipe).with_values({"loop.seed": run.repeat.seed})
    assert run.whole_recipe == wanted
    ledger = open_ledger(first=(outside,), finalists=Finalists(top=2, seeds=2))
    assert ledger.is_complete


@pytest.mark.parametrize("kind", ["random", "qmc", "tpe", "prior-tpe", "auto"])
def test_nothing_learns_from_a_first_trial_outside_the_space(
    open_ledger: Open, tmp_path: Path, small_space: Space, outside: FirstTrial, kind: SamplerKind
) -> None:
    with_first, without = tmp_path / "with", tmp_path / "without"
    for folder, first in ((with_first, (outside,)), (without, ())):
        drive_one_by_one(open_ledger(folder, kind, (), first=first, begun=False))
    drawn = [
        [each.values for each in trials_of(folder) if not each.first] for folder in (with_first, without)
    ]
    assert drawn[0] == drawn[1][: len(drawn[0])]
    assert positions(small_space, trials_of(with_first)[1]) is None


def drive_one_by_one(ledger: Ledger) -> None:
    """Train one trial after the other: the order of results then depends on no number of trials."""
    ledger.begin("test")
    while (proposal := ledger.propose()) is not None:
        epoch = 1
        while ledger.epoch(proposal.trial, trained(dict(proposal.values), epoch)) is not Decision.STOP:
            epoch += 1


def test_a_trial_that_is_trained_again_before_them_takes_no_first_trials_place(
    open_ledger: Open, tmp_path: Path, inside: FirstTrial, outside: FirstTrial
) -> None:
    given: dict[str, Any] = {"first": (inside, outside)}
    ledger = open_ledger(begun=False, **given)
    ledger.begin("test")
    for _ in range(2):
        assert ledger.propose() is not None
    ledger.cut_short()
    ledger.close("finished")
    ledger.begin("test")
    ledger.train_on([0])
    ledger.extend(TRIALS)
    drive(ledger)
    assert [each.first.source for each in trials_of(tmp_path) if each.first] == ["a.yaml", "b.yaml"]
    assert open_ledger(**given).is_complete


def test_a_first_trial_inside_the_space_is_learnt_from(
    open_ledger: Open, tmp_path: Path, inside: FirstTrial
) -> None:
    with_first, without = tmp_path / "with", tmp_path / "without"
    for folder, first in ((with_first, (inside,)), (without, ())):
        drive_one_by_one(open_ledger(folder, "tpe", (), first=first, begun=False))
    drawn = [
        [each.values for each in trials_of(folder) if not each.first] for folder in (with_first, without)
    ]
    assert drawn[0] != drawn[1][: len(drawn[0])]


def test_other_first_trials_than_those_that_were_settled_are_refused(
    open_ledger: Open, tmp_path: Path, inside: FirstTrial, outside: FirstTrial
) -> None:
    drive(open_ledger(begun=False, first=(inside,)))
    with pytest.raises(JournalError, match="first"):
        open_ledger(first=(outside,))


@pytest.mark.parametrize("change", [{"first": None}, {"first": First(source="c.yaml")}, {"values": {}}])
def test_a_journal_whose_first_trial_is_another_one_is_refused(
    open_ledger: Open, tmp_path: Path, inside: FirstTrial, change: dict[str, Any]
) -> None:
    drive(open_ledger(begun=False, first=(inside,)))
    events = read(tmp_path / EVENTS_FILE)
    at = next(at for at, event in enumerate(events) if getattr(event, "first", None) == inside.mark)
    with pytest.raises(JournalError, match=r"trial 1: expected the first trial of a\.yaml"):
        Record([*events[:at], events[at].model_copy(update=change)])


def test_a_drawn_trial_may_not_be_called_a_persons(open_ledger: Open, tmp_path: Path) -> None:
    drive(open_ledger(begun=False))
    events = read(tmp_path / EVENTS_FILE)
    at = next(at for at, event in enumerate(events) if getattr(event, "trial", None) == 1)
    with pytest.raises(JournalError, match=r"trial 1: expected no first trial, got c\.yaml"):
        Record([*events[:at], events[at].model_copy(update={"first": First(source="c.yaml")})])


def test_a_reader_sees_where_first_trials_come_from(
    open_ledger: Open, tmp_path: Path, inside: FirstTrial, outside: FirstTrial
) -> None:
    from rich.console import Console

    drive(open_ledger(begun=False, first=(inside, outside)))
    record = Record(read(tmp_path / EVENTS_FILE))
    summary = summarise(record, 0.0, objective="val_accuracy", epochs=4, locked=False)
    screen = Console(width=400, record=True, file=(tmp_path / "shown").open("w"))
    screen.print(trials_table(summary, summary.trials, 400))
    outside_too = "trial 2: b.yaml, outside the space because of schedule.kind: no sampler and no verdict"
    assert f"trial 1: a.yaml; {outside_too}" in screen.export_text()
    assert summary.json()["trials"][2]["first"] == {"source": "b.yaml", "outside": ["schedule.kind"]}
    assert summary.json()["trials"][3]["first"] is None


@pytest.mark.parametrize("kind", ["prior-tpe", "auto"])
def test_the_priors_likeliest_values_are_the_first_draw_unless_a_first_trial_had_them(
    kind: SamplerKind,
) -> None:
    prior = Believed(Normal(0.03, "high"))
    rate = Dimension("optimizer.lr", Float(1e-3, 1.0, log=True), "for the test", "none", beliefs=prior)
    space = Space(Recipe(), (rate,), {"optimizer.lr": 0.5})
    for first, likeliest in ((0.2, True), (0.03, False)):
        sampler = make_sampler(space, kind, 0, "max")
        sampler.add(0, space.own)
        sampler.add(1, {"optimizer.lr": first})
        drawn = sampler.ask(2)["optimizer.lr"]
        assert (drawn == pytest.approx(0.03)) is likeliest
        sampler.add(2, {"optimizer.lr": drawn})
        assert sampler.ask(3)["optimizer.lr"] != pytest.approx(0.03), "it is drawn once"
