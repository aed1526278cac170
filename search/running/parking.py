"""Knows where trials run, and keeps them away from GPUs and machines that are left out.

Ray gives out places by itself, and cannot be told to keep one once a search has begun. So the trial that
comes to such a place is proposed again before it has begun, at no charge, and its process stays there until
the search ends. On a machine that has just joined, a process waits until it is known whether it can train.

Where several ranks train is known when they have started. If one of their machines is left out and another
one is not, they train all the same: parked, they would hold the place on the good machine, too.
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

# a process that has just started answers within milliseconds; else it is asked again for its next trial
ANSWER_SECONDS = 10.0

# `starts`: it has several ranks, and where they are is not known yet
Fate = Literal["trains", "parked", "waits", "starts"]

logger = logging.getLogger(__name__)


class Parking:
    """Where the ranks of Ray's trials run, and which of their processes are parked at places left out.

    `leave_out` is told once of each GPU and machine that is left out, `say` of what else is to be known of a
    machine. `machines` are those of a cluster; a trial has so many `ranks`. Names of trials are Ray's.
    """

    def __init__(
        self,
        leave_out: Callable[[LeftOut], None],
        say: Callable[[str], None],
        machines: Machines | None = None,
        ranks: int = 1,
    ) -> None:
        self._leave_out, self._say, self._machines, self._ranks = leave_out, say, machines, ranks
        self._suspects = Suspects()
        self._fates: dict[str, Fate] = {}
        self._places: dict[str, tuple[Place, ...]] = {}
        self._one_rank: dict[object, Place] = {}  # by Ray's id of a process that trains alone, where it is
        self._says_that_none_trains = False

    def __str__(self) -> str:
        """Return in words what is left out, and why."""
        unfit = [] if self._machines is None else self._machines.left_out
        return "; ".join(map(str, [*unfit, *self._suspects.why]))

    @property
    def count(self) -> int:
        """The number of processes that are parked."""
        return sum(fate == "parked" for fate in self._fates.values())

    @property
    def taken(self) -> int:
        """How many of the places for trials they take: those of machines that do not train are none."""
        return sum(any(map(self._may_train, self._places[name])) for name in self._fates if self.has(name))

    @property
    def leaving(self) -> int:
        """How many trials train where no more will: they take no place, either."""
        training = (self._places[name] for name, fate in self._fates.items() if fate == "trains")
        return sum(bool(places) and not any(map(self._may_train, places)) for places in training)

    def has(self, name: str) -> bool:
        """Say whether the process of a trial is parked."""
        return self._fates.get(name) == "parked"

    def waits(self, name: str) -> bool:
        """Say whether the process of a trial waits for what its machine answers."""
        return self._fates.get(name) == "waits"

    def starts(self, name: str) -> bool:
        """Say whether the ranks of a trial are still to start."""
        return self._fates.get(name) == "starts"

    def came(self, name: str) -> bool:
        """Whether the process of a trial has come to run, also if it did not answer."""
        return name in self._fates

    def tell(self) -> None:
        """Tell what is to be known of machines, once of each: at first those known, later those that join;
        and that none which may train is there, each time that this comes about."""
        if self._machines is None:
            return
        for machine in self._machines.newly_heard():
            for remark in machine.remarks:
                self._say(f"machine {machine.name}: {remark}")
            if machine.faults and self._machines.keeps_away(machine):
                self._leave_out(machine.left_out)
            elif machine.faults:
                self._say(
                    f"machine {machine.name}: {machine.why}; ranks may be placed there all the same, beside "
                    "others"
                )
        none_trains = self._machines.none_trains
        if none_trains and not self._says_that_none_trains:
            self._say(
                "no machine that may train is left, and the search waits for one to join; Ctrl-C ends it, "
                "and those left out are asked again when it is resumed"
            )
        self._says_that_none_trains = none_trains

    def arrives(self, trial: Trial) -> Fate:
        """Decide about a trial that is about to begin. Its process is parked if its place is left out, and
        waits while the machine is being asked. Several ranks start first, and say then where they are."""
        if self._ranks > 1:
            self._places[trial.trial_id], self._fates[trial.trial_id] = (), "starts"
            return "starts"
        return self.started(trial, self._places_of(trial.temporary_state.ray_actor))

    def _places_of(self, process: Any) -> tuple[Place, ...]:
        """Return the place of a trial's process; none where it does not answer, since it or its host died.

        The driver decides nothing while it waits for the answer, so a process, which stays where it is, is
        asked for its first trial alone.
        """
        if known := self._one_rank.get(process._actor_id):
            return (known,)
        try:
            found: Place = ray.get(process.place.remote(), timeout=ANSWER_SECONDS)
        except RayError as error:
            logger.warning("a trial's process does not say where it is: %s", error)
            return ()
        self._one_rank[process._actor_id] = found
        return (found,)

    def started(self, trial: Trial, ranks: tuple[Place, ...]) -> Fate:
        """Decide about a trial whose ranks have started there, as `arrives` does."""
        self._places[trial.trial_id] = ranks
        if (one := _on_one_machine(ranks)) is not None:
            self._suspects.saw(one)
        fate = self._fates[trial.trial_id] = self._fate(ranks)
        if fate != "trains":
            trial.temporary_state.ray_actor.hold.remote()  # comes before Ray's next call of `train`
        return fate

    def heard(self, trial: Trial) -> Fate:
        """Decide about a trial that waits, as `arrives` does."""
        fate = self._fates[trial.trial_id] = self._fate(self._places[trial.trial_id])
        if fate == "trains":
            trial.temporary_state.ray_actor.release.remote()
        return fate

    def _fate(self, places: tuple[Place, ...]) -> Fate:
        can = [self._may_train(each) for each in places]
        if None in can:
            return "waits"
        one = _on_one_machine(places)
        suspect = one is not None and one in self._suspects
        return "parked" if suspect or (places and not any(can)) else "trains"

    def _may_train(self, place: Place) -> bool | None:
        return True if self._machines is None else self._machines.may_train(place.node)

    def places(self, trial: Trial) -> tuple[Place, ...]:
        """Return where a trial of Ray's trains, one place a rank; nothing where that is not known."""
        return self._places.get(trial.trial_id, ())

    def is_the_machines(self, name: str) -> bool:
        """Whether the end of a trial's process is no fault of the trial: a machine of its ranks is left out,
        or it did not start, and may have been placed on a machine that cannot train."""
        if any(self._may_train(each) is False for each in self._places.get(name, ())):
            return True
        started = self.came(name) and not self.starts(name)
        return not started and self._machines is not None and self._machines.in_doubt

    def trained(self, trial: Trial) -> None:
        """Note that a trial has trained an epoch."""
        for place in self.places(trial):
            self._suspects.finished_epoch(trial.config["trial"], place)

    def crashed(self, trial: Trial) -> None:
        """Note that a trial has crashed, and say so if its place is left out from now on.

        Of ranks on several machines it is not known on which one the fault was.
        """
        if (place := _on_one_machine(self.places(trial))) is None:
            return
        if self._machines is not None:
            self._suspects.forget_others(self._machines.there)
        for each in self._suspects.failed(trial.config["trial"], place):
            self._leave_out(each)
        if self._machines is not None and self._suspects.has_machine(place.node):
            self._machines.stop_training_on(place.node)

    def leave(self, name: str) -> None:
        """Forget a trial of Ray's that has ended, and its process."""
        self._places.pop(name, None)
        self._fates.pop(name, None)


def _on_one_machine(ranks: tuple[Place, ...]) -> Place | None:
    """Return where ranks train that are all on one machine; None for others, and where it is not known.

    Of several ranks it is not known whose GPU had a fault, so no GPU is named.
    """
    if len({each.node for each in ranks}) != 1:
        return None
    return ranks[0] if len(ranks) == 1 else ranks[0].model_copy(update={"gpus": ()})
