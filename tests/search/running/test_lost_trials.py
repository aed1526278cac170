"""A trial whose process was lost before it came to run has lost no attempt."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from ray.tune.experiment import Trial

from search.facts.hardware import Hardware, Node
from search.record.home import Home
from search.record.journal import Journal
from search.running.driver import make_ledger
from search.running.machines import Machines
from search.running.parking import Parking
from search.running.prepare import prepare
from search.running.raytune import LedgerCallback, LedgerSearcher
from search.running.room import FixedRoom
from search.running.switch import StopSwitch
from tests.integration.small_searches import digits_study, events_in
from trainable.tune.place import Place
from trainable.tune.worker import TrialAssignment

LOST = "The actor died unexpectedly before finishing this task: its node has died. The actor never ran."
BROKEN = 'Traceback (most recent call last):\n  File "a.py", line 1\nRuntimeError: no such layer'


@pytest.mark.slow("it prepares a search")
@pytest.mark.parametrize(
    ("came", "said", "in_doubt", "retried"),
    [(False, LOST, False, 0), (True, LOST, False, 1), (False, BROKEN, False, 1), (False, BROKEN, True, 0)],
)
def test_only_an_attempt_that_began_or_a_crash_is_one_that_failed(
    tmp_path: Path, *, came: bool, said: str, in_doubt: bool, retried: int
) -> None:
    """Unless it may have been placed on a machine that is not known to be able to train."""
    study = digits_study(tmp_path, name="mine", limits__retries=1)
    prepared = prepare(study, Home(tmp_path / "mine"), Hardware((Node(2, 0),)))
    prepared.home.folder.mkdir()
    (tmp_path / "error.txt").write_text(said, encoding="utf-8")
    with Journal(prepared.home.folder) as journal:
        ledger, switch = make_ledger(prepared, journal), StopSwitch()
        machines = cast(Machines, SimpleNamespace(in_doubt=in_doubt))
        parking = Parking(lambda _: None, lambda _: None, machines)
        searcher = LedgerSearcher(ledger, prepared, switch, FixedRoom(1, 1), parking)
        callback = LedgerCallback(ledger, prepared, switch, lambda: None, searcher, parking)
        ledger.begin("mine")
        proposal = ledger.propose()
        assert proposal is not None
        store = prepared.home.checkpoints(0)
        assigned = TrialAssignment(proposal.recipe, store, str(ledger.search_id), False)
        trial = SimpleNamespace(
            trial_id="a",
            config={"trial": 0, **assigned.config()},
            error_file=str(tmp_path / "error.txt"),
            run_metadata=SimpleNamespace(),
        )
        if came:
            parking.started(
                cast(Trial, trial), (Place(machine="h1", address="10.0.0.1", node="n", process=1),)
            )
        callback.on_trial_error(1, [], cast(Trial, trial))
        assert searcher._again == [0], "it is tried again in each case"
    assert sum(each.event == "retry" for each in events_in(prepared.home.folder)) == retried
