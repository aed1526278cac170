"""Makes the folder of a finished search whose one trial is trained: digits, one epoch, averaged weights."""

from __future__ import annotations

from pathlib import Path

from search.record.folder import facts_text
from search.record.home import FACTS_FILE, Home
from search.record.journal import EndEvent, EpochEvent, Journal, StartEvent
from search.study import Study
from search.study.space import build_space
from tests.search.small_events import begun_in, drawn, session
from tests.spaces.small_facts import digits_facts
from trainable.bench import ON_CPU
from trainable.checkpoints.checkpoint_store import CheckpointStore
from trainable.run import make_run
from trainable.tasks.kits import load_for
from trainable.training.run import Run

EMA = {"regularisation.averaging.kind": "ema", "regularisation.averaging.decay": 0.9}


def trained_search(folder: Path, tracking: dict[str, str] | None = None) -> Run:
    """Write the search's folder, which must be there, and return the run of its trial."""
    study = Study.from_tree(
        {
            "data": {"path": "digits"},
            "base": EMA,
            "budget": {"trials": 1, "epochs": 1},
            "storage": str(folder.parent),
            "tracking": tracking or {},
        }
    )
    return write_trained(folder, study)


def write_trained(folder: Path, study: Study) -> Run:
    """Write the folder of a finished search with one trial of one epoch, and return the trial's run."""
    facts, images = digits_facts(epochs=1), load_for(study.base_recipe(), ON_CPU)
    (folder / FACTS_FILE).write_bytes(facts_text(facts, images.info))
    study.resolved(folder.name).write(folder)
    space = build_space(study, facts, images.info)
    run = make_run(space.recipe(space.own), data=images)
    events = [
        *begun_in(space, 1, name=folder.name),
        drawn(space, 0, space.own),
        StartEvent(trial=0, attempt=1, epoch=0),
        EpochEvent(trial=0, result=run.step()),
        EndEvent(trial=0, state="finished"),
        session("finished", name=folder.name),
    ]
    CheckpointStore.at(Home(folder).checkpoints(0)).save(run.state_dict(), run.history)
    with Journal(folder) as journal:
        for event in events:
            journal.append(event)
    return run
