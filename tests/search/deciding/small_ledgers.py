"""Makes ledgers over small searches, and says how their trials would go."""

import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from search.deciding.ledger import Decision, Ledger
from search.record.home import EVENTS_FILE
from search.record.journal import (
    CostEvent,
    EndEvent,
    EpochEvent,
    Event,
    PromotionEvent,
    TrialEvent,
    read,
)
from search.study.objective import Constraints
from spaces.domains import Integer, Value
from spaces.space import Dimension, Space
from tests.epoch_results import epoch_result
from tests.search.small_events import replace_journal
from trainable.recipe.network_cost import NetworkCost
from trainable.training.metrics import EpochResult, worst

TRIALS, EPOCHS, SLOTS = 16, 4, 3

Open = Callable[..., Ledger]


def result(epoch: int, accuracy: float, *, diverged: bool = False, epoch_seconds: float = 1.0) -> EpochResult:
    return epoch_result(
        epoch, accuracy, val_loss=1.0 - accuracy, diverged=diverged, epoch_seconds=epoch_seconds
    )


def trained(values: dict[str, Value], epoch: int) -> EpochResult:
    """Return what training to an epoch would give: better near a rate of 0.1, diverged far above it.
    Small batches take longer."""
    rate, batch = values["optimizer.lr"], values["loop.batch_size"]
    assert isinstance(rate, float)
    assert isinstance(batch, int)
    if rate > 0.25:
        return result(epoch, worst("val_accuracy", 10), diverged=True)
    accuracy = (1.0 - math.exp(-epoch)) * math.exp(-abs(math.log10(rate) + 1.0))
    return result(epoch, accuracy, epoch_seconds=256 / batch)


SMALL = Constraints.model_validate({"latency_ms": {"max": 10.0}})


def cost(values: Mapping[str, Value]) -> NetworkCost:
    """Return a cost that is above the limit of SMALL for a third of the batches, the large ones."""
    batch = values["loop.batch_size"]
    assert isinstance(batch, int)
    return NetworkCost(parameters=100, latency_ms=batch / 16.0, memory_gib=1.0)


def drive(ledger: Ledger) -> None:
    """Train to the end on three slots; the running trial with the fewest epochs is always the next."""
    ledger.begin("test")
    running: dict[int, dict[str, Value]] = {}
    while True:
        while len(running) < SLOTS and (proposal := ledger.propose()) is not None:
            ledger.start(proposal.trial, ledger.epochs_done(proposal.trial))
            if ledger.lacks_cost(proposal.trial):
                decision = ledger.cost(proposal.trial, cost(proposal.values))
                if decision is Decision.STOP:
                    continue
            running[proposal.trial] = dict(proposal.values)
        if not running:
            return
        trial = min(running, key=lambda number: (ledger.epochs_done(number), number))
        decision = ledger.epoch(trial, trained(running[trial], ledger.epochs_done(trial) + 1))
        if decision is not Decision.CONTINUE:
            del running[trial]


def essence(folder: Path) -> list[Event]:
    """Return what a search proposed, measured and decided, without the time and the driver."""
    return [
        event.model_copy(update={"sequence": -1, "time": 0.0})
        for event in read(folder / EVENTS_FILE)
        if isinstance(event, TrialEvent | CostEvent | EpochEvent | PromotionEvent | EndEvent)
    ]


def try_kills(whole: Path, cuts: Iterable[int], drive_one: Callable[[Path], None]) -> None:
    """Fail unless a search comes to the same whose driver was killed in these lines of the journal.

    The line itself is torn; `drive_one` opens a ledger over a folder and trains to the end.
    """
    lines, part = (whole / EVENTS_FILE).read_bytes().splitlines(keepends=True), whole.with_name("killed")
    part.mkdir()
    for cut in cuts:
        replace_journal(part, b"".join(lines[:cut]) + lines[cut][: len(lines[cut]) // 2])
        drive_one(part)
        assert essence(part) == essence(whole), f"killed in line {cut + 1}: {lines[cut].decode()}"


def ends(folder: Path) -> dict[int, str]:
    return {event.trial: event.state for event in read(folder / EVENTS_FILE) if isinstance(event, EndEvent)}


class Unchecked(Space):
    """A space as it would be if the checks at its building had missed something."""

    def __post_init__(self) -> None:
        """Check nothing."""


def with_holes(space: Space) -> Space:
    """Return a space most of whose draws are no recipes: few of its depths are depths of a ResNet."""
    depth = Dimension("model.depth", Integer(8, 20), "for the test", "none")
    return Unchecked(space.base, (*space.dimensions, depth), {**space.own, "model.depth": 8})
