"""Keeps trials away from GPUs that are left out: a process that Ray starts there only keeps its GPU.

Ray gives out GPUs by itself, and cannot be told to keep one. So the trial that comes to such a GPU is
proposed again before it has begun, at no charge, and its process stays there until the search ends.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import ray
from ray.exceptions import RayError
from ray.tune.experiment import Trial

from search.running.left_out import LeftOut
from trainable.tune.trial import Gpu

ANSWER_SECONDS = 10.0
"""A process that has just started answers within milliseconds; one that does not is not asked again."""

logger = logging.getLogger(__name__)


class Parking:
    """Knows on which GPUs Ray's trials run, and which of their processes are parked on GPUs left out.

    `say` tells a person, once, that a GPU is left out.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._left_out = LeftOut()
        self._gpus: dict[str, tuple[Gpu, ...]] = {}
        self._parked: set[str] = set()

    def __str__(self) -> str:
        """Returns in words which GPUs are left out, and why."""
        return "; ".join(self._left_out.words)

    @property
    def count(self) -> int:
        """The number of processes that are parked."""
        return len(self._parked)

    def has(self, name: str) -> bool:
        """Says whether the process of a trial is parked; `name` is Ray's name of the trial."""
        return name in self._parked

    def parks(self, trial: Trial) -> bool:
        """Parks the process of a trial that is about to begin if its GPU is left out; says whether it did."""
        process = trial.temporary_state.ray_actor
        gpus = self._gpus[trial.trial_id] = _gpus_of(process)
        if not any(gpu in self._left_out for gpu in gpus):
            return False
        process.hold.remote()  # comes before Ray's next call of `train`
        self._parked.add(trial.trial_id)
        return True

    def trained(self, trial: Trial) -> None:
        """Notes that a trial has trained an epoch."""
        self._left_out.finished_epoch(self._gpus.get(trial.trial_id, ()))

    def crashed(self, trial: Trial) -> None:
        """Notes that a trial has crashed, and says so if its GPU is left out from now on."""
        for words in self._left_out.crashed(trial.config["trial"], self._gpus.get(trial.trial_id, ())):
            logger.error("%s", words)
            self._say(words)

    def leave(self, name: str) -> None:
        """Forgets a trial of Ray's that has ended, and its process."""
        self._gpus.pop(name, None)
        self._parked.discard(name)


def _gpus_of(process: object) -> tuple[Gpu, ...]:
    """Returns the GPUs of a trial's process; none where it does not answer, since it or its machine died."""
    try:
        found: tuple[Gpu, ...] = ray.get(process.gpus.remote(), timeout=ANSWER_SECONDS)  # type: ignore[attr-defined]
    except RayError as error:
        logger.warning("a trial's process does not say which GPU it has: %s", error)
        return ()
    return found
