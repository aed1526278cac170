"""The view in which MLflow's pages show a search: sorted, with the columns and charts that matter.

MLflow keeps a view that a person saves as a tag of the experiment, and its pages open in that view where the
address names it. The tag is what the button "Save as new view" of MLflow 3.17 writes; it is not documented,
and a version that does not know it shows its own columns.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from search.followers.run_updates import (
    ESTIMATE,
    FINAL_NUMBERS,
    PURPOSE,
    REPEAT_OF,
    SEARCH_ID,
    SEED,
    SPLIT,
    STATE,
)
from search.record.record import Record
from trainable.recipe.metrics import Mode
from trainable.recipe.network_cost import NetworkCost

# the experiment's tag of a view begins so; the view's name in addresses follows
TAG = "mlflow.sharedViewState."
# the name of the view of trials that repeat others is that of the search's own view with this behind
AGAIN = "-again"
EPOCHS = "tunebook.epochs"
COLUMN_PIXELS = 130
MOST_AXES = 8  # more parallel axes than these cannot be read in a chart of MLflow's width
# MLflow's own three are too narrow to read eight parallel axes, or the names of trials below a curve
CHARTS_IN_A_ROW = 2
SINGLE_POINTS = (*FINAL_NUMBERS, *NetworkCost.model_fields)  # metrics with one point each: no curves
SECTION = "tunebook"


def saved_view(record: Record, objective: str, mode: Mode) -> str:
    """Return the view of a search that has begun, as the value of its experiment tag.

    Its trials are rows of their own, the best one first: state, objective, epochs and what was searched; in a
    search with finalists their estimates too. Trials that repeat others are left out: among the best trials
    they would be the best ones again and again.
    """
    settled = record.settled
    final = [_id("metrics", ESTIMATE)] if settled is not None and settled.finalists is not None else []
    columns = [_id("tags", STATE), _id("metrics", objective), *final, _id("tags", EPOCHS)]
    columns += [_id("params", path) for path in record.fields]
    # MLflow draws no line of a trial that lacks a path, and a chart of every metric that nobody has removed
    in_all = [path for path, trials in record.fields.items() if trials == len(record.trials)]
    removed = [{**_line(metric), "isGenerated": True, "deleted": True} for metric in SINGLE_POINTS]
    state = {
        **_table(record, f"tags.`{PURPOSE}` = 'search'", columns),
        "orderByKey": _id("metrics", objective),
        "orderByAsc": mode == "min",
        **_shown_charts([*_charts(objective, in_all[:MOST_AXES]), *removed]),
    }
    return _tag(record, record.name, state)


def repeats_view(record: Record, objective: str) -> str:
    """Return the view of the trials that train others again, by the trials that they repeat."""
    which = [_id("tags", tag) for tag in (REPEAT_OF, SEED, SPLIT)]
    columns = [*which, _id("metrics", objective), *(_id("tags", tag) for tag in (PURPOSE, STATE, EPOCHS))]
    state = {
        **_table(record, f"tags.`{REPEAT_OF}` LIKE '%'", columns),
        "orderByKey": _id("tags", REPEAT_OF),
        "orderByAsc": True,
        **_shown_charts([_line(objective)]),
    }
    return _tag(record, f"{record.name}, trained again", state)


def _tag(record: Record, name: str, state: Mapping[str, Any]) -> str:
    """Return a view as MLflow's button writes it: a name, two times, and the page's state, compressed."""
    began = round((record.began or 0.0) * 1000)
    packed = f"deflate;{base64.b64encode(zlib.compress(json.dumps(state).encode())).decode()}"
    return json.dumps({"name": name, "createdAt": began, "updatedAt": began, "state": packed})


def _table(record: Record, which: str, columns: Sequence[str]) -> dict[str, Any]:
    """Return the part of a page's state that chooses the search's rows, and their columns."""
    return {
        "searchFilter": f"tags.`{SEARCH_ID}` = '{record.search_id}' AND {which}",
        "selectedColumns": columns,
        "columnOrder": columns,
        "columnWidths": dict.fromkeys(columns, COLUMN_PIXELS),
        "runsHiddenMode": "FIRST_20_RUNS",
    }


def _shown_charts(charts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    section = {
        "uuid": SECTION,
        "name": "Model metrics",
        "display": True,
        "isReordered": True,
        "columns": CHARTS_IN_A_ROW,
    }
    return {"compareRunCharts": charts, "compareRunSections": [section]}


def _charts(objective: str, axes: Sequence[str]) -> list[dict[str, Any]]:
    """Return the charts in their order: the objective, what was searched, then the other curves."""
    parallel = {"selectedParams": axes, "selectedMetrics": [objective], "showAllRuns": True}
    others = [metric for metric in ("val_loss", "train_loss") if metric != objective]
    return [
        _line(objective),
        _chart("PARALLEL", "values", **parallel),
        *map(_line, others),
    ]


def _line(metric: str) -> dict[str, Any]:
    shown = {"metricKey": metric, "selectedMetricKeys": [metric], "displayName": metric}
    axes = {"useGlobalXaxisKey": True, "useGlobalLineSmoothing": True, "range": {}, "yAxisKey": "metric"}
    return _chart(
        "LINE", metric, **shown, **axes, scaleType="linear", xAxisScaleType="linear", xAxisKey="step"
    )


def _chart(kind: str, name: str, **more: Any) -> dict[str, Any]:
    """Return a chart as MLflow's page stores it: all that the page does not fill in itself."""
    return {
        "uuid": f"{SECTION}-{name}",
        "type": kind,
        "metricSectionId": SECTION,
        "runsCountToCompare": 20,
        "isGenerated": False,
        "deleted": False,
        **more,
    }


def _id(kind: str, name: str) -> str:
    """Return what MLflow's page calls a column."""
    return f"{kind}.`{name}`"
