"""What is asked of a sampler may be left out; what it is told may not."""

from __future__ import annotations

from collections.abc import Mapping

from scale import SparinglyAsked
from search.deciding.sampler import Sampler
from search.record.journal import TrialEnd
from spaces.domains import Value


class Listener(Sampler):
    """A sampler that remembers what it was asked and told."""

    def __init__(self) -> None:
        self.heard: list[tuple[object, ...]] = []

    def ask(self, number: int) -> dict[str, Value]:
        self.heard.append(("ask", number))
        return {}

    def add(self, number: int, values: Mapping[str, Value]) -> None:
        self.heard.append(("add", number, values))

    def report(self, number: int, scores: Mapping[int, float], seconds: float | None = None) -> None:
        self.heard.append(("report", number, scores, seconds))

    def tell(
        self,
        number: int,
        outcome: TrialEnd,
        scores: Mapping[int, float],
        excesses: Mapping[str, float] | None = None,
        seconds: float | None = None,
    ) -> None:
        self.heard.append(("tell", number, outcome, scores, excesses, seconds))


def test_a_sampler_that_is_asked_sparingly_is_told_all() -> None:
    learning, even = Listener(), Listener()
    sampler = SparinglyAsked(learning, even, first=2)
    sampler.ask(1)
    sampler.add(1, {"loop.batch_size": 64})
    sampler.report(1, {1: 0.5}, 2.0)
    sampler.tell(1, "stopped", {1: 0.5}, {"latency_ms": 0.1}, 3.0)
    sampler.ask(2)
    assert even.heard == [("ask", 1)]
    assert learning.heard == [
        ("add", 1, {"loop.batch_size": 64}),
        ("report", 1, {1: 0.5}, 2.0),
        ("tell", 1, "stopped", {1: 0.5}, {"latency_ms": 0.1}, 3.0),
        ("ask", 2),
    ]
    forwarded = {name for name in vars(Sampler) if not name.startswith("_")}
    assert forwarded <= set(vars(SparinglyAsked))
