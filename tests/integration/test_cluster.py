"""All real parts at once: a Ray cluster, its jobs, DDP, S3, MLflow on PostgreSQL; and a node is killed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from search.learning.search import Search
from search.record.journal import RetryEvent, StartEvent
from search.study import Study
from tests.integration.clusters import Cluster
from tests.integration.drivers import assert_all_agree, machine
from tests.integration.mlflow_server import Server
from tests.integration.postgresql_server import postgresql_server
from tests.integration.small_searches import digits_study, epochs_by_trial, events_in
from tests.s3_server import KEYS, S3Server
from tests.waiting import wait_until
from trainable.files.store import Store

pytestmark = pytest.mark.integration

TRIALS, EPOCHS = 2, 20


@pytest.fixture
def mlflow_server(tmp_path: Path, s3: S3Server) -> Iterator[Server]:
    (endpoint,) = re.findall(r"endpoint_override=([^&]+)", s3.uri)
    with postgresql_server() as database:
        server = Server(
            tmp_path, database, "s3://tunebook/artifacts", MLFLOW_S3_ENDPOINT_URL=f"http://{endpoint}"
        )
        server.start()
        yield server
        server.kill()


@pytest.fixture
def study(tmp_path: Path, s3: S3Server, mlflow_server: Server) -> Study:
    written = digits_study(
        tmp_path,
        name="mine",
        concurrent=TRIALS,
        budget__trials=TRIALS,
        budget__epochs=EPOCHS,
        resources__workers=2,
        limits__retries=0,  # losing a machine costs none
        scheduler={"kind": "none"},  # a stopped trial would not be there to be killed
        tracking__uri=mlflow_server.uri,
    )
    there: Study = written.model_copy(update={"storage": Store(s3.uri).at(tmp_path.name, "searches").uri})
    there.write(tmp_path)
    return there


@pytest.mark.scenario
def test_a_search_over_all_of_them_outlives_a_node(
    cluster: Cluster, study: Study, mlflow_server: Server, tmp_path: Path
) -> None:
    """The cluster's machines have no keys to the bucket: a job brings them."""
    keys = [word for name in KEYS for word in ("--env", name)]
    submitted = cluster.tunebook(
        "submit", tmp_path / "study.yaml", "--address", cluster.dashboard, "--detach", *keys
    )
    assert submitted.returncode == 0, submitted.stderr
    job = submitted.stdout.split("job ", 1)[1].split(":", 1)[0]
    there = Store(study.storage).at("mine")
    at = ("--address", cluster.dashboard)
    wait_until(lambda: len(_in_mid_run(there)) == 2, fault=lambda: cluster.tunebook("logs", job, *at).stdout)
    cluster.kill("node-1")

    followed = cluster.tunebook("logs", job, "--follow", "--address", cluster.dashboard)
    assert followed.returncode == 0, followed.stdout
    here = tmp_path / "here"
    fetched = cluster.tunebook("fetch", job, "--address", cluster.dashboard, "-o", here)
    assert fetched.returncode == 0, fetched.stderr

    summary, events = Search(here).progress, events_in(here)
    assert summary.state == "finished"
    assert [trial.state for trial in summary.trials].count("failed") == 0
    assert len(summary.trials) == TRIALS
    retried = {event.trial for event in events if isinstance(event, RetryEvent)}
    assert len(retried) == 1, "the trial on the node that was killed, and no other"
    for epochs in epochs_by_trial(events).values():
        assert epochs == list(range(1, len(epochs) + 1))
    again = [event for event in events if isinstance(event, StartEvent) and event.attempt > 1]
    assert [event.trial for event in again] == list(retried)
    assert again[0].epoch >= 2, "from its checkpoint in the store: its machine's folder is gone"
    kept = list(cluster.folder.glob("machine-*/cache/tunebook/trials/*/epoch-*"))
    assert kept == [], "machines keep nothing that the store has"
    assert_all_agree(there.uri, **machine(tmp_path / "another"))
    _assert_tracked(mlflow_server, summary.best.mlflow_run_id if summary.best else None)


def _assert_tracked(server: Server, best: str | None) -> None:
    """The search and its trials are in MLflow, once, and all of them have ended."""
    from mlflow import MlflowClient

    client = MlflowClient(server.uri)
    runs = client.search_runs([each.experiment_id for each in client.search_experiments()])
    assert len(runs) == TRIALS + 1
    assert {run.info.status for run in runs} <= {"FINISHED", "KILLED"}
    assert best in {run.info.run_id for run in runs}
    parent = next(run for run in runs if "mlflow.parentRunId" not in run.data.tags)
    assert "best.yaml" in {each.path for each in client.list_artifacts(parent.info.run_id)}


def _in_mid_run(there: Store) -> set[str]:
    """The trials that have two whole epochs in the store (a third began to come), and not all."""
    found = re.findall(r"trials/(\d+)/epoch-(\d+)/", "\n".join(there.files()))
    return {trial for trial, epoch in found if 3 <= int(epoch) < EPOCHS - 5}
