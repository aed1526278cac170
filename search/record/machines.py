"""Accounts for the machines of a search, from the events of its journal: what each has trained, how fast it
was beside the others, what failed there, and for how long it had nothing to do."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Annotated

from pydantic import Field

from search.record.journal import (
    EndEvent,
    EpochEvent,
    Event,
    PlaceEvent,
    PromotionEvent,
    RetryEvent,
    SearchEvent,
    StartEvent,
)
from search.record.trials import UnderWay
from spaces.domains import counted
from trainable.recipe.base import Spec
from trainable.tune.place import Place

TimeShare = Annotated[float, Field(ge=0.0, le=1.0)]
WorkKind = tuple[
    str, str
]  # of device, and of what is trained: images of one kind take a machine equally long
# by kind and machine, the median rate and the number of epochs
Typical = Mapping[WorkKind, Mapping[str, tuple[float, int]]]

SLOW = 0.5  # a machine that trains at this part of the others' rate, or less, is said to be slow
LEAST_EPOCHS = 3  # so many must be compared on each side
KEPT = 200  # of the rates of one kind of work on a machine, the newest; a search may have 100,000 epochs


class Machine(Spec):
    """What one machine of a search did. Of ranks on several machines, each has the whole trial."""

    name: str  # with its address
    devices: tuple[str, ...]  # the kinds that trained there: names of GPUs, or `no GPU`
    trials: int
    attempts: int
    failed: int  # attempts that failed there, those that were tried again and those that were not
    images_per_second: float | None  # of a trial there, the median of its epochs; None before the first
    speed: float | None  # that beside the same work on other machines, of which 1 is the rate; None without
    idle: TimeShare  # of the time of its places, as many as it ever had trials at once, since its first trial
    is_slow: bool

    @property
    def why_slow(self) -> str:
        """A sentence on a slow machine."""
        devices = " or ".join(each if each != "no GPU" else "processors alone" for each in self.devices)
        return f"{self.name} trains at {self.speed:.2f} of the rate of other machines with {devices}"

    def __str__(self) -> str:
        beside = "" if self.speed is None else f", {self.speed:.2f} of the others' rate"
        rate = "no epoch" if self.images_per_second is None else f"{self.images_per_second:,.0f} images/s"
        failed = f", {counted(self.failed, 'attempt')} failed" if self.failed else ""
        return f"{self.name}: {counted(self.trials, 'trial')}, {rate}{beside}{failed}, idle {self.idle:.0%}"


class LeftOut(Spec):
    """A machine, or a GPU of one, that a driver kept trials from."""

    where: str  # with the machine's address
    why: str

    def __str__(self) -> str:
        return f"{self.where}: left out, since {self.why}"


@dataclass
class _Host:
    since: float  # the seconds under a driver when its first attempt began
    devices: dict[str, None] = field(default_factory=dict)
    trials: set[int] = field(default_factory=set)
    attempts: int = 0
    failed: int = 0
    now: int = 0  # attempts under way
    most: int = 0
    seconds: float = 0.0  # of all its attempts
    rates: dict[WorkKind, deque[float]] = field(
        default_factory=lambda: defaultdict(lambda: deque(maxlen=KEPT))
    )


@dataclass(frozen=True)
class _PlacedAttempt:
    """An attempt that is under way."""

    began: float
    ranks: tuple[Place, ...]
    kind: WorkKind

    @property
    def machines(self) -> tuple[str, ...]:
        """The machines of its ranks, each once."""
        return tuple(dict.fromkeys(each.on for each in self.ranks))


class MachineAccount:
    """The account of the machines so far; `apply` takes a journal's events in order."""

    def __init__(self) -> None:
        self._hosts: dict[str, _Host] = {}  # by name and address: one that starts again is the same
        self._under_way = UnderWay[_PlacedAttempt]()
        self._clock = 0.0

    def apply(self, event: Event, seconds: float, work: str = "") -> None:
        """Take in the journal's next event, with the seconds under a driver at it; of a place, `work` is what
        the trial's speed depends on."""
        self._clock = seconds
        goes_on = self._under_way.hear(event)
        match event:
            case SearchEvent():
                for attempt in self._under_way.values():
                    self._leave(attempt)
                self._under_way.clear()
            case StartEvent():
                self._leave(self._under_way.pop(event.trial, None))
            case PlaceEvent():
                self._begin(event, work)
            case EpochEvent() if event.trial in self._under_way:
                self._epoch(event)
            case PromotionEvent() if goes_on is not None:
                self._under_way[event.trial] = replace(goes_on, began=self._clock)
                for name in goes_on.machines:
                    self._hosts[name].now += 1
            case RetryEvent():
                self._leave(self._under_way.pop(event.trial, None), failed=True)
            case EndEvent():
                self._leave(self._under_way.pop(event.trial, None), failed=event.state == "failed")
            case _:
                pass

    def rows(self, seconds: float) -> tuple[Machine, ...]:
        """Return what each machine did in so many seconds under a driver, in the order in which they came."""
        typical: dict[WorkKind, dict[str, tuple[float, int]]] = defaultdict(dict)
        for name, host in self._hosts.items() if len(self._hosts) > 1 else ():
            for kind, rates in host.rates.items():
                typical[kind][name] = median(rates), len(rates)
        return tuple(self._row(name, host, seconds, typical) for name, host in self._hosts.items())

    def _begin(self, event: PlaceEvent, work: str) -> None:
        self._leave(self._under_way.pop(event.trial, None))
        kind = " + ".join(each.kind for each in event.ranks), work
        self._under_way[event.trial] = _PlacedAttempt(self._clock, event.ranks, kind)
        for place in {each.on: each for each in event.ranks}.values():
            host = self._hosts.setdefault(place.on, _Host(self._clock))
            host.devices[place.kind] = None
            host.trials.add(event.trial)
            host.attempts += 1
            host.now += 1
            host.most = max(host.most, host.now)

    def _epoch(self, event: EpochEvent) -> None:
        attempt = self._under_way[event.trial]
        if event.result.checkpoint_seconds is not None:  # else it was read from a checkpoint
            for name in attempt.machines:
                self._hosts[name].rates[attempt.kind].append(event.result.images_per_second)
        if event.pauses:
            self._leave(self._under_way.pause(event.trial))

    def _leave(self, attempt: _PlacedAttempt | None, *, failed: bool = False) -> None:
        if attempt is None:
            return
        for name in attempt.machines:
            host = self._hosts[name]
            host.now -= 1
            host.failed += failed
            host.seconds += self._clock - attempt.began

    def _row(self, name: str, host: _Host, clock: float, typical: Typical) -> Machine:
        here = [each.began for each in self._under_way.values() if name in each.machines]
        busy = host.seconds + sum(clock - began for began in here)
        whole = host.most * (clock - host.since)
        speeds, others = _beside_others(name, typical)
        speed = median(speeds) if speeds else None
        enough = min(len(speeds), others) >= LEAST_EPOCHS
        rates = [each for rates in host.rates.values() for each in rates]
        return Machine(
            name=name,
            devices=tuple(host.devices),
            trials=len(host.trials),
            attempts=host.attempts,
            failed=host.failed,
            images_per_second=median(rates) if rates else None,
            speed=speed,
            idle=min(1.0, max(0.0, 1.0 - busy / whole)) if whole > 0.0 else 0.0,
            is_slow=speed is not None and speed <= SLOW and enough and len(host.trials) > 1,
        )


def _beside_others(name: str, typical: Typical) -> tuple[list[float], int]:
    """Return for each epoch on a machine its kind's rate there over that on other machines, and how many
    epochs of these there are."""
    found: list[float] = []
    compared = 0
    for by_machine in typical.values():
        others = [each for other, each in by_machine.items() if other != name]
        if name in by_machine and others and (usual := median(rate for rate, _ in others)) > 0.0:
            here, epochs = by_machine[name]
            found += [here / usual] * epochs
            compared += sum(count for _, count in others)
    return found, compared
