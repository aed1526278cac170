"""Tests how MLflow's pages are told to show a search, without MLflow; a browser looks at them elsewhere."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

from search.followers.saved_view import MOST_AXES, repeats_view, saved_view
from search.record.cursor import run_page, view_page
from search.record.journal import Event, TrialEvent
from search.record.record import Record
from search.study.study import Finalists
from spaces.domains import Value
from tests.search.small_events import NO_FIELDS, begun


def record_of(*trials: dict[str, Value], finalists: Finalists | None = None) -> Record:
    """Return the record of a search in which these trials are queued."""
    queued = [TrialEvent(trial=number, values=values, **NO_FIELDS) for number, values in enumerate(trials)]
    first, choice = begun()
    events: list[Event] = [first, choice.model_copy(update={"finalists": finalists}), *queued]
    return Record(
        event.model_copy(update={"sequence": number, "time": 7.0}) for number, event in enumerate(events)
    )


def state_of(view: str) -> dict[str, Any]:
    """Return the state of the page in a view, as the page itself unpacks it."""
    kind, packed = json.loads(view)["state"].split(";")
    assert kind == "deflate"
    state: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(packed)))
    return state


def test_the_view_is_named_like_the_search_and_begins_with_it() -> None:
    view = json.loads(saved_view(record_of({"optimizer.lr": 0.1}), "val_accuracy", "max"))
    assert (view["name"], view["createdAt"], view["updatedAt"]) == ("digits", 7000, 7000)


def test_the_trials_of_one_search_are_rows_of_their_own_with_what_was_searched() -> None:
    first: dict[str, Value] = {"optimizer.kind": "sgd", "optimizer.lr": 0.1, "optimizer.momentum": 0.9}
    other: dict[str, Value] = {"optimizer.kind": "adamw", "optimizer.lr": 0.2}
    state = state_of(saved_view(record_of(first, other), "val_accuracy", "max"))
    assert (
        state["searchFilter"] == "tags.`tunebook.search_id` = '0a1b' AND tags.`tunebook.purpose` = 'search'"
    )
    assert (state["orderByKey"], state["orderByAsc"]) == ("metrics.`val_accuracy`", False)
    assert state["selectedColumns"] == [
        "tags.`tunebook.state`",
        "metrics.`val_accuracy`",
        "tags.`tunebook.epochs`",
        "params.`optimizer.kind`",
        "params.`optimizer.lr`",
        "params.`optimizer.momentum`",
    ]


def test_a_search_with_finalists_shows_their_estimates_beside_the_objective() -> None:
    final = Finalists(top=1, seeds=2)
    state = state_of(saved_view(record_of({"optimizer.lr": 0.1}, finalists=final), "val_accuracy", "max"))
    assert state["selectedColumns"][1:3] == ["metrics.`val_accuracy`", "metrics.`final_estimate`"]


def test_trials_that_train_others_again_have_a_view_of_their_own() -> None:
    view = repeats_view(record_of({"optimizer.lr": 0.1}), "val_accuracy")
    state = state_of(view)
    assert json.loads(view)["name"] == "digits, trained again"
    assert (
        state["searchFilter"] == "tags.`tunebook.search_id` = '0a1b' AND tags.`tunebook.repeat_of` LIKE '%'"
    )
    assert (state["orderByKey"], state["orderByAsc"]) == ("tags.`tunebook.repeat_of`", True)
    assert state["selectedColumns"][:4] == [
        "tags.`tunebook.repeat_of`",
        "tags.`tunebook.seed`",
        "tags.`tunebook.split`",
        "metrics.`val_accuracy`",
    ]


def test_where_less_is_better_the_least_is_first() -> None:
    state = state_of(saved_view(record_of({"optimizer.lr": 0.1}), "val_loss", "min"))
    assert (state["orderByKey"], state["orderByAsc"]) == ("metrics.`val_loss`", True)
    charts = [chart for chart in state["compareRunCharts"] if not chart["deleted"]]
    assert [chart.get("metricKey") for chart in charts] == ["val_loss", None, "train_loss"]


def test_metrics_of_one_point_have_no_chart_as_they_are_no_curves() -> None:
    state = state_of(saved_view(record_of({"optimizer.lr": 0.1}), "val_accuracy", "max"))
    removed = {chart["metricKey"] for chart in state["compareRunCharts"] if chart["deleted"]}
    assert {"final_estimate", "final_low", "final_high", "final_mean", "latency_ms", "memory_gib"} < removed
    assert "val_accuracy" not in removed


def test_only_what_every_trial_has_is_an_axis_as_others_would_lose_their_line() -> None:
    first: dict[str, Value] = {"optimizer.lr": 0.1, "optimizer.momentum": 0.9}
    state = state_of(saved_view(record_of(first, {"optimizer.lr": 0.2}), "val_accuracy", "max"))
    (parallel,) = [chart for chart in state["compareRunCharts"] if chart["type"] == "PARALLEL"]
    assert parallel["selectedParams"] == ["optimizer.lr"]
    assert parallel["selectedMetrics"] == ["val_accuracy"]
    many: dict[str, Value] = {f"augmentation.field_{number}": number for number in range(100)}
    view = saved_view(record_of(many), "val_accuracy", "max")
    (parallel,) = [chart for chart in state_of(view)["compareRunCharts"] if chart["type"] == "PARALLEL"]
    assert len(parallel["selectedParams"]) == MOST_AXES
    assert len(view) < 5000, "an experiment's tag holds no more"


def test_addresses_name_the_view_and_the_training_mode() -> None:
    table = "#/experiments/1/runs?workflowType=machine_learning&viewStateShareKey=0a1b"
    assert view_page("1", "0a1b") == table
    assert view_page("1", "0a1b", charts=True) == f"{table}&compareRunsMode=CHART"
    assert view_page("1", None) == "#/experiments/1/runs?workflowType=machine_learning"
    assert run_page("1", "9f", "report.html") == (
        "#/experiments/1/runs/9f/artifacts/report.html?workflowType=machine_learning"
    )
