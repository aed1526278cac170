"""Makes the folder of a finished search whose one trial is trained: small masks, one epoch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from search.record.folder import facts_text
from search.record.home import FACTS_FILE, Home
from search.record.journal import EndEvent, EpochEvent, Journal, StartEvent
from search.study import Study
from search.study.space import build_space
from tests.search.small_events import begun_in, drawn, session
from tests.spaces.small_facts import digits_facts
from tests.trainable.small_segmentations import mask_recipe, write_masks
from trainable.checkpoints.checkpoint_store import CheckpointStore
from trainable.training.pixels import load_for
from trainable.training.run import Run


def mask_study(root: Path, storage: Path, epochs: int = 1, **sections: Any) -> Study:
    """Returns the study of a search around the small recipe for masks, whose images are below `root`."""
    tree = mask_recipe(root).tree()
    base = {name: tree[name] for name in ("task", "model", "precision", "evaluation")}
    return Study.from_tree(
        {
            "data": {"path": str(root), "image_size": 16},
            "base": {**base, "loop": {"batch_size": 4, "workers": 0}, "optimizer": tree["optimizer"]},
            "space": {"name": "quick"},
            "budget": {"trials": 1, "epochs": epochs},
            "storage": str(storage),
            **sections,
        }
    )


def trained_mask_search(folder: Path, tracking: dict[str, str] | None = None) -> Run:
    """Writes the search's folder, which must be there, and returns the run of its trial."""
    sizes = ((32, 32), (20, 40))
    study = mask_study(
        write_masks(folder.parent / "data", sizes=sizes), folder.parent, tracking=tracking or {}
    )
    facts, images = digits_facts(epochs=1), load_for(study.base_recipe(), torch.device("cpu"))
    (folder / FACTS_FILE).write_bytes(facts_text(facts, images.info))
    study.resolved(folder.name).write(folder)
    space = build_space(study, facts, images.info)
    run = Run(space.recipe(space.own), data=images)
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
