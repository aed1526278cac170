"""Makes the events of small searches: those that begin a journal, and epochs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from search.record.home import EVENTS_FILE, SYNCED_FILE
from search.record.journal import EpochEvent, SearchEvent, SearchState, SettledEvent, TrialEvent
from search.record.turnaround import Turnaround
from spaces.domains import Values
from spaces.settled import tree_of
from spaces.space import Space
from tests.epoch_results import epoch_result
from trainable.tune.place import Gpu, Place

OBJECTIVE = "val_accuracy"
# What a trial's event says of a recipe, in tests where its fields do not matter
NO_FIELDS: dict[str, Any] = {"recipe": {}, "digest": "44136fa355b3"}

TURNAROUND = Turnaround(
    slots=4,
    gpus=0.25,
    total_seconds=1000.0,
    steps_seconds=640.0,
    data_seconds=20.0,
    scoring_seconds=90.0,
    checkpoint_seconds=10.0,
    starting_seconds=130.0,
    unfinished_seconds=0.0,
    idle_seconds=110.0,
)


def place(machine: str = "h1", gpu: str = "", process: int = 7) -> Place:
    gpus = (Gpu(number=gpu, name="NVIDIA H200"),) if gpu else ()
    address = f"10.0.0.{machine.removeprefix('h')}"
    return Place(machine=machine, address=address, node=f"node of {machine}", process=process, gpus=gpus)


def session(state: SearchState, reason: str | None = None, name: str = "digits") -> SearchEvent:
    return SearchEvent(state=state, search_id="0a1b", name=name, reason=reason)


def settled(epochs: int = 20, rungs: tuple[int, ...] = (), objective: str = OBJECTIVE) -> SettledEvent:
    """Return what a search settled, but for its space."""
    return SettledEvent(
        space={},
        rungs=rungs,
        factor=3,
        why="",
        objective=objective,
        epochs=epochs,
        scheduler="asha",
        version="0",
    )


def begun(
    epochs: int = 20, rungs: tuple[int, ...] = (), name: str = "digits"
) -> tuple[SearchEvent, SettledEvent]:
    """Return the events that every journal begins with."""
    return session("started", name=name), settled(epochs, rungs)


def begun_in(
    space: Space, epochs: int = 20, rungs: tuple[int, ...] = (), name: str = "digits"
) -> tuple[SearchEvent, SettledEvent]:
    """Return the events that the journal of a search of this space begins with."""
    first, second = begun(epochs, rungs, name)
    return first, second.model_copy(update={"space": tree_of(space)})


def drawn(space: Space, number: int, values: Values) -> TrialEvent:
    """Return a trial of a space as a ledger journals it."""
    recipe = space.recipe(values)
    return TrialEvent(
        trial=number, values=dict(values), own=number == 0, recipe=recipe.tree(), digest=recipe.digest()
    )


def epoch(
    trial: int, number: int, accuracy: float = 0.5, rung: int | None = None, **changes: Any
) -> EpochEvent:
    result = epoch_result(number, accuracy, **changes)
    return EpochEvent(trial=trial, result=result, rung=rung)


def replace_journal(folder: Path, content: bytes = b"") -> None:
    """Replace a folder's journal, as if its driver had been killed before the lines that are missing."""
    (folder / SYNCED_FILE).unlink(missing_ok=True)
    (folder / EVENTS_FILE).write_bytes(content)
