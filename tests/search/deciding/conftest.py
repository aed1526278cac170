"""What the tests of the ledger share."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from search.deciding.goals import Goals
from search.deciding.ledger import Ledger
from search.deciding.make import make_sampler, make_scheduler
from search.deciding.pruning import Pruning
from search.record.journal import Journal
from search.study import SamplerKind, SchedulerKind
from search.study.first import FirstTrial
from search.study.objective import NO_CONSTRAINTS, Constraints
from search.study.study import Finalists
from spaces.space import Space
from tests.search.deciding.small_ledgers import EPOCHS, TRIALS, Open

NO_GOAL = Goals("val_accuracy", "max")


@pytest.fixture
def open_ledger(tmp_path: Path, small_space: Space) -> Iterator[Open]:
    """Open a ledger over a folder's journal, as each driver does; close the one before, as a kill would.

    The folder is made if it is not there.
    """
    journals: list[Journal] = []

    def open_one(
        folder: Path = tmp_path,
        kind: SamplerKind = "random",
        rungs: tuple[int, ...] = (1, 2),
        metric: str = "val_accuracy",
        space: Space = small_space,
        begun: bool = True,
        constraints: Constraints = NO_CONSTRAINTS,
        finalists: Finalists | None = None,
        scheduler: SchedulerKind = "asha",
        first: Sequence[FirstTrial] = (),
        by_time: bool = False,
        goal: Goals = NO_GOAL,
    ) -> Ledger:
        for journal in journals:
            journal.close()
        folder.mkdir(exist_ok=True)
        journals.append(Journal(folder))
        ledger = Ledger(
            journals[-1],
            space,
            make_sampler(space, kind, 7, "max", by_time=by_time),
            make_scheduler(space, Pruning(rungs, 3, "", scheduler), "max"),
            trials=TRIALS,
            epochs=EPOCHS,
            metric=metric,
            constraints=constraints,
            first=first,
            finalists=finalists,
            goal=goal,
        )
        if begun and ledger.search_id is None:
            ledger.begin("test")
        return ledger

    yield open_one
    for journal in journals:
        journal.close()
