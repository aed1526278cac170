"""Says which events may come next in a journal: one that a search cannot have written is refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, assert_never

from search.record.journal import (
    AfterTrialEvent,
    CostEvent,
    EndEvent,
    EpochEvent,
    Event,
    ExtendEvent,
    LeftOutEvent,
    Outcome,
    PlaceEvent,
    PromotionEvent,
    RetryEvent,
    SearchEvent,
    SettledEvent,
    StartEvent,
    TrialEvent,
)
from search.record.repeats import Repeat
from search.study.first import FirstTrial
from trainable.recipe import digest_of

if TYPE_CHECKING:
    from search.record.trials import Record, Trial


def fault_of(record: Record, event: Event) -> str | None:
    """Returns what was expected instead of the event; None where it may come next."""
    if record.search_id is None and not (isinstance(event, SearchEvent) and event.state == "started"):
        return f"expected the start of a search, got {event.event}"
    match event:
        case SearchEvent():
            return _search_fault(record, event)
        case SettledEvent():
            return None if record.settled is None else "expected one settled space, got another"
        case ExtendEvent():
            return "expected the settled space, got an extension" if record.settled is None else None
        case LeftOutEvent():
            return None
        case TrialEvent():
            return _trial_fault(record, event)
        case (
            StartEvent()
            | PlaceEvent()
            | CostEvent()
            | EpochEvent()
            | PromotionEvent()
            | RetryEvent()
            | EndEvent()
        ):
            if event.trial >= len(record.trials):
                return f"expected a trial below {len(record.trials)}, got {event.trial}"
            return _fault_in_trial(record, event, record.trials[event.trial])
        case _:
            assert_never(event)


def _search_fault(record: Record, event: SearchEvent) -> str | None:
    if record.search_id is None:
        return None
    if event.state == "started":
        return "expected one start of a search, got another"
    if (event.search_id, event.name) != (record.search_id, record.name):
        return f"expected search {record.name} ({record.search_id}), got {event.name} ({event.search_id})"
    return None


def _trial_fault(record: Record, event: TrialEvent) -> str | None:
    if record.settled is None:
        return f"expected the settled space, got trial {event.trial}"
    if event.trial != len(record.trials):
        return f"expected trial {len(record.trials)}, got trial {event.trial}"
    if event.repeat is not None and (fault := _repeat_fault(record, event.repeat)):
        return f"trial {event.trial}: {fault}"
    if fault := _first_fault(record, event, record.settled.first):
        return f"trial {event.trial}: {fault}"
    found = None if event.recipe is None else digest_of(event.recipe)
    if found != event.digest:
        return f"trial {event.trial}: expected a recipe of digest {event.digest}, got one of {found}"
    return None


def _first_fault(record: Record, event: TrialEvent, asked: Sequence[FirstTrial]) -> str | None:
    index = event.trial - record.repeats
    if event.repeat is not None:
        expected = record.trials[event.repeat.of].first
    elif 0 < index <= len(asked):
        first = asked[index - 1]
        if (event.first, event.values, event.recipe) == (first.mark, first.values, first.recipe):
            return None
        return f"expected the first trial of {first.source}, as it was settled, got another one"
    else:
        expected = None
    if event.first != expected:
        return f"expected {expected or 'no first trial'}, got {event.first or 'none'}"
    return None


def _repeat_fault(record: Record, repeat: Repeat) -> str | None:
    original = record.trials[repeat.of] if repeat.of < len(record.trials) else None
    wanted: Outcome = "finished" if repeat.purpose == "finalist" else "stopped"
    if original is None or original.is_repeat or original.end != wanted:
        return f"expected to repeat a trial that was {wanted}, got trial {repeat.of}"
    return None


def _fault_in_trial(record: Record, event: AfterTrialEvent, trial: Trial) -> str | None:
    where = f"trial {trial.id}"
    if trial.end is not None:
        return f"{where}: expected nothing after its end, got {event.event}"
    match event:
        case PromotionEvent() if not trial.waits or event.rung != trial.epochs:
            return f"{where}: it does not wait at rung {event.rung}, and is promoted from it"
        case StartEvent() | PlaceEvent() | CostEvent() | EpochEvent() | RetryEvent() if trial.waits:
            return f"{where}: expected its promotion from rung {trial.epochs}, got {event.event}"
        case StartEvent() if event.attempt != trial.attempts + 1:
            return f"{where}: expected attempt {trial.attempts + 1}, got {event.attempt}"
        case PlaceEvent() if not trial.trains:
            return f"{where}: expected an attempt to begin first, got its place"
        case CostEvent() if trial.cost is not None or trial.repeat or not record.measures_costs:
            return f"{where}: expected no cost, got one"
        case EpochEvent() if found := record.broken(trial.id):
            return f"{where}: expected its end, since {found}; got an epoch"
        case EndEvent(state="infeasible") if not record.broken(trial.id):
            return f"{where}: infeasible, and breaks no constraint"
        case EpochEvent():
            fault = _epoch_fault(record, event, trial)
            return None if fault is None else f"{where}, epoch {event.epoch}: {fault}"
        case EndEvent(state="finished") if not trial.history or trial.history[-1].diverged:
            return f"{where}: finished, and has no score"
        case _:
            return None


def _epoch_fault(record: Record, event: EpochEvent, trial: Trial) -> str | None:
    assert record.settled is not None, "no trial is taken in before"
    if event.epoch != trial.epochs + 1:
        return f"expected epoch {trial.epochs + 1}"
    if trial.history and trial.history[-1].diverged:
        return "expected none after the epoch that diverged"
    if event.epoch > record.settled.epochs:
        return f"expected {record.settled.epochs} epochs at most"
    rungs = () if trial.is_repeat else record.settled.rungs
    if event.rung != (rung := event.epoch if event.epoch in rungs else None):
        return f"expected rung {rung}, got {event.rung}"
    compared = rung is not None and not event.diverged and not trial.own
    if event.pauses != (pauses := record.settled.scheduler == "promotion" and compared):
        return f"expected {'a' if pauses else 'no'} pause"
    if not event.diverged and event.result.score(record.settled.objective) is None:
        known = ", ".join(event.result.metrics())
        return f"no metric {record.settled.objective!r} to compare trials by; known: {known}"
    return None
