"""Where trials run is known, and they are kept from machines that are left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
import ray
from ray.exceptions import GetTimeoutError
from ray.tune.experiment import Trial

from search.facts.hardware import PerTrial
from search.running import machines as asking
from search.running.look import Look, Question
from search.running.machines import CheckedMachine, Machines
from search.running.parking import Parking
from trainable.tune.place import Place

HERE = Place(machine="h1", address="10.0.0.1", node="h1", process=1)
OTHER = Place(machine="h2", address="10.0.0.2", node="h2", process=2)
LOOK = Look(shared="", device="", compiler="", code="", packages={}, files="", written="")


@dataclass
class Cluster:
    """The machines that are there, each with its faults; None for one that has not answered yet."""

    faults: dict[str, tuple[str, ...] | None]
    ranks: int = 1
    together: bool = False
    said: list[str] = field(default_factory=list)

    def nodes(self) -> list[dict[str, Any]]:
        return [
            {"NodeID": name, "NodeManagerHostname": name, "NodeManagerAddress": name, "Resources": {"CPU": 8}}
            for name in self.faults
        ]

    def parking(self) -> tuple[Parking, Machines]:
        trial = PerTrial(cpus=1, gpus=0.0, workers=self.ranks, together=self.together)
        machines = Machines(trial, Question("", "", "", "cpu"))
        vars(machines)["_here"] = LOOK
        kept = Parking(lambda each: self.said.append(str(each)), self.said.append, machines, ranks=self.ranks)
        machines.hardware()
        kept.tell()
        return kept, machines


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Cluster]:
    """Make a cluster whose machines answer at once, or not at all."""

    def make(faults: Mapping[str, tuple[str, ...] | None], **values: Any) -> Cluster:
        made = Cluster(dict(faults), **values)

        class Asked:
            is_overdue = False

            def __init__(self, node: Mapping[str, Any], question: Question) -> None:
                self.name = str(node["NodeID"])

            @property
            def has_answered(self) -> bool:
                return made.faults.get(self.name, ()) is not None

            def seen(self, *args: object, **options: object) -> CheckedMachine:
                if (faults := made.faults.get(self.name)) is None:
                    return CheckedMachine(self.name, self.name, faults=("it does not answer",))
                return CheckedMachine(self.name, self.name, LOOK, faults=faults)

        monkeypatch.setattr(asking, "alive_nodes", made.nodes)
        monkeypatch.setattr(asking, "_Asked", Asked)
        monkeypatch.setattr(ray, "get", lambda answer, timeout: answer)
        return made

    return make


class Process:
    """The actor of a trial of Ray's: what the driver told it, and where it is."""

    def __init__(self, place: Place = HERE) -> None:
        self.told: list[str] = []
        self._actor_id = id(self)
        self.place = SimpleNamespace(remote=self._where)
        self._place = place
        for word in ("hold", "release"):
            setattr(self, word, SimpleNamespace(remote=lambda word=word: self.told.append(word)))

    def _where(self) -> Place:
        self.told.append("place")
        return self._place


def trial(number: int, process: Process) -> Trial:
    state = SimpleNamespace(ray_actor=process)
    return cast(Trial, SimpleNamespace(trial_id=f"{number}", temporary_state=state, config={"trial": number}))


FIT: tuple[str, ...] = ()
UNFIT = ("no data",)


def test_a_process_is_asked_where_it_is_once_and_ranks_never(cluster: Callable[..., Cluster]) -> None:
    """Nothing is decided while the driver waits for the answer."""
    for ranks, asked in ((1, ["place"]), (2, [])):
        kept, _ = cluster({"h1": FIT}, ranks=ranks).parking()
        process = Process()
        for number in range(3):
            kept.arrives(trial(number, process))
            kept.leave(f"{number}")
        assert process.told == asked


