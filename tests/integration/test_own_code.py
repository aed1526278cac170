"""Searches from Python with a network and images of a person's own: killed, stopped, faulty, run again."""

from __future__ import annotations

import json
import os
import runpy
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import Tensor, nn

from search import extend, search
from search.commands.asked import resolved_study
from search.commands.guests import driver
from search.from_python import SearchFailed
from search.learning.search import Search
from search.record.home import Home
from search.record.journal import EndEvent, Event, StartEvent
from spaces.domains import Choice
from tests.integration.drivers import Driver, assert_all_agree, tunebook
from tests.integration.own_scripts import small_study, write_script
from tests.integration.small_searches import digits_study, epochs_by_trial, events_in
from tests.waiting import wait_until
from trainable.checkpoints import checkpoint
from trainable.errors import ModelError, UserError
from trainable.recipe.yamlfile import read_recipe
from trainable.train import train

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("ray_session")]

EXAMPLES = Path(__file__).parents[2] / "examples"
EPOCHS = 12
LONG = 60  # so many epochs of a slow network last until a signal has arrived
DEPTH = "model.arguments.depth"


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    digits_study(tmp_path / "storage")  # brings a database of MLflow
    return tmp_path / "storage"


@pytest.fixture(autouse=True)
def modules_of_scripts_are_forgotten() -> Iterator[None]:
    import sys

    yield
    sys.modules.pop("blocks", None)


def half_way(events: list[Event]) -> bool:
    ended = {event.trial for event in events if isinstance(event, EndEvent)}
    begun = epochs_by_trial(events)
    return any(len(epochs) >= 3 for trial, epochs in begun.items() if trial not in ended)


@pytest.mark.scenario
def test_a_killed_script_goes_on_when_it_is_run_again_and_no_epoch_is_lost(
    tmp_path: Path, storage: Path
) -> None:
    long = small_study(storage, budget={"trials": 3, "epochs": EPOCHS}, scheduler={"kind": "none"})
    script = write_script(tmp_path, long)
    folder = storage / "mine"
    as_main = f"import runpy; runpy.run_path({str(script)!r}, run_name='__main__')"
    first = Driver("--help", log=tmp_path / "log", first=as_main)
    first.wait_for(folder, half_way)
    first.send(signal.SIGKILL)
    wait_until(lambda: not first.trial_processes())
    before = events_in(folder)
    covered = {}
    for trial in epochs_by_trial(before):
        latest = checkpoint.latest(Path(Home(folder).checkpoints(trial)))
        covered[trial] = latest.epoch if latest is not None else 0
    with pytest.raises(UserError, match=f"code of yours, model=build_model.*python {script}"):
        driver().resume(folder)

    found = runpy.run_path(str(script))["found"]
    events = events_in(folder)
    assert found.state == "finished"
    assert events[: len(before)] == before
    assert epochs_by_trial(events) == {trial: list(range(1, EPOCHS + 1)) for trial in range(3)}
    ended = {event.trial for event in before if isinstance(event, EndEvent)}
    restarts = {event.trial: event for event in events[len(before) :] if isinstance(event, StartEvent)}
    assert {trial: restarts[trial].epoch for trial in covered if trial not in ended} == {
        trial: epoch for trial, epoch in covered.items() if trial not in ended
    }
    assert_all_agree(folder)

    assert runpy.run_path(str(script))["found"].best.id == found.best.id
    assert events_in(folder) == events, "a finished search is returned as it is"
    script_itself = runpy.run_path(str(script))
    best = read_recipe(folder / "best.yaml")
    assert best.get(DEPTH) in (1, 2)
    assert len(set(found.trials_frame()["model.arguments.width"])) > 1
    one = best.with_values({"loop.epochs": 2, "schedule.warmup_epochs": 0.0})
    again = train(one, model=script_itself["build_model"], data=script_itself["make_data"])
    assert again.history[-1].val_accuracy > 0.3
    code, said = tunebook("train", folder / "best.yaml")
    assert (code, "train(recipe, data=make_data)" in said, "Traceback" in said) == (2, True, False)


