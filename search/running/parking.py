"""Knows where trials run, and keeps them away from GPUs and machines that are left out.

Ray gives out places by itself, and cannot be told to keep one once a search has begun. So the trial that
comes to such a place is proposed again before it has begun, at no charge, and its process stays there until
the search ends. On a machine that has just joined, a process waits until it is known whether it can train.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Literal

import ray
from ray.exceptions import RayError
from ray.tune.experiment import Trial

from search.record.machines import LeftOut
from search.running.left_out import Suspects
from search.running.machines import Machines
from trainable.tune.place import Place

ANSWER_SECONDS = 10.0
"""A process that has just started answers within milliseconds; else it is asked again for its next trial."""

Fate = Literal["trains", "parked", "waits"]

logger = logging.getLogger(__name__)


class Parking:
    """Knows where the ranks of Ray's trials run, and which of their processes are parked at places left out.

    `leave_out` is told once of each GPU and machine that is left out, `say` of what else is to be known of a
    machine. `machines` are those of a cluster.
    """

    def __init__(
        self,
        leave_out: Callable[[LeftOut], None],
        say: Callable[[str], None],
        machines: Machines | None = None,
    ) -> None:
        self._leave_out, self._say, self._machines = leave_out, say, machines
        self._suspects = Suspects()
        self._places: dict[str, tuple[Place, ...]] = {}
        self._one_rank: dict[object, Place] = {}
        """By Ray's id of a process that trains alone, where it is."""
        self._parked: dict[str, bool] = {}  # whether the place is one of a machine that may train
        self._waiting: set[str] = set()

    def __str__(self) -> str:
        """Return in words what is left out, and why."""
        unfit = [] if self._machines is None else self._machines.left_out
        return "; ".join(map(str, [*unfit, *self._suspects.why]))

    @property
    def count(self) -> int:
        """The number of processes that are parked."""
        return len(self._parked)

    @property
    def taken(self) -> int:
        """How many of the places for trials they take: those of machines that cannot train are none."""
        return sum(self._parked.values())

    def has(self, name: str) -> bool:
        """Says whether the process of a trial is parked; `name` is Ray's name of the trial."""
        return name in self._parked

    def tell(self) -> None:
        """Tell what is to be known of machines, once of each: at first those known, later those that join."""
        if self._machines is None:
            return
        for machine in self._machines.newly_heard():
            for remark in machine.remarks:
                self._say(f"machine {machine.name}: {remark}")
            if machine.faults and self._machines.keeps_away(machine):
                self._leave_out(machine.left_out)
            elif machine.faults:
                self._say(f"machine {machine.name}: {machine.why}; trials may be placed there all the same")

    def waits(self, name: str) -> bool:
        """Say whether the process of a trial waits for what its machine answers; `name` is Ray's."""
        return name in self._waiting

    def arrives(self, trial: Trial) -> Fate:
        """Decide about a trial that is about to begin. Its process is parked if its place is left out, and
        waits while the machine is being asked.

        Of several ranks none is parked, and none waits: they have not started yet.
        """
        places = self._places[trial.trial_id] = self._places_of(trial.temporary_state.ray_actor)
        if len(places) != 1:
            return "trains"
        self._suspects.saw(places[0])
        fate = self._fate(places[0])
        if fate != "trains":
            trial.temporary_state.ray_actor.hold.remote()  # comes before Ray's next call of `train`
            self._hold(trial.trial_id, places[0], fate)
        return fate

    def _places_of(self, process: Any) -> tuple[Place, ...]:
        """Return the places of a trial's process; none where it does not answer, since it or its host died.

        The driver decides nothing while it waits for the answer, so a process of one rank, which stays where
        it is, is asked for its first trial alone.
        """
        if known := self._one_rank.get(process._actor_id):
            return (known,)
        try:
            found: tuple[Place, ...] = ray.get(process.places.remote(), timeout=ANSWER_SECONDS)
        except RayError as error:
            logger.warning("a trial's process does not say where it is: %s", error)
            return ()
        if len(found) == 1:
            self._one_rank[process._actor_id] = found[0]
        return found

    def heard(self, trial: Trial) -> Fate:
        """Decide about a trial that waits, as `arrives` does."""
        (place,) = self._places[trial.trial_id]
        fate = self._fate(place)
        self._waiting.discard(trial.trial_id)
        if fate == "trains":
            trial.temporary_state.ray_actor.release.remote()
        else:
            self._hold(trial.trial_id, place, fate)
        return fate

    def _hold(self, name: str, place: Place, fate: Fate) -> None:
        if fate == "waits":
            self._waiting.add(name)
        else:
            self._parked[name] = self._machines is None or bool(self._machines.may_train(place.node))

    def _fate(self, place: Place) -> Fate:
        can = self._machines is None or self._machines.may_train(place.node)
        if can is None:
            return "waits"
        return "trains" if can and place not in self._suspects else "parked"

    def places(self, trial: Trial) -> tuple[Place, ...]:
        """Return where a trial of Ray's trains, one place a rank; nothing where that is not known."""
        return self._places.get(trial.trial_id, ())

    def came(self, name: str) -> bool:
        """Whether the process of a trial has come to run, also if it did not answer; `name` is Ray's."""
        return name in self._places

    def is_the_machines(self, name: str) -> bool:
        """Whether the end of a trial's process is no fault of the trial: it did not start, and may have been
        placed on a machine that cannot train. `name` is Ray's."""
        return not self.came(name) and self._machines is not None and self._machines.in_doubt

    def started(self, trial: Trial, ranks: tuple[Place, ...]) -> None:
        """Note where the ranks of a trial have started."""
        self._places[trial.trial_id] = ranks

    def trained(self, trial: Trial) -> None:
        """Note that a trial has trained an epoch."""
        for place in self.places(trial):
            self._suspects.finished_epoch(trial.config["trial"], place)

    def crashed(self, trial: Trial) -> None:
        """Note that a trial has crashed, and say so if its place is left out from now on.

        Of several ranks it is not known on which machine the fault was.
        """
        if len(places := self.places(trial)) != 1:
            return
        for each in self._suspects.failed(trial.config["trial"], places[0]):
            self._leave_out(each)

    def leave(self, name: str) -> None:
        """Forget a trial of Ray's that has ended, and its process."""
        self._places.pop(name, None)
        self._parked.pop(name, None)
        self._waiting.discard(name)
