"""Tests whether a trial fits on the machines, and how many run at once."""

from __future__ import annotations

import pytest

from search.facts.hardware import Hardware, Node, PerTrial, concurrent_trials, per_trial
from search.running.raytune import placement
from search.study import Resources, Study, StudyError

CPUS = Hardware((Node(8, 0),))
GPUS = Hardware((Node(0, 0), Node(16, 4), Node(16, 4)))


@pytest.mark.parametrize(
    ("machines", "trial", "count"),
    [
        (CPUS, PerTrial(1, 0.0), 8),
        (CPUS, PerTrial(3, 0.0), 2),
        (CPUS, PerTrial(2, 0.0, workers=3), 1),
        (GPUS, PerTrial(2, 1.0), 8),
        (GPUS, PerTrial(6, 1.0), 4),
        (GPUS, PerTrial(1, 0.25), 32),
        (Hardware((Node(64, 8),)), PerTrial(1, 0.6), 8),  # not 13: no trial runs on parts of two GPUs
        (Hardware((Node(64, 8),)), PerTrial(1, 0.3), 24),
        (GPUS, PerTrial(2, 1.0, workers=4), 2),
        (GPUS, PerTrial(2, 1.0, workers=8), 1),
    ],
)
def test_as_many_trials_run_at_once_as_fit(machines: Hardware, trial: PerTrial, count: int) -> None:
    assert concurrent_trials(None, trial, machines) == count
    assert concurrent_trials(1, trial, machines) == 1


@pytest.mark.parametrize(("machines", "gpus"), [(CPUS, 0.0), (GPUS, 1.0)])
@pytest.mark.parametrize("written", [{}, {"gpus": "auto"}, {"gpus": None}])
def test_a_worker_gets_a_gpu_where_there_are_any(
    machines: Hardware, gpus: float, written: dict[str, object]
) -> None:
    study = Study.from_tree({"data": {"path": "digits"}, "resources": written})
    trial = per_trial(study.resources, machines)
    assert (trial.gpus, trial.workers) == (gpus, 1)


@pytest.mark.parametrize(
    ("nodes", "written", "cpus"),
    [
        ((Node(8, 0),), {}, 1),
        ((Node(8, 2),), {}, 4),
        ((Node(8, 2),), {"cpus": "auto"}, 4),
        ((Node(8, 2),), {"cpus": 3}, 3),
        ((Node(8, 2),), {"gpus": 0.25}, 1),
        ((Node(16, 1),), {"gpus": 0.25}, 4),
        ((Node(8, 2),), {"gpus": 0}, 1),
        ((Node(64, 0), Node(12, 1), Node(24, 4)), {}, 6),  # the machine with fewest for each GPU
        ((Node(96, 1),), {}, 16),  # more would not make a GPU faster
        ((Node(2, 4),), {"gpus": 0.5}, 1),
    ],
)
def test_a_worker_gets_the_processors_that_belong_to_its_share_of_a_gpu(
    nodes: tuple[Node, ...], written: dict[str, object], cpus: int
) -> None:
    study = Study.from_tree({"data": {"path": "digits"}, "resources": written})
    assert per_trial(study.resources, Hardware(nodes)).cpus == cpus


def test_a_resumed_search_keeps_its_processors_where_a_machine_has_them() -> None:
    asked = Resources()
    assert per_trial(asked, Hardware((Node(16, 1),)), gpus=1.0, cpus=8).cpus == 8
    assert per_trial(asked, Hardware((Node(4, 1),)), gpus=1.0, cpus=8).cpus == 4


@pytest.mark.parametrize(
    ("nodes", "workers", "together"),
    [((Node(8, 4), Node(8, 4)), 4, True), ((Node(8, 4), Node(8, 4)), 8, False), ((Node(8, 0),), 1, True)],
)
def test_workers_stay_on_one_machine_if_one_holds_them(
    nodes: tuple[Node, ...], workers: int, together: bool
) -> None:
    trial = per_trial(Resources(workers=workers), Hardware(nodes))
    assert trial.together is together
    strategy = placement(trial).strategy if workers > 1 else "STRICT_PACK"
    assert strategy == ("STRICT_PACK" if together else "PACK")


def test_trials_that_stay_together_are_counted_machine_by_machine() -> None:
    machines = Hardware((Node(4, 3), Node(4, 3)))
    assert machines.fits(PerTrial(1, 1.0, workers=2)) == 3
    assert machines.fits(PerTrial(1, 1.0, workers=2, together=True)) == 2


@pytest.mark.parametrize(
    ("machines", "asked", "wanted"),
    [
        (CPUS, Resources(cpus=9), "resources.cpus: a trial asks for 9; the largest machine has 8"),
        (CPUS, Resources(gpus=0.5), "resources.gpus: a trial asks for 0.5; the largest machine has 0"),
        (
            CPUS,
            Resources(cpus=3, workers=3),
            "room for 2: 8 CPUs and 0 GPUs",
        ),
        (GPUS, Resources(workers=9), "9 with 4 CPUs and 1 GPUs each; there is room for 8"),
        (
            Hardware((Node(16, 0), Node(1, 4))),
            Resources(cpus=2, gpus=1),
            "no machine has 2 CPUs and 1 GPUs together",
        ),
        (Hardware(()), Resources(), "the largest machine has 0"),
    ],
)
def test_a_trial_that_can_never_be_placed_is_refused_with_what_there_is(
    machines: Hardware, asked: Resources, wanted: str
) -> None:
    with pytest.raises(StudyError) as raised:
        per_trial(asked, machines)
    assert wanted in str(raised.value)


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        ({"gpus": 2}, "for a trial on several write workers: 2 and gpus: 1"),
        ({"gpus": 0.5, "workers": 2}, "workers of one trial cannot share a GPU"),
        ({"pack": True, "workers": 2}, "leave out gpus and workers"),
        ({"pack": True, "gpus": 0.5}, "leave out gpus and workers"),
        ({"gpus": "all"}, "expected a valid number, got 'all'"),
    ],
)
def test_what_cannot_be_meant_is_refused_when_the_study_is_read(
    written: dict[str, object], wanted: str
) -> None:
    with pytest.raises(StudyError, match=wanted):
        Study.from_tree({"data": {"path": "digits"}, "resources": written})
