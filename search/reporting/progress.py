"""Says how the best score rose with the work that was done."""

from __future__ import annotations

from collections.abc import Iterable

from search.record.journal import EndEvent, EpochEvent, Event, ExtendEvent, TrialEvent
from search.reporting.content import BestSoFar, Progress
from search.reporting.drivers import DriverClock

SECONDS_PER_HOUR = 3600.0


def progress_of(events: Iterable[Event], metric: str, sign: float) -> Progress:
    """Return each finished trial that was better than all before it, by the epochs that all trials had
    trained then, the hours under a driver and the trials that had ended.

    `sign` is -1 where lower is better. Runs that train a trial again are not part of this: they come after
    the search's own trials, and hours are not counted from the first of them until the search is extended.
    """
    clock, last, repeats = DriverClock(), dict[int, float](), set[int]()
    steps: list[BestSoFar] = []
    epochs = trials = 0
    hours = aside = 0.0
    since: float | None = None
    for event in events:
        seconds = clock.read(event)
        if isinstance(event, TrialEvent) and event.repeat is not None:
            repeats.add(event.trial)
            since = seconds if since is None else since
        if getattr(event, "trial", None) in repeats:
            continue
        if since is None:
            hours = (seconds - aside) / SECONDS_PER_HOUR
        match event:
            case ExtendEvent() if since is not None:
                aside, since = aside + seconds - since, None
            case EpochEvent():
                epochs += 1
                last[event.trial] = event.result.metrics().get(metric, 0.0)
            case EndEvent(trial=trial, state=state):
                trials += 1
                if state == "finished" and (not steps or sign * last[trial] > sign * steps[-1].score):
                    steps.append(
                        BestSoFar(trial=trial, score=last[trial], epochs=epochs, hours=hours, trials=trials)
                    )
            case _:
                pass
    return Progress(steps=tuple(steps), epochs=epochs, hours=hours, trials=trials)
