"""Tests a final in a real MLflow database: the finalists' runs, the winner's model, a resumed final."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from search.followers.saved_view import AGAIN, TAG
from search.record.home import CURSOR_FILE
from search.record.journal import Event, Repeat
from tests.search.followers.small_final import (
    a_search_with_a_final,
    an_audit,
    an_extension,
    before_the_final,
    the_final,
)
from tests.search.followers.small_tracking import contents, runs_of, search_event, tracker_of, write
from tests.search.followers.test_tracking_attachments import finished, models_of
from tests.search.reporting.test_terminal import INFO

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run


def best_and_estimate(run: Run) -> tuple[float | None, float | None]:
    return run.data.metrics.get("best_trial"), run.data.metrics.get("final_estimate")


def test_the_runs_of_finalists_say_what_they_repeat(client: MlflowClient, folder: Path) -> None:
    write(folder, [*a_search_with_a_final(folder), *an_audit(folder)])
    assert tracker_of(folder).sync().complete
    (parent,), children = runs_of(client, folder)
    assert [children[number].info.run_name.partition(":")[0] for number in range(8)] == [
        *("0", "1", "2", "0 again, seed 1", "1 again, seed 1", "0 again, seed 2", "1 again, seed 2"),
        "2 to its end",
    ]
    purposes = [children[number].data.tags["tunebook.purpose"] for number in range(8)]
    assert purposes == ["search"] * 3 + ["finalist"] * 4 + ["pruning"]
    assert "tunebook.purpose" not in parent.data.tags
    winner = children[1].data.metrics["final_estimate"]
    assert best_and_estimate(parent) == (1.0, winner)


def test_the_views_filters_tell_trials_from_their_repeats(client: MlflowClient, folder: Path) -> None:
    write(folder, a_search_with_a_final(folder))
    tracker_of(folder).sync()
    (parent,), _ = runs_of(client, folder)
    experiment = parent.info.experiment_id
    tags = client.get_experiment(experiment).tags
    key = f"{TAG}id-{folder.name}"
    assert {key, f"{key}{AGAIN}"} <= set(tags)
    mine = f"tags.`tunebook.search_id` = 'id-{folder.name}' AND tags."
    trials = client.search_runs([experiment], f"{mine}`tunebook.purpose` = 'search'")
    repeats = client.search_runs([experiment], f"{mine}`tunebook.repeat_of` LIKE '%'")
    assert (len(trials), len(repeats)) == (3, 4)


@pytest.mark.slow("writes to MLflow")
def test_a_final_that_is_resumed_goes_into_the_same_runs(
    client: MlflowClient, storage: Path, folder: Path
) -> None:
    first, *rest = the_final()
    half, others = rest[0][:3], rest[0][3:]
    write(folder, [*before_the_final(folder), *first, *half, search_event(folder, "interrupted")])
    assert tracker_of(folder).sync().complete
    (parent,), before = runs_of(client, folder)
    assert best_and_estimate(parent) == (0.0, None)
    again: Event = half[1].model_copy(update={"attempt": 2, "epoch": 1})
    on = [again, *others, *(event for run in rest[1:] for event in run), search_event(folder, "finished")]
    write(folder, [search_event(folder, "resumed"), *on])
    assert tracker_of(folder).sync().complete
    (same,), after = runs_of(client, folder)
    assert same.info.run_id == parent.info.run_id
    assert {number: after[number].info.run_id for number in before} == {
        number: run.info.run_id for number, run in before.items()
    }
    assert best_and_estimate(same) == (1.0, after[1].data.metrics["final_estimate"])
    assert {run.info.status for number, run in after.items() if number != 2} == {"FINISHED"}
    sent = contents(storage, folder)
    tracker_of(folder).sync()
    (folder / CURSOR_FILE).unlink()
    assert tracker_of(folder).sync().complete
    assert contents(storage, folder) == sent


@pytest.mark.slow("writes to MLflow")
def test_the_model_is_the_winners_with_its_estimate(client: MlflowClient, folder: Path) -> None:
    write(folder, a_search_with_a_final(folder))
    finished(folder)
    (model,) = models_of(client, folder)
    (_, children) = runs_of(client, folder)
    assert model.source_run_id == children[1].info.run_id
    scores = {metric.key: metric.value for metric in model.metrics}
    assert scores["final_estimate"] == children[1].data.metrics["final_estimate"]
    assert "val_accuracy" in scores
    write(folder, an_audit(folder))
    finished(folder)
    assert [each.model_id for each in models_of(client, folder)] == [model.model_id]


def test_a_run_on_another_split_names_no_images_as_their_digest_is_of_the_searchs_split(
    client: MlflowClient, folder: Path
) -> None:
    events = a_search_with_a_final(folder)
    at = next(number for number, event in enumerate(events) if getattr(event, "repeat", None))
    repeat = Repeat(of=0, purpose="finalist", seed=1, split=1)
    write(folder, [*events[:at], events[at].model_copy(update={"repeat": repeat}), *events[at + 1 :]])
    assert tracker_of(folder, info=lambda: INFO).sync().complete
    _, children = runs_of(client, folder)
    assert children[3].data.tags["tunebook.split"] == "1"
    assert [len(children[number].inputs.dataset_inputs) for number in range(5)] == [1, 1, 1, 0, 1]


def test_an_extended_search_stays_in_its_run_and_its_finalists_have_the_last_estimate(
    client: MlflowClient, folder: Path
) -> None:
    write(folder, a_search_with_a_final(folder))
    assert tracker_of(folder).sync().complete
    (parent,), before = runs_of(client, folder)
    write(folder, an_extension(folder))
    assert tracker_of(folder).sync().complete
    (same,), after = runs_of(client, folder)
    assert same.info.run_id == parent.info.run_id
    assert (same.info.status, same.data.tags["tunebook.extended_to"]) == ("FINISHED", "4")
    assert set(after) == {*before, 7, 8, 9}
    first, last = (children[0].data.metrics["final_estimate"] for children in (before, after))
    assert last < first, "beside a worse finalist, it is drawn towards that one"
    assert best_and_estimate(same) == (0.0, last)
