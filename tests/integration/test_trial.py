"""The Trainable inside real Ray: one actor serves trials in turn, and whatever fails is tried again."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
import ray
from ray import tune
from torch import distributed

from search.facts.packing import _footprint_of_shared
from search.running.look import Question, look
from search.running.machines import _Asked
from tests.integration.small_trials import Listed, Recorder
from tests.trainable.small_images import write_classes
from tests.trainable.small_runs import ONE_THREAD, data_set, small_recipe
from trainable.checkpoints import checkpoint
from trainable.data.assembly import load
from trainable.errors import DataError, RecipeError
from trainable.recipe.data import Data
from trainable.run import make_run
from trainable.tune.team import Rank, interface_of
from trainable.tune.trial import TrialTrainable
from trainable.tune.worker import TrialAssignment
from trainable.tune.worker_setup import Shared, WorkerSetup

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("ray_session")]

EPOCHS = small_recipe().loop.epochs
INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")


def test_one_actor_serves_trials_in_turn_and_a_trial_that_fails_to_begin_is_retried(tmp_path: Path) -> None:
    half_done = make_run(small_recipe(), data=data_set())
    half_done.step()
    half_done.step()
    checkpoint.save(tmp_path / "half-done", half_done.state_dict(), half_done.history)
    recorder = Recorder()
    assignments = [
        TrialAssignment(small_recipe(), tmp_path / "first"),
        TrialAssignment(small_recipe(), tmp_path / "half-done"),
        TrialAssignment(small_recipe({"precision.kind": "tf32"}), tmp_path / "faulty"),
    ]
    setup = WorkerSetup(Shared.put(data_set()), ONE_THREAD, step_seconds=60.0)
    results = tune.Tuner(
        tune.with_parameters(TrialTrainable, setup=setup),
        tune_config=tune.TuneConfig(
            search_alg=Listed(assignments), num_samples=-1, max_concurrent_trials=1, reuse_actors=True
        ),
        run_config=tune.RunConfig(
            storage_path=str(tmp_path / "ray"),
            failure_config=tune.FailureConfig(max_failures=1),
            checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=0, checkpoint_at_end=False),
            callbacks=[recorder],
            stop=lambda trial_id, result: result["epochs"][-1]["epoch"] == EPOCHS,
            verbose=0,
        ),
    ).fit()
    assert recorder.epochs == {"first": [[1], [2], [3]], "half-done": [[1, 2], [3]]}
    assert recorder.processes["first"] == recorder.processes["half-done"], "one actor served both"
    assert recorder.recovered == {"faulty": 1}
    (error,) = results.errors
    assert isinstance(error.cause, RecipeError)
    assert [fault.path for fault in error.cause.faults] == ["precision.kind"]


def test_ranks_talk_over_the_interface_of_their_machine_s_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """By themselves gloo and NCCL may choose one that other machines do not reach."""
    for name in INTERFACES:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    setup = WorkerSetup(Shared.put(data_set()), ONE_THREAD, step_seconds=60.0)
    rank = Rank(0, setup)
    rank.join(rank.open())
    try:
        found = interface_of(ray.util.get_node_ip_address())
        assert found is not None
        assert [os.environ[name] for name in INTERFACES] == [found, found]
    finally:
        distributed.destroy_process_group()


def test_a_machine_that_has_gone_is_named_with_its_silence() -> None:
    gone = {"NodeID": "0f" * 28, "NodeManagerHostname": "host-a", "NodeManagerAddress": "10.0.0.9"}
    question = Question("/nowhere", "/nowhere/shared", "token", "cpu")
    said = _Asked(gone, question).seen(look(question, "head"), question)
    assert (said.name, said.look) == ("host-a (10.0.0.9)", None)
    assert said.why.startswith("it does not answer (ActorUnschedulableError"), said.why


def test_gpu_memory_is_measured_where_the_images_are_brought_to_first(tmp_path: Path) -> None:
    """Without the copy of data behind a URI, a machine with a GPU could not measure a step."""
    write_classes(tmp_path / "pets", {"cat": 12, "dog": 12})
    here = load(Data(path=str(tmp_path / "pets"), in_memory=False))
    elsewhere = replace(here, copy=Path("/elsewhere/tunebook/data/digest/pets"))

    with pytest.raises(DataError, match="XDG_CACHE_HOME"):
        _footprint_of_shared(small_recipe(), Shared.put(elsewhere))