def small_images() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    random = np.random.default_rng(0)
    return random.integers(0, 255, (200, 8, 8), dtype=np.uint8), np.arange(200) % 2


def network(classes: int, depth: int = 1) -> nn.Module:
    return nn.Sequential(nn.Flatten(), *[nn.Linear(64, 64) for _ in range(depth)], nn.Linear(64, classes))


def test_a_search_with_own_functions_is_extended_from_python(storage: Path) -> None:
    found = search(small_study(storage), model=network, data=small_images)
    report = json.loads((found.folder / "report.json").read_text())
    assert found.best is not None
    assert (report["answers"]["trial"], report["answers"]["images"]) == (
        found.best.id,
        found.info.validation_images,
    )
    assert report["samples"]["classes"], "the images that the function made are there, too"
    match = r"from Python: tunebook.extend\('.*', 2, model=network, data=small_images\)"
    with pytest.raises(UserError, match=match):
        driver().extend(found.folder, 2)
    with pytest.raises(UserError, match="expected 1 more trial or more, got 0"):
        extend(found.folder, 0, model=network, data=small_images)
    before, count = events_in(found.folder), len(found.trials)
    longer = extend(found.folder, 2, model=network, data=small_images)
    assert longer.state == "finished"
    assert len(longer.trials) == count + 2
    assert events_in(found.folder)[: len(before)] == before
    again = search(small_study(storage), model=network, data=small_images)
    assert len(again.trials) == len(longer.trials), "the script that began it returns it as it is now"


def recall_of_eights(probabilities: Tensor, labels: Tensor) -> float:
    eights = labels == 8
    return float((probabilities[eights].argmax(1) == 8).double().mean())


def test_an_extension_asks_for_each_function_that_the_search_was_begun_with(storage: Path) -> None:
    scores = {"recall_of_eights": recall_of_eights}
    found = search(digits_study(storage, budget={"trials": 1, "epochs": 1}), metrics=scores)
    before = events_in(found.folder)
    match = r"code of yours, metrics\.recall_of_eights; from Python: tunebook.extend\('.*', 1, metrics="
    with pytest.raises(UserError, match=match):
        extend(found.folder, 1)
    assert events_in(found.folder) == before


def test_a_network_that_fails_in_a_trial_costs_that_trial_with_its_message_and_line(storage: Path) -> None:
    here = os.getpid()

    def build_model(classes: int, depth: int = 1) -> nn.Module:
        if depth == 2 and os.getpid() != here:
            raise LookupError("no second layer")
        return network(classes, depth)

    found = search(
        small_study(storage, limits={"retries": 0}),
        model=build_model,
        data=small_images,
        space={DEPTH: {"choice": [1, 2], "weights": [0.4, 0.6]}},
    )
    failed = [trial for trial in found.trials if trial.state == "failed"]
    assert failed
    assert {trial.values[DEPTH] for trial in failed} == {2}
    for trial in failed:
        assert trial.outcome_reason is not None
        assert (
            "model=build_model, depth 2: LookupError: no second layer (test_own_code.py, line"
            in trial.outcome_reason
        )
    assert found.best is not None
    assert found.best.values[DEPTH] == 1


def test_ctrl_c_saves_the_search_and_a_changed_function_is_named_when_it_goes_on(
    storage: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = small_study(storage, budget={"trials": 1, "epochs": LONG}, scheduler={"kind": "none"})
    folder = storage / "mine"

    class Slowly(nn.Flatten):
        def forward(self, images: Tensor) -> Tensor:
            time.sleep(0.1)  # the signal arrives long before the last epoch
            return super().forward(images)

    def slow(classes: int, depth: int = 1) -> nn.Module:
        return nn.Sequential(Slowly(), nn.Linear(64, 64), nn.Linear(64, classes))

    def press() -> None:
        wait_until(lambda: half_way(events_in(folder)))
        os.kill(os.getpid(), signal.SIGINT)

    keys = threading.Thread(target=press)
    keys.start()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    try:
        with pytest.raises(KeyboardInterrupt):
            search(study, model=slow, data=small_images)
    finally:
        signal.signal(signal.SIGINT, before)
    keys.join()
    stopped = Search(folder)
    assert stopped.state == "interrupted"
    assert stopped.code is not None
    assert f"interrupted; {stopped.code.again}" in capsys.readouterr().out

    def other(classes: int, depth: int = 1) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.Linear(64, classes))

    other.__name__ = slow.__name__
    for _ in range(2):  # it goes on, and is then found finished
        assert search(study, model=other, data=small_images).state == "finished"
        said = capsys.readouterr().out
        assert "model: the source of this function has changed since the search began" in said
    assert epochs_by_trial(events_in(folder)) == {0: list(range(1, LONG + 1))}


