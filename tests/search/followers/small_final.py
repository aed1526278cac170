"""Makes the events of a small search whose two best trials are trained again, and one stopped trial too."""

from __future__ import annotations

from pathlib import Path

from search.record.journal import EndEvent, Event, ExtendEvent, Repeat, StartEvent, TrialEvent
from search.study.study import Finalists
from tests.search.followers.small_tracking import search_event
from tests.search.small_events import epoch, settled
from trainable.recipe import Recipe

SEARCHED = (0.9, 0.85)  # the scores of trials 0 and 1 in the search; trial 2 is stopped
# Of each run of a finalist its trial, its seed and its score: with fresh seeds, trial 1 is better
AGAIN = ((0, 1, 0.80), (1, 1, 0.92), (0, 2, 0.82), (1, 2, 0.93))


def before_the_final(folder: Path) -> list[Event]:
    """Return the search up to its final: two trials that finish, and one that is stopped."""
    choice = settled(epochs=2, rungs=(1,)).model_copy(update={"finalists": Finalists(top=2, seeds=2)})
    events: list[Event] = [search_event(folder, "started"), choice]
    for number, score in enumerate(SEARCHED):
        events += [*_begun(number, number), epoch(number, 1, 0.5, rung=1), epoch(number, 2, score)]
        events += [EndEvent(trial=number, state="finished")]
    events += [*_begun(2, 2), epoch(2, 1, 0.4, rung=1), EndEvent(trial=2, state="stopped")]
    return events


def the_final() -> list[list[Event]]:
    """Return the events of each finalist's run, the trials 3 to 6."""
    return [
        _repeated(number, Repeat(of=of, purpose="finalist", seed=seed), score)
        for number, (of, seed, score) in enumerate(AGAIN, start=3)
    ]


def a_search_with_a_final(folder: Path) -> list[Event]:
    """Return the whole search."""
    runs = [event for run in the_final() for event in run]
    return [*before_the_final(folder), *runs, search_event(folder, "finished")]


def an_audit(folder: Path) -> list[Event]:
    """Return what follows where the stopped trial is trained to its end, better than all others."""
    again = _repeated(7, Repeat(of=2, purpose="pruning"), 0.99)
    return [search_event(folder, "resumed"), *again, search_event(folder, "finished")]


def an_extension(folder: Path) -> list[Event]:
    """Return what follows where the search has one trial more, a finalist in the place of trial 1."""
    new = [*_begun(7, 7), epoch(7, 1, 0.6, rung=1), epoch(7, 2, 0.95), EndEvent(trial=7, state="finished")]
    again = [
        event
        for number, seed, score in ((8, 1, 0.5), (9, 2, 0.7))
        for event in _repeated(number, Repeat(of=7, purpose="finalist", seed=seed), score)
    ]
    later = [search_event(folder, "resumed"), ExtendEvent(trials=4), *new, *again]
    return [*later, search_event(folder, "finished")]


def _begun(number: int, recipe: int, repeat: Repeat | None = None) -> list[Event]:
    rate = 0.1 + recipe
    whole = Recipe().with_values({"optimizer.lr": rate})
    whole = whole if repeat is None else repeat.recipe(whole)
    queued = TrialEvent(
        trial=number,
        values={"optimizer.lr": rate},
        own=number == 0,
        repeat=repeat,
        recipe=whole.tree(),
        digest=whole.digest(),
    )
    return [queued, StartEvent(trial=number, attempt=1, epoch=0)]


def _repeated(number: int, repeat: Repeat, score: float) -> list[Event]:
    trained = (epoch(number, 1, 0.5), epoch(number, 2, score))
    return [*_begun(number, repeat.of, repeat), *trained, EndEvent(trial=number, state="finished")]
