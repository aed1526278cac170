"""Tests what MLflow shows of a search's conclusions: a table of verdicts and a note on the search's run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import pytest

from search.followers.conclusions import Conclusion
from search.followers.consumer import Backlog
from search.followers.run_updates import LONGEST_TAG
from search.followers.tracker import Tracker
from search.learning.verdicts import mlflow_table
from search.record.home import CURSOR_FILE, REPORT_FILE, Home
from search.record.journal import EndEvent, Event, Journal, StartEvent
from search.record.verdicts import Verdict, Verdicts
from tests.search.followers.small_tracking import (
    a_search,
    begun,
    contents,
    epochs,
    recipe_text,
    runs_of,
    search_event,
    study_in,
    text_of,
    trial,
    write,
)

if TYPE_CHECKING:
    from mlflow import MlflowClient

VERDICTS = Verdicts(
    (Verdict("optimizer.lr", "supported", "around 0.5", "0", 9, 8, 31.0, (18.0, 44.0)),), 17, 0.9
)
CONCLUSION = Conclusion("**Best**: trial 0", "**Rules**: 1 supported", mlflow_table(VERDICTS))


def sync(folder: Path, conclude: Callable[[], Conclusion] = lambda: CONCLUSION) -> Backlog:
    return concluding(folder, conclude).sync()


def concluding(folder: Path, conclude: Callable[[], Conclusion] = lambda: CONCLUSION) -> Tracker:
    return Tracker(Home(folder), study_in(folder.parent), recipe_text, conclude)


def note_of(client: MlflowClient, folder: Path) -> str:
    (parent,), _ = runs_of(client, folder)
    return str(parent.data.tags["mlflow.note.content"])


def files_of(client: MlflowClient, folder: Path) -> list[str]:
    (parent,), _ = runs_of(client, folder)
    return [file.path for file in client.list_artifacts(parent.info.run_id)]


def test_the_verdicts_are_a_table_that_mlflow_knows_as_one(
    client: MlflowClient, storage: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, a_search(folder))
    assert sync(folder).complete
    (parent,), _ = runs_of(client, folder)
    shown_as = json.loads(parent.data.tags["mlflow.loggedArtifacts"])
    assert shown_as == [{"path": "verdicts.json", "type": "table"}]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{storage}/mlflow.db")  # it asks no client
    table = client.load_table(parent.info.experiment_id, "verdicts.json", [parent.info.run_id])
    assert table.to_dict("records")[0]["rule"] == "optimizer.lr"
    assert table.effect.tolist() == [31.0]


def test_the_note_has_links_the_answer_and_how_to_train_it_again(client: MlflowClient, folder: Path) -> None:
    write(folder, a_search(folder))
    sync(folder)
    links, answer, again, plan, rules = note_of(client, folder).split("\n\n")
    assert (answer, rules) == ("**Best**: trial 0", "**Rules**: 1 supported")
    assert f"viewStateShareKey=id-{folder.name}" in links
    assert again.startswith(f"**Again**: `tunebook export {quote(str(folder))} -o best.yaml`")
    assert plan.endswith(f"`tunebook show {quote(str(folder))}`")
    assert plan.startswith("16 trials of up to 20 epochs on digits")


def test_the_note_links_the_report_before_all_that_mlflow_folds(client: MlflowClient, folder: Path) -> None:
    write(folder, a_search(folder))
    (folder / REPORT_FILE).write_text("<html></html>")
    sync(folder, lambda: CONCLUSION._replace(answer="**Best**: trial 0\n\n**Spent**: 5 epochs"))
    (parent,), _ = runs_of(client, folder)
    links, best, *_ = note_of(client, folder).split("\n\n")
    assert best == "**Best**: trial 0"
    report, trials, charts = links.split(" · ")
    assert report.startswith(f"[Report](#/experiments/1/runs/{parent.info.run_id}/artifacts/{REPORT_FILE}?")
    assert (trials.partition("]")[0], charts.partition("]")[0]) == ("[Trials", "[Charts")
    assert REPORT_FILE in files_of(client, folder)


def test_a_note_that_is_too_long_for_a_tag_is_cut(client: MlflowClient, folder: Path) -> None:
    write(folder, a_search(folder))
    assert sync(folder, lambda: Conclusion("x" * 9000, "", "{}")).complete
    assert len(note_of(client, folder)) == LONGEST_TAG


def test_while_a_search_goes_on_nothing_is_concluded(client: MlflowClient, folder: Path) -> None:
    with Journal(folder) as journal:
        for event in a_search(folder)[:-1]:
            journal.append(event)
        tracker = concluding(folder)
        tracker.start()
        assert tracker.close(60).complete
    assert files_of(client, folder) == []
    assert "Best" not in note_of(client, folder)


def test_what_was_sent_is_not_sent_again_and_what_has_changed_is(
    client: MlflowClient, storage: Path, folder: Path
) -> None:
    write(folder, a_search(folder))
    sync(folder)
    before = contents(storage, folder)
    sync(folder)
    (folder / CURSOR_FILE).unlink()
    assert sync(folder).complete
    assert contents(storage, folder) == before
    (parent,), _ = runs_of(client, folder)
    assert json.loads(text_of(client, parent, "verdicts.json", folder)) == json.loads(CONCLUSION.table)
    sync(folder, lambda: Conclusion("**Best**: trial 3", "", "{}"))
    assert "\n\n**Best**: trial 3" in note_of(client, folder)


def test_a_search_that_was_sent_before_it_could_be_concluded_is_concluded_by_a_sync(
    client: MlflowClient, folder: Path
) -> None:
    write(folder, a_search(folder))
    Tracker(Home(folder), study_in(folder.parent), recipe_text).sync()
    assert files_of(client, folder) == []
    sync(folder)
    assert files_of(client, folder) == ["verdicts.json"]


def test_a_search_whose_driver_was_killed_is_concluded_by_a_sync(client: MlflowClient, folder: Path) -> None:
    write(folder, a_search(folder)[:-1])
    sync(folder)
    assert files_of(client, folder) == ["verdicts.json"]


def test_a_search_that_goes_on_is_concluded_anew_at_its_end(client: MlflowClient, folder: Path) -> None:
    write(folder, [*begun(folder), *trial(0), *epochs(0, 1), search_event(folder, "interrupted")])
    sync(folder, lambda: Conclusion("No trial has finished.", "", "{}"))
    assert "\n\nNo trial has finished." in note_of(client, folder)
    on: list[Event] = [StartEvent(trial=0, attempt=2, epoch=1), EndEvent(trial=0, state="finished")]
    write(folder, [search_event(folder, "resumed"), *on, search_event(folder, "finished")])
    sync(folder)
    assert "\n\n**Best**: trial 0" in note_of(client, folder)


def test_a_conclusion_that_cannot_be_drawn_is_reported_and_keeps_nothing_back(
    client: MlflowClient, folder: Path
) -> None:
    def fail() -> Conclusion:
        raise ValueError("no such rule")

    write(folder, a_search(folder))
    backlog = sync(folder, fail)
    assert backlog.complete
    assert (backlog.refused, backlog.refusal) == (1, "verdicts.json: no such rule")
    (parent,), _ = runs_of(client, folder)
    assert parent.info.status == "FINISHED"