def test_a_network_that_fails_at_one_end_of_a_range_is_a_message_before_any_trial(storage: Path) -> None:
    def build_model(classes: int, depth: int = 1) -> nn.Module:
        if depth == 3:
            raise ValueError("too deep")
        return network(classes, depth)

    with pytest.raises(ModelError, match=r"model=build_model, depth 3: ValueError: too deep \(test_own_code"):
        search(small_study(storage), model=build_model, data=small_images, space={DEPTH: Choice((1, 2, 3))})
    assert not (storage / "mine").exists()


def test_a_search_without_a_finished_trial_is_an_exception_with_its_reason(storage: Path) -> None:
    here = os.getpid()

    def fails(classes: int) -> nn.Module:
        if os.getpid() != here:
            raise LookupError("not here")
        return network(classes)

    study = small_study(storage, budget={"trials": 1, "epochs": 1}, limits={"retries": 0}, scheduler={})
    with pytest.raises(SearchFailed, match="no trial finished") as failed:
        search(study, model=fails, data=small_images, space={"model.dropout": Choice((None, 0.1))})
    assert failed.value.search.trials[0].state == "failed"


def test_a_metric_that_fails_is_named_before_any_trial(storage: Path) -> None:
    def fails(probabilities: Tensor, labels: Tensor) -> float:
        raise ValueError("my metric broke")

    with pytest.raises(UserError, match="metric fails: your function raised ValueError: my metric broke"):
        search(digits_study(storage), metrics={"fails": fails})
    assert not list(storage.glob("*/events.jsonl"))


def test_a_function_of_ones_own_is_what_a_search_optimises(
    storage: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = digits_study(storage, budget={"trials": 2, "epochs": 2}, scheduler={"kind": "none"})
    asked = {**small.model_dump(mode="json"), "objective": {"metric": "val_recall_of_eights"}}
    found = search(asked, metrics={"recall_of_eights": recall_of_eights})
    assert "metrics={'recall_of_eights': recall_of_eights})" in capsys.readouterr().out
    assert found.study.objective.own
    assert found.best is not None
    scored = {each.id: each.history[-1].result.extra_metrics["val_recall_of_eights"] for each in found.trials}
    assert scored[found.best.id] == max(scored.values())
    with pytest.raises(UserError, match=r"val_recall_of_eights is a function of yours"):
        driver().search(resolved_study(found.study.model_copy(update={"name": "without"})))


def test_the_example_of_an_own_search_finds_a_recipe_and_trains_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow
    from mlflow import MlflowClient

    monkeypatch.chdir(tmp_path)
    example = runpy.run_path(str(EXAMPLES / "own_search.py"))
    found = example["run"](trials=2, epochs=3)
    assert found.state == "finished"
    assert {"model.arguments.depth", "model.arguments.width"} <= set(found.trials_frame().columns)
    (stored,) = MlflowClient(f"sqlite:///{found.folder.parent}/mlflow.db").search_logged_models(["1"])
    images, labels = example["make_data"]()
    answers = mlflow.pyfunc.load_model(stored.artifact_location).predict(images[..., None])
    assert np.mean(answers["label"].astype(int) == labels) > 0.5
    assert example["train_best"](found, out=str(tmp_path / "model")) > 0.5
    assert (tmp_path / "model" / "model.safetensors").exists()