def test_a_process_that_does_not_answer_trains(
    cluster: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, _ = cluster({"h1": FIT}).parking()

    def too_late(answer: object, timeout: float) -> None:
        raise GetTimeoutError

    monkeypatch.setattr(ray, "get", too_late)
    assert kept.arrives(one := trial(1, Process())) == "trains"
    assert (kept.places(one), kept.came("1")) == ((), True)


@pytest.mark.parametrize(
    ("h1", "h2", "fate", "told"),
    [
        (FIT, FIT, "trains", []),
        (FIT, None, "waits", ["hold"]),
        (FIT, UNFIT, "trains", []),  # parked, it would hold the place on the good machine, too
        (UNFIT, UNFIT, "parked", ["hold"]),
    ],
)
def test_ranks_on_two_machines_train_unless_no_machine_may_or_one_is_being_asked(
    h1: tuple[str, ...],
    h2: tuple[str, ...] | None,
    fate: str,
    told: list[str],
    cluster: Callable[..., Cluster],
) -> None:
    kept, _ = cluster({"h1": h1, "h2": h2}, ranks=2).parking()
    assert kept.arrives(one := trial(1, process := Process())) == "starts"
    assert kept.starts("1")
    assert kept.started(one, (HERE, OTHER)) == fate
    assert (process.told, kept.taken, kept.starts("1")) == (told, 0, False)
    assert kept.is_the_machines("1") is (UNFIT in (h1, h2)), "a crash is not the trial's own"


def test_ranks_that_wait_train_when_the_machine_has_answered(cluster: Callable[..., Cluster]) -> None:
    two = cluster({"h1": FIT, "h2": None}, ranks=2)
    kept, machines = two.parking()
    kept.arrives(one := trial(1, process := Process()))
    kept.started(one, (HERE, OTHER))
    assert kept.heard(one) == "waits"
    two.faults["h2"] = FIT
    machines.hardware()
    assert kept.heard(one) == "trains"
    assert (process.told, kept.waits("1")) == (["hold", "release"], False)


def test_ranks_do_not_wait_for_a_machine_that_went_before_it_answered(
    cluster: Callable[..., Cluster],
) -> None:
    """They find out when they meet, and the trial is tried again."""
    two = cluster({"h1": FIT, "h2": None}, ranks=2)
    kept, machines = two.parking()
    kept.arrives(one := trial(1, Process()))
    assert kept.started(one, (HERE, OTHER)) == "waits"
    del two.faults["h2"]
    machines.hardware()
    assert kept.heard(one) == "trains"


@pytest.mark.parametrize("answers", ["before", "later"])
def test_ranks_on_one_machine_that_cannot_train_are_parked(
    answers: str, cluster: Callable[..., Cluster]
) -> None:
    one_machine = cluster({"h1": UNFIT if answers == "before" else None}, ranks=2, together=True)
    kept, machines = one_machine.parking()
    kept.arrives(one := trial(1, Process()))
    fate = kept.started(one, (HERE, HERE))
    if answers == "later":
        assert fate == "waits"
        one_machine.faults["h1"] = UNFIT
        machines.hardware()
        fate = kept.heard(one)
    assert (fate, kept.count, kept.taken) == ("parked", 1, 0), "no place for trials is lost by it"
    kept.tell()
    assert one_machine.said[0] == "h1: left out, since no data"


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_machine_on_which_trials_fail_that_train_elsewhere_is_no_place_for_trials(
    ranks: int, cluster: Callable[..., Cluster]
) -> None:
    two = cluster({"h1": FIT, "h2": FIT}, ranks=ranks)
    kept, machines = two.parking()

    def arrive(number: int, place: Place) -> tuple[Trial, str]:
        fate = kept.arrives(one := trial(number, Process(place)))
        return one, kept.started(one, (place,) * ranks) if fate == "starts" else fate

    still_there, _ = arrive(9, HERE)
    for number in (1, 2):
        bad, fate = arrive(number, HERE)
        assert fate == "trains"
        kept.crashed(bad)
        kept.leave(bad.trial_id)
        good, fate = arrive(number, OTHER)
        assert fate == "trains"
        kept.trained(good)
        kept.leave(good.trial_id)
    assert two.said == ["h1 (10.0.0.1): left out, since trials 1 and 2 failed there"]
    assert [each.cpus for each in machines.hardware().nodes] == [8], "those of the other one"
    assert kept.leaving == 1, "a trial that trains there still takes no place"
    kept.leave(still_there.trial_id)
    assert arrive(3, HERE)[1] == "parked"
    assert (kept.count, kept.taken, kept.leaving) == (1, 0, 0)


def test_a_search_whose_last_machines_are_left_out_says_that_it_waits(
    cluster: Callable[..., Cluster],
) -> None:
    two = cluster({"h1": FIT, "h2": UNFIT})
    kept, machines = two.parking()
    waits = "no machine that may train is left, and the search waits for one to join"
    assert not any(waits in each for each in two.said)
    for _ in range(2):
        del two.faults["h1"]
        for _ in range(3):
            machines.hardware()
            kept.tell()
        two.faults["h1"] = FIT
        machines.hardware()
        kept.tell()
    assert sum(waits in each for each in two.said) == 2, "once each time"


def test_the_last_machine_that_is_there_is_not_left_out(cluster: Callable[..., Cluster]) -> None:
    two = cluster({"h1": FIT, "h2": FIT})
    kept, machines = two.parking()
    for number in range(9):
        if number == 1:
            del two.faults["h2"]
            machines.hardware()
        for place in (HERE, OTHER) if number == 0 else (HERE,):
            kept.arrives(one := trial(number, Process(place)))
            kept.crashed(one) if place == HERE else kept.trained(one)
    assert two.said == []
