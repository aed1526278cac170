"""Knows where trials run, and keeps them away from GPUs and machines that are left out.

Ray gives out places by itself, and cannot be told to keep one. So the trial that comes to such a place is
proposed again before it has begun, at no charge, and its process stays there until the search ends.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import ray
from ray.exceptions import RayError
from ray.tune.experiment import Trial

from search.running.left_out import LeftOut
from trainable.tune.place import Place

ANSWER_SECONDS = 10.0
"""A process that has just started answers within milliseconds; one that does not is not asked again."""

logger = logging.getLogger(__name__)


class Parking:
    """Knows where the ranks of Ray's trials run, and which of their processes are parked at places left out.

    `say` tells a person, once, that a GPU or a machine is left out.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._left_out = LeftOut()
        self._places: dict[str, tuple[Place, ...]] = {}
        self._parked: set[str] = set()

    def __str__(self) -> str:
        """Return in words what is left out, and why."""
        return "; ".join(self._left_out.words)

    @property
    def count(self) -> int:
        """The number of processes that are parked."""
        return len(self._parked)

    def has(self, name: str) -> bool:
        """Says whether the process of a trial is parked; `name` is Ray's name of the trial."""
        return name in self._parked

    def parks(self, trial: Trial) -> bool:
        """Park the process of a trial that is about to begin if its place is left out; return whether.

        Of several ranks none is parked: they have not started yet.
        """
        process = trial.temporary_state.ray_actor
        places = self._places[trial.trial_id] = _places_of(process)
        if len(places) != 1:
            return False
        self._left_out.saw(places[0])
        if places[0] not in self._left_out:
            return False
        process.hold.remote()  # comes before Ray's next call of `train`
        self._parked.add(trial.trial_id)
        return True

    def places(self, trial: Trial) -> tuple[Place, ...]:
        """Return where a trial of Ray's trains, one place a rank; nothing where that is not known."""
        return self._places.get(trial.trial_id, ())

    def started(self, trial: Trial, ranks: tuple[Place, ...]) -> None:
        """Note where the ranks of a trial have started."""
        self._places[trial.trial_id] = ranks

    def trained(self, trial: Trial) -> None:
        """Note that a trial has trained an epoch."""
        for place in self.places(trial):
            self._left_out.finished_epoch(trial.config["trial"], place)

    def crashed(self, trial: Trial) -> None:
        """Note that a trial has crashed, and say so if its place is left out from now on.

        Of several ranks it is not known on which machine the fault was.
        """
        if len(places := self.places(trial)) != 1:
            return
        for words in self._left_out.failed(trial.config["trial"], places[0]):
            logger.error("%s", words)
            self._say(words)

    def leave(self, name: str) -> None:
        """Forget a trial of Ray's that has ended, and its process."""
        self._places.pop(name, None)
        self._parked.discard(name)


def _places_of(process: object) -> tuple[Place, ...]:
    """Return the places of a trial's process; none where it does not answer, since it or its machine died."""
    try:
        found: tuple[Place, ...] = ray.get(process.places.remote(), timeout=ANSWER_SECONDS)  # type: ignore[attr-defined]
    except RayError as error:
        logger.warning("a trial's process does not say where it is: %s", error)
        return ()
    return found
