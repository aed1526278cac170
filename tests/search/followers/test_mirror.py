"""Tests the copy for optuna-dashboard: every ended trial once, as it ended; it never stops the search."""

from __future__ import annotations

import io
import json
import logging
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from search.followers.mirror import Mirror
from search.record.home import MIRROR_FILE
from search.record.journal import EndEvent, Event, Journal, StartEvent, TrialEvent
from search.study import Study
from spaces.domains import Choice, Float, Value
from spaces.space import Dimension, Space, When
from tests.full_disk import files_of_at_most
from tests.search.small_events import begun, epoch
from trainable.recipe import Recipe

if TYPE_CHECKING:
    import optuna
    from optuna.trial import FrozenTrial

STUDY = Study.from_tree({"data": {"path": "digits"}, "name": "digits-1"})
SGD = When("optimizer.kind", ("sgd",))
SPACE = Space(
    base=Recipe(),
    dimensions=(
        Dimension("optimizer.kind", Choice(("sgd", "adamw")), "why", "who"),
        Dimension("optimizer.lr", Float(0.01, 1.0, log=True), "why", "who", SGD, "sgd"),
        Dimension(
            "optimizer.lr",
            Float(0.0001, 0.01, log=True),
            "why",
            "who",
            When("optimizer.kind", ("adamw",)),
            "adamw",
        ),
        Dimension("augmentation.flip_probability", Float(0.25, 0.5), "why", "who"),
    ),
    own={"optimizer.kind": "sgd", "optimizer.lr": 2.0, "augmentation.flip_probability": 0.0},
)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("search.followers.consumer.POLL_SECONDS", 0.05)


def trial(number: int, kind: str = "sgd", lr: float = 0.1) -> list[Event]:
    values: dict[str, Value] = {
        "optimizer.kind": kind,
        "optimizer.lr": lr,
        "augmentation.flip_probability": 0.5,
    }
    queued = TrialEvent(trial=number, values=dict(SPACE.own) if number == 0 else values, own=number == 0)
    return [queued, StartEvent(trial=number, attempt=1, epoch=0)]


def epochs(number: int, *accuracies: float) -> list[Event]:
    return [epoch(number, each, accuracy) for each, accuracy in enumerate(accuracies, start=1)]


EVENTS: list[Event] = [
    *begun(name="digits-1"),
    *trial(0),
    *trial(1, "adamw", 0.001),
    *epochs(1, 0.25),
    EndEvent(trial=1, state="stopped", reason="rank 2 of 2"),
    *epochs(0, 0.5, 0.75),
    EndEvent(trial=0, state="finished"),
    *trial(2, lr=1.0),
    epoch(2, 1, 0.0, diverged=True),
    EndEvent(trial=2, state="diverged"),
    *trial(3),
    EndEvent(trial=3, state="failed", reason="out of memory"),
    *trial(4),
]


def write(folder: Path, events: list[Event]) -> list[Event]:
    with Journal(folder) as journal:
        return [journal.append(event) for event in events]


def copy_in(folder: Path) -> optuna.Study:
    import optuna

    return optuna.load_study(study_name=STUDY.name, storage=f"sqlite:///{folder / MIRROR_FILE}")


