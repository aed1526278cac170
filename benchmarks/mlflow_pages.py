"""Measures MLflow with a search of 1,000 trials: how long it takes to send, and how long its pages load.

    python benchmarks/mlflow_pages.py [--trials 1000] [--repeats 7]

The search is made up: TRIALS trials with the fields of a search on digits, stopped as ASHA would, of up to 9
epochs. It is sent to SQLite in one go, as `tunebook sync` sends it; then `mlflow server` on that database
answers the requests that its pages make over HTTP: the trials sorted by the objective, 100 at once, as
`tunebook ui` opens them; the same page of MLflow's own order; the next 100; the curves of 20 trials; one run.
Arms are interleaved.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from epoch_results import epoch_result
from report import described, environment, refuse_busy_machine, write
from search.commands.ui import SERVER_ENVIRONMENT
from search.followers.quiet import quiet_mlflow
from search.followers.tracker import Tracker
from search.record.home import Home
from search.record.journal import (
    EndEvent,
    EpochEvent,
    Event,
    Journal,
    SearchEvent,
    SettledEvent,
    StartEvent,
    TrialEvent,
)
from search.study import Study
from spaces.domains import Value
from trainable.data import DataInfo
from trainable.recipe import digest_of

PORT, EPOCHS, RUNG = 5097, 9, 2
SEARCH = "made-up"
DIGITS = DataInfo(
    path="digits",
    format="digits",
    classes=tuple("0123456789"),
    channels=1,
    image_size=8,
    train_images=1259,
    validation_images=269,
    test_images=269,
    class_counts=(126,) * 10,
    mean=(0.3,),
    std=(0.4,),
    flips=(),
    digest="9cf27d45e2a192e8",
    in_memory=True,
)


def events(trials: int) -> Iterator[Event]:
    """Yield the events of a search: one trial in three goes on from the only rung."""
    draw = random.Random(0)
    yield SearchEvent(state="started", search_id=SEARCH, name=SEARCH)
    yield SettledEvent(
        space={},
        rungs=(RUNG,),
        factor=3,
        why="",
        objective="val_accuracy",
        epochs=EPOCHS,
        scheduler="asha",
        version="0",
    )
    for number in range(trials):
        kept = draw.random() < 1 / 3
        values: dict[str, Value] = {
            "optimizer.kind": draw.choice(["sgd", "adamw"]),
            "optimizer.lr": 10 ** draw.uniform(-3, 0),
            "optimizer.weight_decay": 10 ** draw.uniform(-5, -1),
            "schedule.warmup_epochs": draw.uniform(0, 1),
            "regularisation.label_smoothing": draw.uniform(0, 0.2),
            "augmentation.mixing.kind": draw.choice(["none", "mixup"]),
        }
        yield TrialEvent(trial=number, values=values, own=number == 0, recipe={}, digest=digest_of({}))
        yield StartEvent(trial=number, attempt=1, epoch=0)
        best = draw.uniform(0.8, 0.99)
        for each in range(1, (EPOCHS if kept else RUNG) + 1):
            result = epoch_result(each, best * (1 - math.exp(-each)))
            yield EpochEvent(trial=number, result=result, rung=RUNG if each == RUNG else None)
        yield EndEvent(trial=number, state="finished" if kept else "stopped")
    yield SearchEvent(state="finished", search_id=SEARCH, name=SEARCH)


def sent(folder: Path, trials: int, metrics: str) -> float:
    """Send a search to `folder/mlflow.db`, whose tables are made before; return the seconds it took."""
    home = Home(folder / SEARCH)
    home.folder.mkdir(parents=True)
    with Journal(home.folder) as journal:
        for event in events(trials):
            journal.append(event)
    tracking = {"uri": f"sqlite:///{folder}/mlflow.db", "metrics": metrics}
    study = Study.from_tree({"data": {"path": "digits"}, "storage": str(folder), "tracking": tracking})
    quiet_mlflow()
    from mlflow import MlflowClient

    MlflowClient(tracking_uri=study.tracking.uri).search_experiments()
    tracker = Tracker(home, study, lambda trial: "version: 2\n", info=lambda: DIGITS)
    began = time.perf_counter()
    backlog = tracker.sync()
    assert backlog.complete, backlog
    return time.perf_counter() - began


@contextmanager
def server(folder: Path) -> Iterator[str]:
    command = f"-m mlflow server --host 127.0.0.1 --port {PORT} --workers 1".split()
    store = ["--backend-store-uri", f"sqlite:///{folder}/mlflow.db"]
    environment = {**os.environ, **SERVER_ENVIRONMENT}
    with (
        (folder / "server.log").open("wb") as log,
        subprocess.Popen(
            [sys.executable, *command, *store], env=environment, stdout=log, stderr=log
        ) as process,
    ):
        address = f"http://127.0.0.1:{PORT}"
        try:
            until = time.monotonic() + 120
            while not _answers(f"{address}/health") and time.monotonic() < until:
                time.sleep(0.2)
            yield f"{address}/ajax-api/2.0/mlflow"
        finally:
            process.terminate()


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=1) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def asked(address: str, body: dict[str, Any] | None = None) -> tuple[float, dict[str, Any]]:
    """Return the seconds of one request, until its answer is read, and the answer."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address, data, {"Content-Type": "application/json"})
    began = time.perf_counter()
    with urllib.request.urlopen(request) as answer:
        content = answer.read()
    return time.perf_counter() - began, json.loads(content)


