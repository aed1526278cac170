"""A search whose trials do nothing: the remaining cost is tunebook's own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from search.commands.asked import resolved_study
from search.facts.hardware import Hardware, Node
from search.record.home import TRIALS_FOLDER, Home
from search.running.prepare import Prepared, decide, load, write_facts
from search.study import Study
from tests.epoch_results import epoch_result
from trainable.tune.trial import TrialTrainable
from trainable.tune.worker_setup import WorkerSetup


class NoopTrial(TrialTrainable):
    """A trial of made-up epochs, each after a file of `checkpoint_bytes`, as a trial's own would be."""

    checkpoint_bytes = 0

    @classmethod
    def with_checkpoints(cls, size: int) -> type[NoopTrial]:
        return type("NoopTrial", (cls,), {"checkpoint_bytes": size})

    def setup(self, config: dict[str, str], setup: WorkerSetup) -> None:
        self.reset_config(config)

    def reset_config(self, new_config: dict[str, str]) -> bool:
        self._epoch = 0
        self._folder = Path(new_config["checkpoints"])
        return True

    def step(self) -> dict[str, Any]:
        self._epoch += 1
        if self.checkpoint_bytes:
            self._folder.mkdir(parents=True, exist_ok=True)
            with (self._folder / "state.pt").open("wb") as file:
                file.write(os.urandom(self.checkpoint_bytes))
                file.flush()
                os.fsync(file.fileno())
        return {"epochs": [epoch_result(self._epoch).tree()]}

    def cleanup(self) -> None:
        """Do nothing: there is nothing to close."""


def prepared_search(folder: Path, trials: int, epochs: int, **study: Any) -> tuple[Prepared, Hardware]:
    """Return a search on digits of `trials` trials, two at once, ready to run; unpruned unless the other
    fields of the `study` say more."""
    hardware = Hardware((Node(cpus=2, gpus=0),))
    resolved = resolved_study(
        Study.from_tree(
            {
                "name": "noop",
                "data": {"path": "digits"},
                "budget": {"trials": trials, "epochs": epochs},
                "scheduler": {"kind": "none"},
                "storage": str(folder),
                **study,
            }
        )
    )
    prepared = decide(load(resolved, Home.of(resolved), hardware))
    prepared.home.folder.mkdir(parents=True)
    resolved.write(prepared.home.folder)
    write_facts(prepared)
    (prepared.home.folder / TRIALS_FOLDER).mkdir()
    return prepared, hardware
