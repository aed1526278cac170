"""Times trials of two ranks that train one epoch of digits: in tunebook, and by Ray Train in Ray Tune.

Both train the same `Run` from the same recipe on the same data, one trial after the other; what differs is
who starts the ranks and when.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from trainable.recipe import Recipe

WORKERS = 2
SMALL = {"model.width": 4, "loop.batch_size": 64, "loop.epochs": 1}


def ray_train(trials: int, folder: Path) -> float:
    """Return the seconds of trials whose ranks Ray Train starts, as in Ray's documentation for Ray Tune."""
    import ray
    from ray import train, tune
    from ray.train.torch import TorchConfig, TorchTrainer
    from ray.tune.integration.ray_train import TuneReportCallback

    from trainable.data.assembly import load
    from trainable.recipe.data import Data

    ray.init(address="local", num_cpus=WORKERS + 1, log_to_driver=False)
    data = ray.put(load(Data(path="digits")))

    def driver(config: dict[str, Any]) -> None:
        name = tune.get_context().get_trial_id()
        TorchTrainer(
            _one_rank,
            train_loop_config={"seed": config["seed"], "data": [data]},
            scaling_config=train.ScalingConfig(num_workers=WORKERS, resources_per_worker={"CPU": 1}),
            torch_config=TorchConfig(backend="gloo"),
            run_config=train.RunConfig(
                name=f"train-{name}", storage_path=str(folder), callbacks=[TuneReportCallback()]
            ),
        ).fit()

    tuner = tune.Tuner(
        tune.with_resources(driver, {"CPU": 0.01}),
        param_space={"seed": tune.grid_search(list(range(trials)))},
        tune_config=tune.TuneConfig(max_concurrent_trials=1),
        run_config=tune.RunConfig(storage_path=str(folder), name="train", verbose=0),
    )
    began = time.perf_counter()
    results = tuner.fit()
    assert not results.errors
    return time.perf_counter() - began


def tunebook(trials: int, folder: Path) -> float:
    """Return the seconds of a search's trials of two ranks, with journal and sampler, without MLflow."""
    from search.commands.guests import resolved_study
    from search.facts.hardware import Hardware, Node
    from search.record.home import Home
    from search.record.journal import Journal
    from search.running.cluster import local_ray
    from search.running.driver import make_ledger
    from search.running.prepare import prepare, write_facts
    from search.running.raytune import run_trials
    from search.running.switch import StopSwitch
    from search.study import Study

    hardware = Hardware((Node(cpus=WORKERS, gpus=0),))
    written = {
        "name": "ranks",
        "data": {"path": "digits"},
        "base": {name: value for name, value in SMALL.items() if name != "loop.epochs"},
        "budget": {"trials": trials, "epochs": 1},
        "resources": {"workers": WORKERS},
        "storage": str(folder),
    }
    prepared = prepare(resolved_study(Study.from_tree(written)), Home(folder / "ranks"), hardware)
    prepared.home.folder.mkdir(parents=True)
    prepared.study.write(prepared.home.folder)
    write_facts(prepared)
    with Journal(prepared.home.folder) as journal, local_ray(hardware, StopSwitch()):
        ledger = make_ledger(prepared, journal)
        ledger.begin("ranks")
        began = time.perf_counter()
        run_trials(prepared, ledger, StopSwitch(), lambda: None, lambda parked: prepared.concurrent)
        seconds = time.perf_counter() - began
        assert all(ledger.ended(number) == "finished" for number in range(trials))
    return seconds


def _one_rank(config: dict[str, Any]) -> None:
    """Train one epoch of a Run in each of Ray Train's workers, as one of the ranks."""
    import ray
    import torch
    from ray import train
    from torch import Tensor, distributed

    from trainable.ranks import Ranks
    from trainable.run import make_run

    def reduced(tensor: Tensor) -> Tensor:
        distributed.all_reduce(tensor)
        return tensor

    torch.set_num_threads(1)
    context = train.get_context()
    ranks = Ranks(context.get_world_rank(), context.get_world_size(), reduced)
    recipe = Recipe().with_values({**SMALL, "loop.seed": config["seed"]})
    run = make_run(recipe, data=ray.get(config["data"][0]), ranks=ranks, device=torch.device("cpu"))
    result = run.step()
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = None
        if ranks.rank == 0:
            torch.save(run.state_dict(), Path(folder) / "state.pt")
            checkpoint = train.Checkpoint.from_directory(folder)
        train.report({"val_accuracy": result.val_accuracy}, checkpoint=checkpoint)
    run.close()


ARMS = {"Ray Train": ray_train, "tunebook": tunebook}
