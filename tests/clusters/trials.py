"""Asks of a search on hosts where its trials train, and lets them rest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from search.record.journal import Event, PlaceEvent
from tests.clusters.hosts import Hosts
from trainable.tune.place import Place


def places_of(events: Iterable[Event]) -> list[Place]:
    return [rank for each in events if isinstance(each, PlaceEvent) for rank in each.ranks]


def machines_of(events: Iterable[Event]) -> set[str]:
    return {place.machine for place in places_of(events)}


@contextmanager
def resting(hosts: Hosts, events: Iterable[Event]) -> Iterator[None]:
    """Stop trials for the block: they would keep the processors from what a test waits for."""
    places = places_of(events)
    try:
        _send("STOP", places, hosts)
        yield
    finally:
        _send("CONT", places, hosts)


def _send(signal: str, places: Iterable[Place], hosts: Hosts) -> None:
    for place in places:
        hosts.run(int(place.machine.removeprefix("t")), "kill", f"-{signal}", str(place.process))
