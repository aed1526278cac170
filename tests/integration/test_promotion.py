"""Searches whose trials pause at rungs: what is paused goes on in another process, and after a kill."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

import pytest

from search.commands.guests import driver
from search.learning.search import Search
from search.record.home import Home
from search.record.journal import EndEvent, EpochEvent, Event, PromotionEvent, StartEvent
from tests.integration.drivers import Driver, assert_all_agree
from tests.integration.small_searches import digits_study, epochs_by_trial, events_in
from trainable.checkpoints import checkpoint

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("ray_session")]

TRIALS, EPOCHS, RUNGS = 9, 8, [1, 3]


def some_paused_and_some_went_on(events: list[Event]) -> bool:
    return len(paused_in(events)) >= 2 and any(isinstance(event, PromotionEvent) for event in events)


def paused_in(events: list[Event]) -> set[int]:
    """Return the trials that are paused after these events."""
    paused: set[int] = set()
    for event in events:
        match event:
            case EpochEvent(pauses=True):
                paused.add(event.trial)
            case PromotionEvent() | EndEvent():
                paused.discard(event.trial)
            case _:
                pass
    return paused


def with_checkpoints(folder: Path) -> set[int]:
    home = Home(folder)
    return {
        trial
        for trial in home.trials_with_checkpoints()
        if checkpoint.finished(Path(home.checkpoints(trial)))
    }


@pytest.mark.scenario
def test_paused_trials_go_on_after_a_kill_from_their_checkpoints(tmp_path: Path) -> None:
    study = digits_study(tmp_path / "storage", name="mine", budget__trials=TRIALS, budget__epochs=EPOCHS)
    promotion = {"kind": "promotion", "rungs": RUNGS, "reduction_factor": 3}
    study = study.with_values({"concurrent": 2, "base.model.width": 16, "scheduler": promotion})
    study.write(tmp_path)
    folder = tmp_path / "storage" / "mine"
    first = Driver("search", tmp_path / "study.yaml", log=tmp_path / "log")
    first.wait_for(folder, some_paused_and_some_went_on)
    first.send(signal.SIGKILL)
    before = events_in(folder)
    paused = paused_in(before)
    assert paused <= with_checkpoints(folder), "the checkpoint of a paused trial stays"
    states = {trial.id: trial.state for trial in Search(folder).trials}
    assert {states[trial] for trial in paused} == {"paused"}

    assert driver().resume(folder) == "finished"
    events = events_in(folder)
    assert events[: len(before)] == before, "the journal only grows"
    for trial, epochs in epochs_by_trial(events).items():
        assert epochs == list(range(1, len(epochs) + 1)), f"trial {trial} has each epoch once"
    starts = [event for event in events if isinstance(event, StartEvent)]
    promotions = [event for event in events if isinstance(event, PromotionEvent)]
    for event in promotions:
        later = [each for each in starts if each.trial == event.trial and each.sequence > event.sequence]
        assert not later or later[0].epoch >= event.rung, "it goes on from its checkpoint"
    assert any(event.sequence >= len(before) for event in promotions), "others go on after the kill"

    search = Search(folder)
    ends = Counter(trial.state for trial in search.trials)
    assert (ends.total(), ends["paused"]) == (TRIALS, 0)
    assert ends["finished"] >= 2
    finished = {trial.id for trial in search.progress.all_trials if trial.state == "finished"}
    assert with_checkpoints(folder) == finished, "those of the others are removed"
    reasons = [trial.outcome_reason for trial in search.trials if trial.state == "stopped"]
    assert all(" ranks " in str(reason) for reason in reasons)
    assert_all_agree(folder)