def trials_in(folder: Path) -> dict[int, FrozenTrial]:
    trials = {trial.user_attrs["tunebook.trial"]: trial for trial in copy_in(folder).trials}
    assert len(trials) == len(copy_in(folder).trials), "each trial once"
    return trials


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make, once, a search of five trials and its mirror (SQLite takes a second); four trials have ended."""
    folder = tmp_path_factory.mktemp("search")
    write(folder, EVENTS)
    assert Mirror(folder, STUDY, SPACE).sync().complete
    return folder


def test_ended_trials_are_recorded_as_the_sampler_learns_of_them(folder: Path) -> None:
    trials = trials_in(folder)
    assert {number: trial.state.name for number, trial in trials.items()} == {
        0: "COMPLETE",
        1: "PRUNED",
        2: "PRUNED",
        3: "FAIL",
    }
    assert trials[0].value == 0.75
    assert trials[0].intermediate_values == {1: 0.5, 2: 0.75}
    assert trials[1].intermediate_values == {1: 0.25}
    assert (trials[2].value, trials[2].intermediate_values) == (None, {})


def test_params_are_named_by_dimension_with_their_distributions(folder: Path) -> None:
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    trial = trials_in(folder)[1]
    assert trial.params == {
        "optimizer.kind": "adamw",
        "optimizer.lr[adamw]": 0.001,
        "augmentation.flip_probability": 0.5,
    }
    assert trial.distributions == {
        "optimizer.kind": CategoricalDistribution(("sgd", "adamw")),
        "optimizer.lr[adamw]": FloatDistribution(0.0001, 0.01, log=True),
        "augmentation.flip_probability": FloatDistribution(0.25, 0.5),
    }


def test_the_documents_own_recipe_is_there_though_it_lies_outside_the_space(folder: Path) -> None:
    params = {"optimizer.kind": "sgd", "optimizer.lr[sgd]": 2.0, "augmentation.flip_probability": 0.0}
    assert trials_in(folder)[0].params == params


def test_outcome_reason_and_times_are_recorded(folder: Path) -> None:
    from datetime import datetime

    from search.record.journal import read

    trials = trials_in(folder)
    assert trials[1].user_attrs == {
        "tunebook.trial": 1,
        "tunebook.outcome": "stopped",
        "tunebook.reason": "rank 2 of 2",
    }
    end = next(
        event for event in read(folder / "events.jsonl") if isinstance(event, EndEvent) and event.trial == 1
    )
    assert trials[1].datetime_complete == datetime.fromtimestamp(end.time)


def test_the_direction_is_the_objectives(folder: Path) -> None:
    assert copy_in(folder).direction.name == "MAXIMIZE"
    assert copy_in(folder).best_value == 0.75


@pytest.mark.slow("writes to Optuna's database")
def test_a_replay_adds_nothing_and_a_resumed_search_adds_what_is_new(tmp_path: Path) -> None:
    write(tmp_path, EVENTS)
    for _ in range(2):
        assert Mirror(tmp_path, STUDY, SPACE).sync().complete
        assert sorted(trials_in(tmp_path)) == [0, 1, 2, 3]
    mirror = Mirror(tmp_path, STUDY, SPACE)
    with Journal(tmp_path) as journal:
        mirror.start()
        for event in [*epochs(4, 0.5), EndEvent(trial=4, state="finished")]:
            journal.append(event)
        assert mirror.close(30).complete
    assert sorted(trials_in(tmp_path)) == [0, 1, 2, 3, 4]


def test_optuna_dashboard_opens_it(folder: Path) -> None:
    import optuna
    from optuna_dashboard import wsgi

    app = wsgi(optuna.storages.RDBStorage(f"sqlite:///{folder / MIRROR_FILE}"))

    def get(path: str) -> Any:
        wanted: list[str] = []
        environ = {
            "REQUEST_METHOD": "GET",
            "PATH_INFO": path,
            "QUERY_STRING": "",
            "SERVER_NAME": "localhost",
            "SERVER_PORT": "80",
            "wsgi.input": io.BytesIO(),
            "wsgi.errors": io.StringIO(),
            "wsgi.url_scheme": "http",
        }
        body = b"".join(app(environ, lambda status, headers, error=None: wanted.append(status)))
        assert wanted == ["200 OK"], body
        return json.loads(body)

    (summary,) = get("/api/studies")["study_summaries"]
    assert summary["study_name"] == "digits-1"
    assert len(get(f"/api/studies/{summary['study_id']}")["trials"]) == 4


def test_a_mirror_left_half_made_by_a_full_disk_is_completed(tmp_path: Path) -> None:
    write(tmp_path, EVENTS)
    with files_of_at_most(40_000):
        assert not Mirror(tmp_path, STUDY, SPACE).sync().complete
    assert (tmp_path / MIRROR_FILE).stat().st_size > 0
    assert Mirror(tmp_path, STUDY, SPACE).sync().complete
    assert len(trials_in(tmp_path)) == 4


def test_a_mirror_that_cannot_be_written_warns_once_and_lets_the_search_be(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, EVENTS)
    (tmp_path / MIRROR_FILE).write_text("no database at all, but long enough to be looked at by SQLite" * 10)
    mirror = Mirror(tmp_path, STUDY, SPACE)
    with caplog.at_level(logging.WARNING):
        backlogs = [mirror.sync() for _ in range(2)]
    assert not any(backlog.complete for backlog in backlogs)
    assert "not a database" in str(backlogs[0])
    assert "delete it: `tunebook sync DIR` writes it anew" in str(backlogs[0])
    assert len([record for record in caplog.records if "is not up to date" in record.message]) == 1


def test_a_value_that_no_distribution_holds_is_stored_beside_the_params(tmp_path: Path) -> None:
    dimension = Dimension("regularisation.label_smoothing", Float(0.05, 0.2, log=True), "why", "who")
    space = Space(Recipe(), (dimension,), own={dimension.path: 0.0})
    events: list[Event] = [
        *begun(),
        TrialEvent(trial=0, values={dimension.path: 0.0}, own=True),
        StartEvent(trial=0, attempt=1, epoch=0),
        *epochs(0, 0.5),
        EndEvent(trial=0, state="finished"),
    ]
    write(tmp_path, events)
    assert Mirror(tmp_path, STUDY, space).sync().complete
    trial = trials_in(tmp_path)[0]
    assert trial.params == {}
    assert trial.user_attrs["outside.regularisation.label_smoothing"] == 0.0
    assert math.isclose(trial.value or 0.0, 0.5)