def pages(api: str) -> dict[str, Callable[[], float]]:
    """Return the requests of MLflow's pages that grow with a search, by what a person sees."""
    wanted = f"tags.`tunebook.search_id` = '{SEARCH}' AND tags.`tunebook.trial` LIKE '%'"
    search = {"experiment_ids": ["1"], "run_view_type": "ACTIVE_ONLY", "max_results": 100}
    view = {**search, "filter": wanted, "order_by": ["metrics.`val_accuracy` DESC"]}
    _, first = asked(f"{api}/runs/search", view)
    ids = [run["info"]["run_id"] for run in first["runs"]]
    more = {**view, "page_token": first["next_page_token"]}
    runs = "&".join(f"run_ids={each}" for each in ids[:20])
    curves = f"{api}/metrics/get-history-bulk-interval?{runs}&metric_key=val_accuracy&max_results=320"
    plain = {**search, "order_by": ["attributes.start_time DESC"]}
    return {
        "100 trials, the best first (`tunebook ui`)": lambda: asked(f"{api}/runs/search", view)[0],
        "the next 100": lambda: asked(f"{api}/runs/search", more)[0],
        "100 runs in MLflow's own order": lambda: asked(f"{api}/runs/search", plain)[0],
        "one curve of 20 trials": lambda: asked(curves)[0],
        "one trial": lambda: asked(f"{api}/runs/get?{urllib.parse.urlencode({'run_id': ids[0]})}")[0],
    }


def measured(trials: int, repeats: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        few, every = Path(folder) / "few", Path(folder) / "all"
        sending = {"few": sent(few, trials, "few"), "all": sent(every, trials, "all")}
        with server(few) as api:
            requests = pages(api)
            times: dict[str, list[float]] = {name: [] for name in requests}
            for _ in range(repeats):
                for name, request in requests.items():
                    times[name].append(request())
    return {"trials": trials, "sending_seconds": sending, "page_seconds": times}


def page(found: dict[str, Any], where: dict[str, Any]) -> str:
    rows = [
        f"| {name} | {statistics.median(times):.3f} | {min(times):.3f} to {max(times):.3f} | {len(times)} |"
        for name, times in found["page_seconds"].items()
    ]
    few, every = found["sending_seconds"]["few"], found["sending_seconds"]["all"]
    return "\n".join(
        [
            f"# MLflow with a search of {found['trials']:,} trials",
            "",
            "| page | median seconds over HTTP | range | n |",
            "|-|-|-|-|",
            *rows,
            "",
            f"Sending all of it to SQLite at once took {few:.0f} s ({1000 * few / found['trials']:.0f} ms a "
            f"trial); with `tracking.metrics: all` {every:.0f} s (n = 1 each).",
            "",
            described(where),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    refuse_busy_machine(threads=1)
    where = environment(1)
    found = measured(options.trials, options.repeats)
    write("mlflow-pages", {"environment": where, **found}, page(found, where))


if __name__ == "__main__":
    main()
